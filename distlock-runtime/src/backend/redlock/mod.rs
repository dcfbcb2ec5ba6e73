//! Redlock: a lock on a majority of three to nine independent Redis servers, with a fencing token.
//!
//! The algorithm is Salvatore Sanfilippo's (<https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>) with three
//! additions. The fencing token is the quorum's largest and is written back to a quorum before the grant counts, so that tokens
//! increase over whatever quorums; a cancelled attempt leaves a tombstone on each node, so that it does no harm when it arrives
//! late; a renewal needs a quorum inside the validity, and one that fails doesn't release.
//!
//! | file | holds |
//! |---|---|
//! | `options` | how to reach the nodes |
//! | `ballot` | what votes come to |
//! | `ask` | asking all nodes at once |
//! | `locks`, `admin` | the operations |
//! | `cleanup` | what nodes that didn't answer must still be told |

mod admin;
mod ask;
mod ballot;
mod cleanup;
mod locks;
#[cfg(test)]
mod model;
mod options;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

pub use options::RedlockOptions;

use self::cleanup::Cleanup;
use super::redis::RedisBackend;
use super::{
    AcquireRequest, Attempt, Backend, BackendError, Blocked, Capability, Guarantees, HolderState,
    LeaseHandle, LockState, Promise, Released, Renewal, Turn, Warning,
};
use crate::clock::{Clock, Moment};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// The pause before the next attempt, in milliseconds: random, so that those who split the votes don't do so again.
const RETRY: std::ops::RangeInclusive<u64> = 20..=120;

/// A store on three to nine independent Redis servers.
///
/// It serves exclusive locks. Waiters ask again after random pauses, as the algorithm has it: there is no queue, and no order
/// between processes (within one they are served in order). Idempotency records, latches, fair and shared locks aren't kept here: use
/// one Redis beside it.
pub struct RedlockBackend {
    nodes: Vec<Arc<RedisBackend>>,
    addresses: Vec<String>,
    clock: Clock,
    node_timeout: Option<Duration>,
    restart_delay: Option<Duration>,
    /// Nodes that restarted lately, by when their votes count again.
    recent: Mutex<Vec<Sighting>>,
    /// Which nodes may have, or get, an attempt without having said so.
    silent: Mutex<HashMap<OwnerToken, Vec<usize>>>,
    cleanup: Cleanup,
}

/// What was last seen of a node.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    connection: u64,
    counts_from: Moment,
}

impl RedlockBackend {
    /// A backend that connects when it is first used. Needs no runtime.
    ///
    /// # Errors
    /// `Config` for fewer than 3 or more than 9 nodes, one that is given twice, one with options of replicas or failovers, and what
    /// [`RedisBackend::open`](super::redis::RedisBackend::open) says of each.
    pub fn open(options: &RedlockOptions, clock: Clock) -> Result<Arc<Self>, BackendError> {
        options.check()?;
        let nodes = options
            .nodes
            .iter()
            .map(|node| RedisBackend::open(node, clock))
            .collect::<Result<Vec<_>, _>>()?;
        let unseen = Sighting { connection: 0, counts_from: Moment::from_nanos(0) };
        Ok(Arc::new(Self {
            recent: Mutex::new(vec![unseen; nodes.len()]),
            addresses: nodes.iter().map(|node| node.address().to_owned()).collect(),
            nodes,
            clock,
            node_timeout: options.node_timeout,
            restart_delay: options.restart_delay,
            silent: Mutex::default(),
            cleanup: Cleanup::new(clock),
        }))
    }
}

#[async_trait]
impl Backend for RedlockBackend {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn guarantees(&self) -> Guarantees {
        use Promise::{Fenced, Holds, NotApplicable, Violated};
        Guarantees::new(
            "Redlock, 3 to 9 nodes",
            [Violated, Fenced, Holds, Holds, Violated, Violated, NotApplicable, Violated, Violated],
        )
        .without(&[
            Capability::Queue,
            Capability::Fair,
            Capability::ReadWrite,
            Capability::Semaphore,
            Capability::Owners,
            Capability::Latches,
            Capability::Circles,
            Capability::Records,
        ])
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        self.attempt(request).await
    }

    async fn turn(&self, _: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let pause = Duration::from_millis(fastrand::u64(RETRY));
        let lapse = blocked.remaining().map_or(pause, |remaining| remaining + Duration::from_millis(5));
        tokio::time::sleep(pause.min(lapse)).await;
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        self.renew_all(leases).await
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        self.give_back(lease, keep).await
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.undo(request).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        self.look_at(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        self.held(prefix, limit).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        self.take_away(key).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.reach().await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.check_settings().await
    }

    async fn serve(&self) {
        self.cleanup.run().await;
    }
}

impl fmt::Debug for RedlockBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockBackend").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}
