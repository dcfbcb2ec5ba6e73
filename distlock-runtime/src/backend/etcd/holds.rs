//! What comes after a grant: renewal, giving back, undoing, and the end of what nobody renewed.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::EtcdBackend;
use super::calls::{MOST_OPS, absent, made_at, revision};
use super::entry::{Entry, State};
use super::error::Failure;
use super::leases::{self, Lease, keep_alive};
use super::locks::{PLACE, state};
use super::table::{Busy, Standing};
use crate::backend::{AcquireRequest, BackendError, BackendErrorKind, LeaseHandle, Released, Renewal};
use crate::clock::Moment;
use crate::token::OwnerToken;

/// How long a cancelled attempt may still be under way.
pub(super) const UNDER_WAY: Duration = Duration::from_secs(120);
/// How long something that couldn't be taken away is left before the next try.
const AGAIN: Duration = Duration::from_millis(300);
/// The same where the store refused it.
const AGAIN_REFUSED: Duration = Duration::from_secs(2);
/// How long that is tried before other means are taken.
const STUBBORN: Duration = Duration::from_secs(10);
/// How many names go to another lease in one transaction: of the operations that a server takes, some are for it itself.
const MOST_MOVES: usize = MOST_OPS / 2;
/// How often the lease under the places in queues is kept alive.
const KEEP: Duration = Duration::from_millis(1_500);

/// A renewal that worked: the lease, if it is another now, and when it was sent.
type Renewed = (Option<Arc<Lease>>, Moment);

/// What came of taking something away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// It is, or goes by itself.
    Gone,
    /// The store doesn't want it.
    Refused,
    NoAnswer,
}

/// Something that is being renewed.
struct Renewing<'a> {
    index: usize,
    owner: OwnerToken,
    busy: Busy<'a>,
    standing: Standing,
    length: Duration,
}

impl EtcdBackend {
    pub(super) async fn renew_all(&self, handles: &[LeaseHandle]) -> Vec<Renewal> {
        let meant = |handle: &LeaseHandle| {
            let name = self.names.place(&handle.key, handle.owner);
            let is_meant = |standing: &Standing| standing.name == name;
            let (busy, standing) = self.table.renewal(handle.owner, is_meant)?;
            Some((handle.owner, handle.ttl.as_duration(), busy, standing))
        };
        self.renew_names(handles.iter().map(meant)).await
    }

    /// Renews names; one outcome each. What isn't known here lapsed, was given back or never was: nobody else can have it.
    pub(super) async fn renew_names<'a>(
        &'a self,
        asked: impl Iterator<Item = Option<(OwnerToken, Duration, Busy<'a>, Standing)>>,
    ) -> Vec<Renewal> {
        let (mut renewals, mut stay, mut go) = (Vec::new(), Vec::new(), Vec::new());
        for (index, known) in asked.enumerate() {
            renewals.push(Renewal::Gone);
            let Some((owner, length, busy, standing)) = known else { continue };
            let length = standing.length.max(length);
            let fits = |lease: &Arc<Lease>| !lease.is_retired() && lease.covers(length);
            match standing.lease.as_ref().is_some_and(fits) {
                true => stay.push(Renewing { index, owner, busy, standing, length }),
                false => go.push(Renewing { index, owner, busy, standing, length }),
            }
        }
        go.extend(self.renew_in_place(stay, &mut renewals).await);
        self.renew_elsewhere(go, &mut renewals).await;
        renewals
    }

    /// Puts names under the leases that are there for their lengths.
    async fn renew_elsewhere(&self, mut holds: Vec<Renewing<'_>>, renewals: &mut [Renewal]) {
        holds.sort_by_key(|hold| hold.length);
        let mut holds = holds.into_iter().peekable();
        while let Some(first) = holds.next() {
            let length = first.length;
            let mut group = vec![first];
            while group.len() < MOST_MOVES
                && let Some(next) = holds.next_if(|next| next.length == length)
            {
                group.push(next);
            }
            let names: Vec<_> =
                group.iter().map(|hold| (&*hold.standing.name, hold.standing.created)).collect();
            let moved = match self.move_all(&names, length).await {
                Ok((lease, from, stood)) => {
                    let renewed = |stood: bool| Ok(stood.then(|| (Some(lease.clone()), from)));
                    stood.into_iter().map(renewed).collect()
                }
                Err(failure) => vec![Err(failure); group.len()],
            };
            for (hold, moved) in group.into_iter().zip(moved) {
                self.settled(hold, moved, renewals);
            }
        }
    }

    /// Keeps the leases alive, and then looks that each hold still stands on its own: somebody may have taken it away. Gives those
    /// that stand on another lease.
    async fn renew_in_place<'a>(
        &self,
        mut holds: Vec<Renewing<'a>>,
        renewals: &mut [Renewal],
    ) -> Vec<Renewing<'a>> {
        let mut elsewhere = Vec::new();
        holds.sort_by_key(|hold| hold.standing.lease.as_ref().map(|lease| lease.id));
        let mut holds = holds.into_iter().peekable();
        while let Some(first) = holds.next() {
            let Some(lease) = first.standing.lease.clone() else { continue };
            let mut group = vec![first];
            while group.len() < MOST_OPS
                && let Some(next) = holds
                    .next_if(|next| next.standing.lease.as_ref().is_some_and(|other| other.id == lease.id))
            {
                group.push(next);
            }
            let kept = keep_alive(&self.cluster, &lease).await;
            let standing = match kept {
                // Names go with their lease; what was moved in time is under another by now.
                Ok(_) | Err(Failure::NoLease) => self.standing(&group).await,
                Err(ref failure) => Err(failure.clone()),
            };
            let standing = match standing {
                Ok(standing) => standing.into_iter().map(Ok).collect(),
                Err(failure) => vec![Err(failure); group.len()],
            };
            for (hold, under) in group.into_iter().zip(standing) {
                let outcome = match (under, &kept) {
                    (Ok(None), _) => Ok(None),
                    (Ok(Some(under)), Ok(sent)) if under == lease.id => Ok(Some((None, *sent))),
                    // Another call put it under another lease, or it goes just now: from here on one that is known is under it.
                    (Ok(Some(_)), _) => {
                        elsewhere.push(hold);
                        continue;
                    }
                    (Err(failure), _) => Err(failure),
                };
                self.settled(hold, outcome, renewals);
            }
        }
        elsewhere
    }

    /// Under which leases these names stand, at one moment after the call.
    async fn standing(&self, group: &[Renewing<'_>]) -> Result<Vec<Option<i64>>, Failure> {
        let get =
            |hold: &Renewing<'_>| TxnOp::get(&*hold.standing.name, Some(GetOptions::new().with_keys_only()));
        let reply = self.txn(Txn::new().and_then(group.iter().map(get).collect::<Vec<_>>())).await?;
        let found = reply.value.op_responses().into_iter().zip(group).map(|(op, hold)| match op {
            TxnOpResponse::Get(found) => {
                let kv = found.kvs().first()?;
                (kv.create_revision() == hold.standing.created).then(|| kv.lease())
            }
            _ => None,
        });
        Ok(found.collect())
    }

    fn settled(
        &self,
        hold: Renewing<'_>,
        outcome: Result<Option<Renewed>, Failure>,
        renewals: &mut [Renewal],
    ) {
        renewals[hold.index] = match outcome {
            Ok(Some((lease, sent))) => {
                match hold.busy.renewed(Some(sent + hold.length), hold.length, lease) {
                    true => Renewal::Renewed { sent },
                    false => Renewal::Gone,
                }
            }
            Ok(None) => {
                hold.busy.renewed(None, Duration::ZERO, None);
                self.table.forget_made_at(hold.owner, hold.standing.created);
                Renewal::Gone
            }
            Err(failure) => {
                hold.busy.renewed(None, Duration::ZERO, None);
                Renewal::Unknown(failure.into_error())
            }
        };
    }

    pub(super) async fn give_back(
        &self,
        handle: &LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let name = self.names.place(&handle.key, handle.owner);
        let released = match keep {
            Some(keep) => self.keep(handle, &name, keep).await?,
            None => {
                let call = |client: Client| {
                    let name = name.clone();
                    async move { client.kv_client().delete(name, None).await }
                };
                // The name was this acquisition's alone, so whatever stands there is its.
                self.cluster.call(call).await.map_err(Failure::into_error)?.value.deleted() > 0
            }
        };
        // An attempt may be on its way still; whoever awaits that cancels it.
        self.table.forget(handle.owner);
        Ok(if released { Released::Confirmed } else { Released::NotHeld })
    }

    /// The lock stays taken under a name that is nobody's, on a lease that nobody renews.
    async fn keep(&self, handle: &LeaseHandle, name: &str, keep: Duration) -> Result<bool, BackendError> {
        let line = self.look(&handle.key).await.map_err(Failure::into_error)?;
        let Some(place) = line.place_of(handle.owner).filter(|place| state(place) == Some(State::Held))
        else {
            return Ok(false);
        };
        let kept = handle.owner.of_what_is_kept();
        let kept_name = self.names.place(&handle.key, kept);
        let Some((_, entry)) = &place.ours else { return Ok(false) };
        let entry = Entry { state: State::Kept, ..entry.clone() };
        let lease = leases::grant(&self.cluster, keep).await.map_err(Failure::into_error)?;
        let sent = self.clock().now();
        let txn = Txn::new().when([made_at(name, place.created), absent(&*kept_name)]).and_then([
            TxnOp::delete(name, None),
            TxnOp::put(&*kept_name, entry.encode(), Some(PutOptions::new().with_lease(lease.id))),
        ]);
        let reply = self.txn(txn).await.map_err(Failure::into_error)?.value;
        match reply.succeeded() {
            true => self.table.keep(kept, kept_name, revision(&reply), lease, sent + keep),
            false => leases::revoke(&self.cluster, &lease).await,
        }
        Ok(reply.succeeded())
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let name = self.names.place(&request.key, request.owner);
        let is_marked = self.bury(&name, request.owner).await.map_err(Failure::into_error)?;
        self.table.forget(request.owner);
        match is_marked {
            true => Ok(()),
            // An attempt that comes late might come when there is space again: this has to be repeated until then.
            false => Err(BackendError::unknown(
                "etcd is out of space (alarm NOSPACE): what was cancelled is taken away, and can't be marked as such yet",
            )),
        }
    }

    /// Takes away what an acquisition has, and what it may get later; false if it may get something still.
    async fn bury(&self, name: &str, owner: OwnerToken) -> Result<bool, Failure> {
        let tombstone = self.names.tombstone(owner);
        let act = |lease: i64| {
            let put = TxnOp::put(&*tombstone, "", Some(PutOptions::new().with_lease(lease)));
            self.txn(Txn::new().and_then([put, TxnOp::delete(name, None)]))
        };
        match self.buckets.within(&self.cluster, UNDER_WAY, act).await {
            // Out of space it takes no tombstone, and until there is space no late attempt either.
            Err(Failure::Refused(error)) if error.kind() == BackendErrorKind::OutOfMemory => {
                self.delete(name.to_owned()).await.map(|()| false)
            }
            outcome => outcome.map(|_| true),
        }
    }

    /// Takes away what is over, for as long as it is polled.
    pub(super) async fn end_what_lapsed(&self) {
        loop {
            let earlier = self.table.earlier.notified();
            let (due, next) = self.table.due(self.clock().now());
            let mut is_away = false;
            for (owner, standing) in due {
                // Where one had no answer, the others needn't ask.
                let ended = if is_away { Ended::NoAnswer } else { self.end(owner, &standing).await };
                let again = match ended {
                    Ended::Gone => continue,
                    Ended::Refused => AGAIN_REFUSED,
                    Ended::NoAnswer => AGAIN,
                };
                is_away |= ended == Ended::NoAnswer;
                self.table.postpone(owner, self.clock().now(), again);
            }
            if is_away {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let rest = next.map_or(Duration::from_secs(3_600), |next| next.since(self.clock().now()));
            let _ = tokio::time::timeout(rest, earlier).await;
        }
    }

    async fn end(&self, owner: OwnerToken, standing: &Standing) -> Ended {
        let ended = match standing.is_open {
            true => self.bury(&standing.name, owner).await.map(drop),
            false => self.delete(standing.name.clone()).await,
        };
        // The name's last part is the proof of ownership.
        let name = standing.name.rsplit_once('/').map_or("", |(line, _)| line);
        let Err(failure) = ended else {
            tracing::debug!(name, ?owner, "not renewed or asked for any more: taken away");
            self.table.forget(owner);
            return Ended::Gone;
        };
        let (error, now) = (failure.into_error(), self.clock().now());
        let failing = standing.failing_since.map_or(Duration::ZERO, |since| now.since(since));
        tracing::debug!(name, ?owner, %error, "over, and can't be taken away now");
        if error.is_transient() {
            // Others on its lease may be kept alive all the same: they move to another one then.
            if failing >= standing.length.max(STUBBORN)
                && let Some(lease) = &standing.lease
            {
                lease.retire();
            }
            let is_gone = standing.lease.as_ref().is_some_and(|lease| lease.has_lapsed(now));
            if standing.is_open || !is_gone {
                return Ended::NoAnswer;
            }
        } else if failing < STUBBORN {
            return Ended::Refused;
        } else {
            tracing::warn!(
                name,
                ?owner,
                %error,
                "etcd doesn't let us take away what is over: it goes with its lease"
            );
            if let Some(lease) = self.lease_under(standing).await {
                lease.retire();
            }
        }
        self.table.forget(owner);
        Ended::Gone
    }

    /// The lease of ours that a name stands on, if any.
    async fn lease_under(&self, standing: &Standing) -> Option<Arc<Lease>> {
        if let Some(lease) = &standing.lease {
            return Some(lease.clone());
        }
        let found = self.get(standing.name.clone().into(), GetOptions::new().with_keys_only()).await.ok()?;
        self.leases.known(found.value.kvs().first()?.lease())
    }

    pub(super) async fn delete(&self, name: String) -> Result<(), Failure> {
        let call = |client: Client| {
            let name = name.clone();
            async move { client.kv_client().delete(name, None).await.map(drop) }
        };
        self.cluster.call(call).await.map(drop)
    }

    /// Keeps the places in queues, for as long as it is polled.
    pub(super) async fn keep_places(&self) {
        loop {
            tokio::time::sleep(KEEP).await;
            for lease in self.table.waiting_leases() {
                if lease.is_retired() || !lease.covers(PLACE) {
                    self.table.wake_those_on(lease.id);
                } else if let Err(Failure::NoLease) = keep_alive(&self.cluster, &lease).await {
                    self.table.wake_those_on(lease.id);
                }
            }
        }
    }
}
