//! Acquiring: one transaction where nobody is in the way, a look and a transaction where somebody was.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::EtcdBackend;
use super::calls::{absent, made_at, revision, unexpected};
use super::entry::{Entry, State};
use super::error::Failure;
use super::leases::{Lease, keep_alive};
use super::line::{Line, Obstacle, Place};
use super::table::{Busy, Has, LIVE, Role, Standing, Waiting};
use super::watch::Sight;
use crate::backend::{
    AcquireRequest, Applied, Attempt, BackendError, BackendErrorKind, Blocked, Grant, Kind, Mode,
};
use crate::clock::Moment;
use crate::error::Holder;
use crate::token::FencingToken;

/// A place in the queue stands on a lease of this length, so that it doesn't outlive its process for long.
pub(super) const PLACE: Duration = Duration::from_secs(5);
/// How often the line may change between a look and what follows from it, within one call.
const TRIES: usize = 16;

/// What came of an attempt.
enum Outcome {
    Granted { lease: Arc<Lease>, from: Moment, created: i64, at: i64, token: FencingToken, length: Duration },
    Queued { line: Line, lease: Arc<Lease>, created: i64 },
    Busy(Line),
}

/// What came of a transaction.
enum Tried {
    Done { lease: Arc<Lease>, from: Moment, revision: i64 },
    Found(Line),
}

impl EtcdBackend {
    pub(super) async fn attempt(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let now = self.clock().now();
        let Some((busy, before)) = self.begin(request, now) else {
            return Err(BackendError::refused(
                BackendErrorKind::Unavailable,
                "what this acquisition had is just being taken away",
            ));
        };
        if let Some(blocked) = before.as_ref().and_then(|before| before.still_waits(now)) {
            busy.still(now + LIVE);
            return Ok(Attempt::Queued(blocked));
        }
        let grants = |from, token| Attempt::Granted(Grant { sent: from, token, tokens: 1 });
        let mut placed = false;
        match self.pursue(request, before.as_ref(), &mut placed).await {
            Ok(Outcome::Granted { lease, from, created, at, token, length }) => {
                busy.has(Has {
                    role: Role::Held { token },
                    lease,
                    created,
                    at,
                    length,
                    until: from + length,
                });
                Ok(grants(from, token))
            }
            Ok(Outcome::Queued { line, lease, created }) => {
                let blocked = self.blocked(&line).await;
                let wake = self.watches.watch(self.sight(request, &line));
                let now = self.clock().now();
                let role = Role::Waiting(Arc::new(Waiting {
                    wake,
                    blocked: blocked.clone(),
                    seen: now,
                    waited: AtomicBool::new(false),
                }));
                let (at, length, until) = (line.revision, request.ttl.as_duration(), now + LIVE);
                busy.has(Has { role, lease, created, at, length, until });
                Ok(Attempt::Queued(blocked))
            }
            Ok(Outcome::Busy(line)) => {
                busy.had_nothing(line.revision);
                Ok(Attempt::Busy(self.blocked(&line).await))
            }
            Err(failure) => {
                let mut error = failure.into_error();
                if placed {
                    // The last step did nothing, and an earlier one of this call did.
                    error = error.with_open_outcome();
                }
                if error.applied() == Applied::No {
                    busy.failed();
                }
                Err(error)
            }
        }
    }

    pub(super) fn begin(
        &self,
        request: &AcquireRequest,
        now: Moment,
    ) -> Option<(Busy<'_>, Option<Standing>)> {
        let name = || self.names.place(&request.key, request.owner);
        self.table.attempt(request.owner, name, request.ttl.as_duration(), now)
    }

    /// `placed` says that it entered the queue, whatever came of it afterwards.
    async fn pursue(
        &self,
        request: &AcquireRequest,
        before: Option<&Standing>,
        placed: &mut bool,
    ) -> Result<Outcome, Failure> {
        let mut line = match before {
            Some(_) => self.look(&request.key).await?,
            None => match self.take(request, &Line::new(0, Vec::new())).await? {
                Tried::Done { lease, from, revision } => {
                    return Ok(granted(request, lease, from, (revision, revision), revision));
                }
                Tried::Found(line) => line,
            },
        };
        for _ in 0..TRIES {
            line.check_kind(request.mode).map_err(Failure::Refused)?;
            let place = line.place_of(request.owner).cloned();
            if let Some(place) = place.as_ref().filter(|place| state(place) == Some(State::Held)) {
                match self.hold_on(request, before, place, line.revision).await? {
                    Some(outcome) => return Ok(outcome),
                    None => line = self.look(&request.key).await?,
                }
            } else if line.admits(request.owner, request.mode) {
                match self.take(request, &line).await? {
                    Tried::Done { lease, from, revision } => {
                        let created = place.map_or(revision, |place| place.created);
                        let token = shared_token(&line, request.mode).unwrap_or(created);
                        return Ok(granted(request, lease, from, (created, revision), token));
                    }
                    Tried::Found(found) => line = found,
                }
            } else if let Some(place) = place {
                let lease = self.lease_of(before, &place).await?;
                return Ok(Outcome::Queued { line, lease, created: place.created });
            } else if request.queue {
                let (found, is_placed) = self.queue_up(request, &line).await?;
                (line, *placed) = (found, *placed || is_placed);
            } else {
                return Ok(Outcome::Busy(line));
            }
        }
        let text = "the line of the lock changes faster than it can be looked at";
        Err(Failure::Lost(BackendError::unknown(text)))
    }

    /// Takes the lock, or its share, if the line is as it was seen.
    async fn take(&self, request: &AcquireRequest, line: &Line) -> Result<Tried, Failure> {
        let (name, start) = (self.names.place(&request.key, request.owner), self.names.line(&request.key));
        let place = line.place_of(request.owner);
        let mut compares = vec![self.not_cancelled(request.owner)];
        match place {
            _ if line.is_empty() => compares.push(absent(start.clone()).with_prefix()),
            // Who came later can't be in the way: many may come meanwhile.
            Some(place) if request.mode == Mode::Exclusive => {
                let oldest = Compare::create_revision(start, CompareOp::Greater, place.created - 1);
                compares.extend([made_at(&*name, place.created), oldest.with_prefix()]);
            }
            _ => {
                let unchanged = Compare::mod_revision(start, CompareOp::Less, line.revision + 1);
                let mine = made_at(&*name, place.map_or(0, |place| place.created));
                compares.extend([mine, unchanged.with_prefix()]);
            }
        }
        let entry = self.entry(request, State::Held, line);
        let otherwise = [self.get_line(&request.key), self.get_tombstone(request.owner)];
        let act = |lease: i64| {
            let put = TxnOp::put(&*name, entry.encode(), Some(PutOptions::new().with_lease(lease)));
            let txn = Txn::new().when(compares.clone()).and_then([put]).or_else(otherwise.clone());
            self.txn(txn)
        };
        let (lease, from, reply) =
            self.leases.on_lease(&self.cluster, request.ttl.as_duration(), act).await?;
        match reply.value.succeeded() {
            true => Ok(Tried::Done { lease, from, revision: revision(&reply.value) }),
            false => Ok(Tried::Found(self.found(request, &reply.value)?)),
        }
    }

    /// Enters the queue, if somebody whom it was seen to wait behind is still there: so all in a line are of one kind. Gives the line
    /// as it is then, and whether it has the new place in it.
    async fn queue_up(&self, request: &AcquireRequest, line: &Line) -> Result<(Line, bool), Failure> {
        let name = self.names.place(&request.key, request.owner);
        let entry = self.entry(request, State::Waiting, line);
        let mut compares = vec![self.not_cancelled(request.owner), absent(&*name)];
        // The one who is likely to stay longest.
        compares.extend(line.places().last().map(|place| made_at(&*place.name, place.created)));
        let act = |lease: i64| {
            let put = TxnOp::put(&*name, entry.encode(), Some(PutOptions::new().with_lease(lease)));
            let txn = Txn::new()
                .when(compares.clone())
                .and_then([put, self.get_line(&request.key)])
                .or_else([self.get_line(&request.key), self.get_tombstone(request.owner)]);
            self.txn(txn)
        };
        let (_, _, reply) = self.leases.on_lease(&self.cluster, PLACE, act).await?;
        Ok((self.found(request, &reply.value)?, reply.value.succeeded()))
    }

    /// A repeat of a request that holds the lock: the lease at its full length. `None` if the hold vanished meanwhile.
    async fn hold_on(
        &self,
        request: &AcquireRequest,
        before: Option<&Standing>,
        place: &Place,
        at: i64,
    ) -> Result<Option<Outcome>, Failure> {
        let length = before.map_or(Duration::ZERO, |before| before.length).max(request.ttl.as_duration());
        let token = match before.map(|before| &before.role) {
            Some(Role::Held { token }) => *token,
            _ => FencingToken::new(shared_by(place).unwrap_or(unsigned(place.created))),
        };
        let outcome =
            |lease, from| Some(Outcome::Granted { lease, from, created: place.created, at, token, length });
        let under = before
            .and_then(|before| before.lease.clone())
            .filter(|lease| lease.id == place.lease && !lease.is_retired() && lease.covers(length));
        if let Some(lease) = under {
            match keep_alive(&self.cluster, &lease).await {
                Ok(sent) => return Ok(outcome(lease, sent)),
                Err(Failure::NoLease) => {}
                Err(failure) => return Err(failure),
            }
        }
        let name = self.names.place(&request.key, request.owner);
        Ok(self
            .move_to_lease(&name, place.created, length)
            .await?
            .and_then(|(lease, from)| outcome(lease, from)))
    }

    /// Puts a name under the lease for this length, with nothing else changed. `None` if it isn't there.
    async fn move_to_lease(
        &self,
        name: &str,
        created: i64,
        length: Duration,
    ) -> Result<Option<(Arc<Lease>, Moment)>, Failure> {
        let (lease, from, stood) = self.move_all(&[(name, created)], length).await?;
        Ok((stood == [true]).then_some((lease, from)))
    }

    /// The same for several names, each with the revision that it was made at; which of them were there.
    pub(super) async fn move_all(
        &self,
        names: &[(&str, i64)],
        length: Duration,
    ) -> Result<(Arc<Lease>, Moment, Vec<bool>), Failure> {
        let act = |lease: i64| {
            let moved = names.iter().map(|(name, created)| {
                let options = PutOptions::new().with_lease(lease).with_ignore_value();
                let put = TxnOp::put(*name, "", Some(options));
                TxnOp::txn(Txn::new().when([made_at(*name, *created)]).and_then([put]))
            });
            self.txn(Txn::new().and_then(moved.collect::<Vec<_>>()))
        };
        let (lease, from, reply) = self.leases.on_lease(&self.cluster, length, act).await?;
        let stood = reply.value.op_responses().into_iter().map(|op| match op {
            TxnOpResponse::Txn(moved) => Ok(moved.succeeded()),
            _ => Err(unexpected()),
        });
        Ok((lease, from, stood.collect::<Result<_, _>>()?))
    }

    /// The lease under a place in the queue; the one for new places if it isn't known.
    async fn lease_of(&self, before: Option<&Standing>, place: &Place) -> Result<Arc<Lease>, Failure> {
        let known = before.and_then(|before| before.lease.clone()).filter(|lease| lease.id == place.lease);
        match known {
            Some(lease) => Ok(lease),
            None => self.leases.get(&self.cluster, PLACE).await,
        }
    }

    pub(super) fn entry(&self, request: &AcquireRequest, state: State, line: &Line) -> Entry {
        Entry {
            state,
            mode: request.mode,
            epoch: line.epoch(),
            shared: match state {
                State::Held => shared_token(line, request.mode).map(unsigned),
                _ => None,
            },
            ttl: request.ttl,
            label: self.label.clone(),
        }
    }

    fn sight(&self, request: &AcquireRequest, line: &Line) -> Sight {
        let from = line.revision + 1;
        match line.obstacle(request.owner, request.mode) {
            Obstacle::End(name) => Sight { name, is_range: false, changes: false, from },
            Obstacle::Change(name) => Sight { name, is_range: false, changes: true, from },
            Obstacle::Any => {
                Sight { name: self.names.line(&request.key).into(), is_range: true, changes: true, from }
            }
        }
    }

    /// Who is in the way, and for how long at most.
    pub(super) async fn blocked(&self, line: &Line) -> Blocked {
        let Some(place) = line.holders().next() else { return Blocked::default() };
        let remaining = self.remaining(place).await;
        let holder = match &place.ours {
            Some((owner, entry)) => {
                let holder = Holder::new(Some(entry.label.clone()), remaining);
                if entry.state == State::Kept { holder } else { holder.by(*owner) }
            }
            None => Holder::new(None, remaining),
        };
        Blocked { holder: Some(holder) }
    }
}

fn granted(
    request: &AcquireRequest,
    lease: Arc<Lease>,
    from: Moment,
    (created, at): (i64, i64),
    token: i64,
) -> Outcome {
    let token = FencingToken::new(unsigned(token));
    Outcome::Granted { lease, from, created, at, token, length: request.ttl.as_duration() }
}

pub(super) fn unsigned(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

pub(super) fn state(place: &Place) -> Option<State> {
    place.ours.as_ref().map(|(_, entry)| entry.state)
}

fn shared_by(place: &Place) -> Option<u64> {
    place.ours.as_ref()?.1.shared
}

/// The token that the holds of an explicit owner share, if one of them stands.
fn shared_token(line: &Line, mode: Mode) -> Option<i64> {
    if mode.kind() != Kind::Owned {
        return None;
    }
    let first = line.holders().find(|place| place.mode() == mode)?;
    Some(shared_by(first).and_then(|token| i64::try_from(token).ok()).unwrap_or(first.created))
}
