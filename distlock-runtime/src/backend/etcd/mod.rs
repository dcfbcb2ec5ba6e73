//! etcd, one member or a cluster: locks as lines of names on shared leases, in the order of their creation; fencing tokens are
//! revisions. The wire form is written down in `docs/wire.md`.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `url`, `tls` | how to reach the cluster |
//! | `connection`, `error` | the clients, which member is asked, and what their failures mean |
//! | `names`, `entry` | names and values in the store |
//! | `line` | who holds a lock and who waits, and what may be done next: pure |
//! | `leases` | leases that many names share |
//! | `table`, `agenda` | what this process has in the store, and until when |
//! | `calls`, `locks`, `holds`, `shares`, `admin` | the operations |
//! | `record`, `records`, `claims`, `inventory`, `quota` | idempotency records |
//! | `compare` | what a transaction of the user's own compares |
//! | `watch` | who is woken by which change |

mod admin;
mod agenda;
mod calls;
mod claims;
mod compare;
mod connection;
mod entry;
mod error;
mod holds;
mod inventory;
mod leases;
mod line;
mod locks;
mod names;
mod options;
mod quota;
mod record;
mod records;
mod shares;
mod table;
mod tls;
mod url;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;

pub use compare::EtcdCompare;
pub use options::EtcdOptions;

use self::connection::Cluster;
use self::leases::{Buckets, Leases};
use self::names::Names;
use self::table::{Role, Table};
use self::watch::Watches;
use super::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Capability, Guarantees, HolderState,
    LeaseHandle, LockState, Mode, Promise, RecordStore, Released, Renewal, Turn, Warning,
};
use crate::clock::Clock;
use crate::key::LockKey;

/// The longest sleep of a waiter between two looks.
const FALLBACK: Duration = Duration::from_secs(1);

/// A store on an etcd cluster, version 3.4 or later.
///
/// Whatever a majority of the members agreed to stands, over the loss of members and of power. Leases count in whole seconds and have
/// a floor (with the default settings of the server 2 s): a dead holder's lock is had again when what the store *granted* is over,
/// which may be more than the ttl; a new leader counts every lease from its beginning. A holder whose process lives but that isn't renewed any more loses its lock after its own ttl.
pub struct EtcdBackend {
    cluster: Cluster,
    names: Names,
    label: String,
    leases: Leases,
    buckets: Buckets,
    table: Table,
    watches: Watches,
    has_user: bool,
    is_remote: bool,
}

impl EtcdBackend {
    /// A backend that connects when it is first used. Needs no runtime.
    ///
    /// # Errors
    /// `Config` for no or wrong members, a wrong namespace, unreadable certificate files, or TLS without the feature `etcd-tls`.
    pub fn open(options: &EtcdOptions, clock: Clock) -> Result<Arc<Self>, BackendError> {
        options.check()?;
        let local = |(host, _): &(String, u16)| matches!(&**host, "localhost" | "127.0.0.1" | "::1");
        Ok(Arc::new(Self {
            cluster: Cluster::new(options, clock)?,
            names: Names::new(options.checked_namespace()?),
            label: options.value_label(),
            leases: Leases::default(),
            buckets: Buckets::default(),
            table: Table::default(),
            watches: Watches::default(),
            has_user: options.user.is_some(),
            is_remote: !options.members.iter().all(local),
        }))
    }

    /// The promises of this store.
    #[must_use]
    pub const fn promises() -> Guarantees {
        use Promise::{Fenced, Holds, NotApplicable, Violated};
        Guarantees::new(
            "etcd",
            [
                Violated,
                Fenced,
                Holds,
                Holds,
                // A member that has lost its data isn't a member any more.
                NotApplicable,
                Holds,
                Holds,
                // Leases are counted by a clock that doesn't jump.
                Holds,
                Violated,
            ],
        )
        .without(&[Capability::Latches, Capability::Circles])
    }

    fn clock(&self) -> Clock {
        self.cluster.clock()
    }
}

#[async_trait]
impl Backend for EtcdBackend {
    fn name(&self) -> &'static str {
        "etcd"
    }

    fn guarantees(&self) -> Guarantees {
        Self::promises()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        self.attempt(request).await
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        self.attempt_all(requests).await
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let rest = blocked.remaining().map_or(FALLBACK, |rest| rest + Duration::from_millis(5)).min(FALLBACK);
        match self.table.get(request.owner).map(|standing| standing.role) {
            Some(Role::Waiting(waiting)) => {
                if !waiting.wake.wait(rest).await {
                    waiting.waited.store(true, Ordering::Release);
                }
            }
            _ => tokio::time::sleep(rest).await,
        }
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
        self.look_at(key, LockState::MOST_HOLDERS).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        self.held(prefix, limit).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        self.take_by_force(key).await
    }

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        self.converted(lease, to).await
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        self.resized(key, limit).await
    }

    fn etcd_compare(&self, lease: &LeaseHandle) -> Option<EtcdCompare> {
        let standing = self.table.get(lease.owner)?;
        let is_held = matches!(standing.role, Role::Held { .. });
        is_held.then(|| EtcdCompare::new(standing.name.into_bytes(), standing.created))
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.reach().await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.look_at_settings().await
    }

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        Some(self)
    }

    async fn serve(&self) {
        tokio::join!(self.watches.serve(&self.cluster), self.end_what_lapsed(), self.keep_places());
    }
}

impl fmt::Debug for EtcdBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBackend")
            .field("cluster", &self.cluster)
            .field("names", &self.names)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
