//! The lock operations: one script call each.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::calls::milliseconds;
use super::connection::{Lane, Reply};
use super::script::{Drawing, Script};
use super::{RedisBackend, error, script, value};
use crate::backend::{
    AcquireRequest, Attempt, BackendError, Blocked, Grant, LeaseHandle, Mode, PostedRelease, Released,
    Renewal,
};
use crate::token::FencingToken;

/// How long a cancelled attempt may still be under way. What it leaves then lives for its ttl, and so does the tombstone.
const UNDER_WAY: Duration = Duration::from_secs(120);
/// How many leases one script call renews: enough to be cheap, few enough not to hold up others.
const RENEWALS: usize = 200;
/// A counter outside of these was lost or tampered with; `draw.lua` has the same borders.
const TOKENS: RangeInclusive<u64> = 1_000_000_000_000_000..=9_000_000_000_000_000;

/// What came of the plain form.
enum Plain {
    Granted(Grant, Arc<Lane>),
    /// Somebody holds the lock, perhaps this very owner from an earlier try: a script has to look.
    Busy,
    /// The lock is taken, but the counter isn't as it should be: a script has to draw the token or give the lock back.
    WithoutToken,
}

impl RedisBackend {
    /// The script in the way in which this store draws its tokens.
    pub(super) fn drawing<'a>(&self, drawing: &'a Drawing) -> &'a Script {
        drawing.script(self.draws_ahead)
    }

    /// The first try is plain: `SET NX` and `INCR` cost the server less than half of a script. A key that was busy lately
    /// saves that try.
    pub(super) async fn attempt(
        &self,
        request: &AcquireRequest,
    ) -> Result<(Attempt, Arc<Lane>), BackendError> {
        // Whoever must not pass by looks at the queue first.
        if request.is_fair() {
            return Box::pin(self.attempt_in_line(request)).await;
        }
        let owner = request.owner.to_hex();
        let waited = request.queue && self.wakeups.contains(request.owner);
        let likely_busy = waited || request.queue && self.contention.is_likely(&request.key);
        // A plain try that comes too late is only recognized by clients that know tombstones; a raw key has others. And it counts
        // on, which isn't enough where a replica may have taken over.
        let mut taken = false;
        if !likely_busy && !request.key.is_raw() && !self.draws_ahead {
            match self.take_plainly(request, &owner).await? {
                Plain::Granted(grant, lane) => return Ok((Attempt::Granted(grant), lane)),
                Plain::Busy if request.queue => self.contention.note(&request.key, true),
                Plain::Busy => {}
                Plain::WithoutToken => taken = true,
            }
        }
        // The script wasn't applied, but the lock is taken: it must be cancelled.
        let open = |failure: BackendError| if taken { failure.with_open_outcome() } else { failure };
        if request.queue {
            let outcome = Box::pin(
                self.enter(request, self.drawing(&script::ENTER), || self.enter_call(request, &owner)),
            )
            .await;
            if !waited && matches!(outcome, Ok((Attempt::Granted(_) | Attempt::Busy(_), _))) {
                self.contention.note(&request.key, false);
            }
            return outcome.map_err(open);
        }
        let call = || self.acquire_call(request, &owner);
        let reply = Box::pin(self.connections.run(self.drawing(&script::ACQUIRE), call)).await;
        reply.and_then(|reply| attempted(block(request), reply)).map_err(open)
    }

    async fn take_plainly(&self, request: &AcquireRequest, owner: &str) -> Result<Plain, BackendError> {
        let (Reply { lane, sent, value: taken }, drawn) =
            self.connections.attempt(request.owner, || self.plain_call(request, owner)).await?;
        let last = match (taken, drawn) {
            (Value::Okay, Value::Int(last)) => u64::try_from(last).unwrap_or_default(),
            (Value::Okay, _) => return Ok(Plain::WithoutToken),
            (Value::Nil, _) => return Ok(Plain::Busy),
            (other, _) => return Err(error::unexpected("acquire", &other)),
        };
        let tokens = request.tokens.max(1);
        let first = last.saturating_sub(u64::from(tokens) - 1);
        Ok(if TOKENS.contains(&last) {
            Plain::Granted(Grant { sent, token: FencingToken::new(first), tokens }, lane)
        } else {
            Plain::WithoutToken
        })
    }

    async fn attempt_in_line(&self, request: &AcquireRequest) -> Result<(Attempt, Arc<Lane>), BackendError> {
        let owner = request.owner.to_hex();
        let script = if request.mode == Mode::Exclusive { &script::FAIR } else { &script::SHARE_ACQUIRE };
        let script = self.drawing(script);
        let call = || match request.mode {
            Mode::Exclusive => self.fair_call(request, &owner),
            _ => self.share_call(request, &owner),
        };
        if request.queue {
            return self.enter(request, script, call).await;
        }
        let reply = self.connections.run(script, call).await?;
        attempted(block(request), reply)
    }

    /// A try that may stand in the queue after it.
    async fn enter(
        &self,
        request: &AcquireRequest,
        script: &Script,
        call: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<(Attempt, Arc<Lane>), BackendError> {
        // Before the command is sent: the turn may come before its reply.
        let first = self.wakeups.enter(request.owner);
        let reply = self.connections.run(script, call).await;
        let outcome = match reply.and_then(|reply| attempted(block(request), reply)) {
            Err(failure) => {
                if first && failure.applied() == crate::backend::Applied::No {
                    self.wakeups.leave(request.owner);
                }
                return Err(failure);
            }
            Ok(outcome) => outcome,
        };
        if !matches!(outcome.0, Attempt::Queued(_)) {
            self.wakeups.leave(request.owner);
        }
        Ok(outcome)
    }

    pub(super) async fn renew_all(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let (exclusive, shares) = tokio::join!(self.renew_kind(leases, false), self.renew_kind(leases, true));
        let mut outcomes: Vec<Option<Renewal>> = vec![None; leases.len()];
        for (index, renewal) in exclusive.into_iter().chain(shares) {
            outcomes[index] = Some(renewal);
        }
        outcomes.into_iter().map(|outcome| outcome.expect("each lease is of one kind")).collect()
    }

    async fn renew_kind(&self, leases: &[LeaseHandle], shares: bool) -> Vec<(usize, Renewal)> {
        let of_kind = |index: &usize| (leases[*index].mode != Mode::Exclusive) == shares;
        let slot = |index: usize| self.namespace.lock(&leases[index].key).slot();
        let groups = self.groups((0..leases.len()).filter(of_kind), RENEWALS, slot);
        let script = if shares { &script::SHARE_RENEW } else { &script::RENEW };
        let build = |group: &[usize]| {
            let some = group.iter().map(|index| &leases[*index]);
            if shares { self.renew_shares_call(some) } else { self.renew_call(some) }
        };
        let shortest = leases.iter().map(|lease| lease.ttl.as_duration()).min().unwrap_or_default();
        self.renew_groups(script, groups, shortest, &build).await
    }

    pub(super) async fn give_back(
        &self,
        lease: &LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let owner = lease.owner.to_hex();
        if keep.is_none_or(|keep| keep.is_zero())
            && let Some(released) = self.give_back_natively(lease, &owner).await?
        {
            return Ok(released);
        }
        let script = match lease.mode {
            Mode::Exclusive => &script::RELEASE,
            _ => &script::SHARE_RELEASE,
        };
        let reply = self.connections.run(script, || self.release_call(lease, &owner, keep)).await?;
        match reply.value {
            Value::Int(1) => Ok(Released::Confirmed),
            Value::Int(0) => Ok(Released::NotHeld),
            other => Err(error::unexpected("release", &other)),
        }
    }

    pub(super) fn post(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        let (lease, owner) = (release.lease(), release.lease().owner.to_hex());
        let keep = release.keep().filter(|keep| !keep.is_zero());
        let request = match self.native_release(lease, &owner).filter(|_| keep.is_none()) {
            Some(two) => two.into(),
            None => self.release_call(lease, &owner, keep).into(),
        };
        self.connections.post(request, release)
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.wakeups.leave(request.owner);
        let owner = request.owner.to_hex();
        // Behind the attempt on its own connection, if that still works: then nothing of it is left.
        self.connections.follow_up(request.owner, || self.release_call(&request.lease(), &owner, None));
        let life = milliseconds(UNDER_WAY + request.ttl.as_duration());
        if request.mode == Mode::Exclusive {
            self.connections.run(&script::CANCEL, || self.cancel_call(request, &owner, life)).await?;
        } else {
            self.connections
                .run(&script::SHARE_CANCEL, || self.cancel_share_call(request, &owner, life))
                .await?;
        }
        Ok(())
    }
}

/// How many tokens a grant of this request brings: a reader carries one that others drew, and the holds of an owner share one.
fn block(request: &AcquireRequest) -> u32 {
    match request.mode {
        Mode::Read | Mode::Owned { .. } => 1,
        _ => request.tokens.max(1),
    }
}

/// What a reply to an attempt means that brings so many tokens if it is a grant.
pub(super) fn attempted(tokens: u32, reply: Reply) -> Result<(Attempt, Arc<Lane>), BackendError> {
    let attempt = match reply.value {
        Value::Int(-1) => Err(BackendError::cancelled()),
        Value::Int(token) if token > 0 => Ok(Attempt::Granted(Grant {
            sent: reply.sent,
            token: FencingToken::new(token.unsigned_abs()),
            tokens,
        })),
        Value::Array(parts) => match parts.as_slice() {
            [Value::BulkString(holder), Value::Int(remaining), queued @ ..] => {
                // Empty: nobody holds it, and those who wait take more than there is.
                let holder = (!holder.is_empty()).then(|| value::holder(holder, *remaining));
                let blocked = Blocked { holder };
                Ok(match queued {
                    [Value::Int(1)] => Attempt::Queued(blocked),
                    _ => Attempt::Busy(blocked),
                })
            }
            _ => Err(error::unexpected("acquire", &Value::Array(parts))),
        },
        other => Err(error::unexpected("acquire", &other)),
    };
    attempt.map(|attempt| (attempt, reply.lane))
}

/// One outcome for each of `count` leases, from a reply that lists those that are gone, counted from 1.
pub(super) fn renewals(
    count: usize,
    operation: &str,
    reply: Result<Reply, BackendError>,
) -> impl Iterator<Item = Renewal> {
    let reply = reply.and_then(|reply| match reply.value {
        Value::Array(gone) => Ok((reply.sent, gone)),
        other => Err(error::unexpected(operation, &other)),
    });
    (1..=count).map(move |index| match &reply {
        Ok((_, gone))
            if gone
                .iter()
                .any(|gone| matches!(gone, Value::Int(gone) if usize::try_from(*gone) == Ok(index))) =>
        {
            Renewal::Gone
        }
        Ok((sent, _)) => Renewal::Renewed { sent: *sent },
        Err(failure) => Renewal::Unknown(failure.clone()),
    })
}
