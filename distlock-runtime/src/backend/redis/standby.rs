//! What a grant needs where a replica may take over: replicas that have it, and a history of writes that goes on.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RedisBackend;
use super::connection::{Lane, replication_id};
use super::replicated::Replication;
use crate::backend::{
    AcquireRequest, Applied, Attempt, AttemptAll, BackendError, BackendErrorKind, Claim, ClaimOutcome,
    LeaseHandle, Mode, RecordStore as _, Renewal,
};
use crate::clock::{Clock, Moment};
use crate::token::OwnerToken;

/// So many leases are remembered before those that have lapsed are looked for.
const FEW: usize = 256;

/// What is asked of the servers behind the primary.
#[derive(Debug)]
pub(super) struct Standby {
    min_replicas: u32,
    limit: Duration,
    clock: Clock,
    lineage: Option<Lineage>,
}

impl Standby {
    /// `None` if nothing is asked.
    pub(super) fn new(options: &Replication, clock: Clock) -> Option<Self> {
        let asked = options.min_replicas > 0 || options.strict_failover;
        asked.then(|| Self {
            min_replicas: options.min_replicas,
            limit: options.replica_timeout,
            clock,
            lineage: options.strict_failover.then(Lineage::default),
        })
    }
}

impl RedisBackend {
    pub(super) async fn attempt_kept(
        &self,
        standby: &Standby,
        request: &AcquireRequest,
    ) -> Result<Attempt, BackendError> {
        let (attempt, lane) = self.attempt(request).await?;
        if matches!(attempt, Attempt::Granted(_)) {
            self.keep(standby, &lane, std::slice::from_ref(request)).await?;
        }
        Ok(attempt)
    }

    pub(super) async fn attempt_all_kept(
        &self,
        standby: &Standby,
        requests: &[AcquireRequest],
    ) -> Result<AttemptAll, BackendError> {
        let (attempt, lane) = self.attempt_all(requests).await?;
        if let (AttemptAll::Granted(_), Some(lane)) = (&attempt, lane) {
            self.keep(standby, &lane, requests).await?;
        }
        Ok(attempt)
    }

    /// To more than it was: what isn't confirmed is taken back. What replicas have of a lease that became less is on the safe side.
    pub(super) async fn change_kept(
        &self,
        standby: &Standby,
        lease: &LeaseHandle,
        to: Mode,
    ) -> Result<Attempt, BackendError> {
        let (attempt, lane) = self.change(lease, to).await?;
        if to == Mode::Write
            && matches!(attempt, Attempt::Granted(_))
            && let Err(failure) = self.confirmed(standby, &lane).await
        {
            let back = LeaseHandle { mode: to, ..lease.clone() };
            return Err(match self.change(&back, lease.mode).await {
                Ok((Attempt::Granted(_), _)) => failure,
                _ => failure.with_open_outcome(),
            });
        }
        Ok(attempt)
    }

    /// After a grant on this connection. What isn't confirmed is given back.
    async fn keep(
        &self,
        standby: &Standby,
        lane: &Arc<Lane>,
        requests: &[AcquireRequest],
    ) -> Result<(), BackendError> {
        if let Err(mut failure) = self.confirmed(standby, lane).await {
            for request in requests {
                if failure.applied() == Applied::No && self.give_back(&request.lease(), None).await.is_err() {
                    failure = failure.with_open_outcome();
                }
            }
            return Err(failure);
        }
        if let (Some(lineage), Some(history)) = (&standby.lineage, lane.history()) {
            let now = standby.clock.now();
            requests.iter().for_each(|request| lineage.note(&request.lease(), history, now));
        }
        Ok(())
    }

    /// Enough replicas have what was written on this connection. An error that leaves the outcome open: the connection broke.
    pub(super) async fn confirmed(&self, standby: &Standby, lane: &Arc<Lane>) -> Result<(), BackendError> {
        if standby.min_replicas == 0 {
            return Ok(());
        }
        if !lane.is_live() {
            return Err(BackendError::unknown(
                "the connection of the grant broke before replicas confirmed it",
            ));
        }
        let clock = standby.clock;
        let replicas = lane.replicated(standby.min_replicas, standby.limit, || clock.now()).await?;
        if replicas >= u64::from(standby.min_replicas) {
            return Ok(());
        }
        Err(BackendError::refused(
            BackendErrorKind::NotReplicated,
            format!(
                "{replicas} of {} replicas confirmed it within {} ms; it was given back",
                standby.min_replicas,
                standby.limit.as_millis()
            ),
        ))
    }

    /// In strict mode a lease ends with the history of writes in which it was granted.
    pub(super) async fn judge(&self, standby: &Standby, leases: &[LeaseHandle], renewals: &mut [Renewal]) {
        let Some(lineage) = &standby.lineage else { return };
        let history = self.history().await;
        let now = standby.clock.now();
        for (lease, renewal) in leases.iter().zip(renewals) {
            match &history {
                _ if !matches!(renewal, Renewal::Renewed { .. }) => {}
                Ok(history) if lineage.is_of(lease.owner, history) => lineage.note(lease, history, now),
                Ok(_) => *renewal = Renewal::Gone,
                Err(failure) => *renewal = Renewal::Unknown(failure.clone()),
            }
        }
    }

    pub(super) fn forget(&self, owner: OwnerToken) {
        if let Some(lineage) = self.standby.as_ref().and_then(|standby| standby.lineage.as_ref()) {
            lineage.leases().remove(&owner);
        }
    }

    /// The server's history at this moment. A connection that began in another is of no use: its grants would count for that one.
    async fn history(&self) -> Result<String, BackendError> {
        // A Cluster has no strict mode, so there is one.
        let nodes = self.connections.nodes().await?;
        let lane = nodes[0].lane().await?;
        let asked = || {
            let mut info = redis::cmd("INFO");
            info.arg("replication");
            info
        };
        let history = replication_id(nodes[0].command("renew", asked).await?)?;
        if lane.history().is_some_and(|begun| begun != history) {
            lane.retire();
        }
        Ok(history)
    }
}

impl RedisBackend {
    /// A claim counts when replicas have it: else a repeat could run the same work on a new primary.
    pub(super) async fn claim_kept(
        &self,
        standby: &Standby,
        claim: &Claim,
    ) -> Result<ClaimOutcome, BackendError> {
        let (outcome, lane) = self.claim_record(claim).await?;
        if matches!(outcome, ClaimOutcome::Claimed { .. })
            && let Err(failure) = self.confirmed(standby, &lane).await
        {
            let withdrawn = self.withdraw(claim).await;
            return Err(if withdrawn.is_ok() { failure } else { failure.with_open_outcome() });
        }
        Ok(outcome)
    }
}

/// In which history of writes each lease was granted.
#[derive(Default)]
struct Lineage(Mutex<HashMap<OwnerToken, Origin>>);

struct Origin {
    history: String,
    lapses: Moment,
}

impl Lineage {
    fn leases(&self) -> MutexGuard<'_, HashMap<OwnerToken, Origin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, lease: &LeaseHandle, history: &str, now: Moment) {
        let mut leases = self.leases();
        let lapses = now + lease.ttl.as_duration();
        if let Some(origin) = leases.get_mut(&lease.owner) {
            origin.lapses = lapses;
            history.clone_into(&mut origin.history);
            return;
        }
        // When it would have to grow: what its holders never gave back goes first.
        if leases.len() >= FEW && leases.len() == leases.capacity() {
            leases.retain(|_, origin| origin.lapses > now);
        }
        leases.insert(lease.owner, Origin { history: history.to_owned(), lapses });
    }

    /// Of one that isn't known nothing is known.
    fn is_of(&self, owner: OwnerToken, history: &str) -> bool {
        self.leases().get(&owner).is_some_and(|origin| origin.history == history)
    }
}

impl fmt::Debug for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lineage").field("leases", &self.leases().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::LockKey;
    use crate::ttl::Ttl;

    #[test]
    fn a_lease_belongs_to_the_history_of_its_grant() {
        let lineage = Lineage::default();
        let now = Clock::System.now();
        let lease = || LeaseHandle {
            key: LockKey::new("k").unwrap(),
            owner: OwnerToken::random().unwrap(),
            ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
            mode: Mode::Exclusive,
        };
        let first = lease();
        lineage.note(&first, "a", now);
        assert!(lineage.is_of(first.owner, "a"));
        assert!(!lineage.is_of(first.owner, "b"));
        assert!(!lineage.is_of(lease().owner, "a"));
        // What was never given back doesn't stay for ever.
        for second in 0..20_000 {
            lineage.note(&lease(), "a", now + Duration::from_millis(100 * second));
        }
        assert!(lineage.leases().len() < 1_000, "{lineage:?}");
    }
}
