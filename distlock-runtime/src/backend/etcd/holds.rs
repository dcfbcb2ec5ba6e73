//! What comes after a grant: renewal, giving back, undoing, and the end of what nobody renewed.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, GetOptions, PutOptions, Txn, TxnOp, TxnOpResponse};

use super::EtcdBackend;
use super::calls::{MOST_OPS, absent};
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
/// How often the lease under the places in queues is kept alive.
const KEEP: Duration = Duration::from_millis(1_500);

/// A renewal that worked: the lease, if it is another now, and when it was sent.
type Renewed = (Option<Arc<Lease>>, Moment);

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
        for hold in go {
            let moved = self.moved(&hold).await;
            self.settled(hold, moved, &mut renewals);
        }
        self.renew_in_place(stay, &mut renewals).await;
        renewals
    }

    async fn moved(&self, hold: &Renewing<'_>) -> Result<Option<Renewed>, Failure> {
        let moved = self.move_to_lease(&hold.standing.name, hold.standing.created, hold.length).await?;
        Ok(moved.map(|(lease, from)| (Some(lease), from)))
    }

    /// Keeps the leases alive, and then looks that each hold still stands on its own: somebody may have taken it away.
    async fn renew_in_place(&self, mut holds: Vec<Renewing<'_>>, renewals: &mut [Renewal]) {
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
                    (Ok(Some(_)), _) => self.moved(&hold).await,
                    (Err(failure), _) => Err(failure),
                };
                self.settled(hold, outcome, renewals);
            }
        }
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
                self.table.forget(hold.owner);
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
        if let Some(standing) = self.table.forget(handle.owner)
            && standing.is_open
        {
            // An attempt may be on its way still; whoever awaits that cancels it.
            tracing::trace!(key = %handle.key, "released with an attempt's outcome open");
        }
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
        let txn =
            Txn::new().when([super::calls::made_at(name, place.created), absent(&*kept_name)]).and_then([
                TxnOp::delete(name, None),
                TxnOp::put(&*kept_name, entry.encode(), Some(PutOptions::new().with_lease(lease.id))),
            ]);
        let kept_now = self.txn(txn).await.map_err(Failure::into_error)?.value.succeeded();
        match kept_now {
            true => self.table.keep(kept, kept_name, lease, sent + keep),
            false => leases::revoke(&self.cluster, &lease).await,
        }
        Ok(kept_now)
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let name = self.names.place(&request.key, request.owner);
        self.bury(&name, request.owner).await.map_err(Failure::into_error)?;
        self.table.forget(request.owner);
        Ok(())
    }

    /// Takes away what an acquisition has, and what it may get later.
    async fn bury(&self, name: &str, owner: OwnerToken) -> Result<(), Failure> {
        let tombstone = self.names.tombstone(owner);
        let act = |lease: i64| {
            let put = TxnOp::put(&*tombstone, "", Some(PutOptions::new().with_lease(lease)));
            self.txn(Txn::new().and_then([put, TxnOp::delete(name, None)]))
        };
        match self.buckets.within(&self.cluster, UNDER_WAY, act).await {
            // Out of space it takes no tombstone, and no late attempt either.
            Err(Failure::Refused(error)) if error.kind() == BackendErrorKind::OutOfMemory => {
                self.delete(name.to_owned()).await
            }
            outcome => outcome.map(drop),
        }
    }

    /// Takes away what is over, for as long as it is polled.
    pub(super) async fn end_what_lapsed(&self) {
        loop {
            let earlier = self.table.earlier.notified();
            let (due, next) = self.table.due(self.clock().now());
            let mut is_away = false;
            for (owner, standing) in due {
                if is_away || !self.end(owner, &standing).await {
                    is_away = true;
                    self.table.postpone(owner, self.clock().now() + AGAIN);
                }
            }
            if is_away {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let rest = next.map_or(Duration::from_secs(3_600), |next| next.since(self.clock().now()));
            let _ = tokio::time::timeout(rest, earlier).await;
        }
    }

    /// False if it must be tried again.
    async fn end(&self, owner: OwnerToken, standing: &Standing) -> bool {
        let ended = match standing.is_open {
            true => self.bury(&standing.name, owner).await,
            false => self.delete(standing.name.clone()).await,
        };
        if let Err(failure) = ended {
            tracing::debug!(name = standing.name, error = %failure.into_error(), "lapsed, and can't be taken away now");
            // Then it goes with its lease, and what is renewed beside it moves to another.
            let lease = standing.lease.as_ref().inspect(|lease| lease.retire());
            let is_gone = lease.is_some_and(|lease| lease.has_lapsed(self.clock().now()));
            if standing.is_open || !is_gone {
                return false;
            }
        }
        tracing::debug!(name = standing.name, "not renewed or asked for any more: taken away");
        self.table.forget(owner);
        true
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
