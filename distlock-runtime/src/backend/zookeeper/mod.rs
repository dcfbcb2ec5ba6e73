//! `zookeeper://`: locks as ephemeral nodes of one session, in the order in which ZooKeeper numbers them.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `url`, `secure` | how to reach the servers |
//! | `names`, `line` | nodes, and what their order says about who holds |
//! | `call` | which of several calls for the same acquisition decides |
//! | `table` | what this process holds and waits for, and until when |
//! | `session` | the session, on a thread of the store's own |
//! | `bounds` | what the servers grant |
//! | `locks`, `nodes`, `waiting`, `holding` | the operations |
//! | `limit`, `owned`, `convert`, `together` | what semaphores, explicit owners, read/write locks and several locks need besides |
//! | `kept` | what stays taken after its release |
//! | `reaper` | what lapses |
//! | `admin` | looking at locks, and taking them |

mod admin;
mod bounds;
mod call;
mod convert;
mod error;
mod holding;
mod kept;
mod limit;
mod line;
mod locks;
mod names;
mod nodes;
mod options;
mod owned;
mod reaper;
mod secure;
mod session;
mod table;
mod together;
mod url;
mod waiting;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Notify, watch};
use zookeeper_client::Acls;

pub use options::{Access, ZooKeeperOptions};

use self::names::Names;
use self::session::{Lane, Link};
use self::table::Table;
use super::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Capability, Guarantees, HolderState,
    LeaseHandle, LockState, Mode, PostedRelease, Promise, Released, Renewal, Turn, Warning,
};
use crate::clock::Clock;
use crate::key::LockKey;
use crate::ttl::Ttl;

/// A store in a ZooKeeper ensemble (3.6 or later).
///
/// All locks of a manager are nodes of one session, which lives on a thread of the store's own. A holder that dies takes its locks
/// along when the servers end its session, so they are free after the **session's timeout**, whatever their ttl; one that lives but
/// doesn't renew loses them after their ttl, as everywhere. Waiters are served in order of arrival, over all processes.
pub struct ZooKeeperBackend {
    core: Arc<Core>,
    lane: OnceLock<Result<Lane, BackendError>>,
}

/// What calls and the store's own thread share.
#[derive(Debug)]
struct Core {
    options: ZooKeeperOptions,
    clock: Clock,
    label: String,
    names: Names,
    acls: Acls<'static>,
    link: watch::Sender<Link>,
    table: Mutex<Table>,
    /// What the last session was granted, in milliseconds; 0 before the first.
    granted: AtomicU64,
    /// The least that a server is known to grant, in the same unit.
    bound: Arc<AtomicU64>,
    /// Something lapses sooner than was planned.
    alarm: Notify,
    /// A session has ended, and all leases with it.
    ended: Notify,
}

impl ZooKeeperBackend {
    /// A backend that connects when it is first used. Needs no runtime.
    ///
    /// # Errors
    /// `Config` for options that make no sense together, features that aren't compiled in, or files that can't be used.
    pub fn open(options: &ZooKeeperOptions, clock: Clock) -> Result<Arc<Self>, BackendError> {
        options.check()?;
        secure::check_files(options)?;
        let core = Core {
            clock,
            label: options.node_label(),
            names: Names::new(&options.chroot, options.checked_namespace()?),
            acls: match options.chosen_access() {
                Access::Open => Acls::anyone_all(),
                Access::Creator => Acls::creator_all(),
            },
            options: options.clone(),
            link: watch::Sender::new(Link::Opening),
            table: Mutex::default(),
            granted: AtomicU64::new(0),
            bound: Arc::new(AtomicU64::new(u64::MAX)),
            alarm: Notify::new(),
            ended: Notify::new(),
        };
        Ok(Arc::new(Self { core: Arc::new(core), lane: OnceLock::new() }))
    }

    /// The promises of this store.
    #[must_use]
    pub const fn promises() -> Guarantees {
        use Promise::{Fenced, Holds, NotApplicable, Violated};
        Guarantees::new(
            "ZooKeeper",
            [Violated, Fenced, Holds, Holds, NotApplicable, Holds, Holds, Holds, Violated],
        )
        .without(&[Capability::Latches, Capability::Circles, Capability::Records])
    }

    /// The core, with its thread running.
    fn core(&self) -> Result<(&Arc<Core>, &Lane), BackendError> {
        let lane = self.lane.get_or_init(|| session::start(&self.core)).as_ref().map_err(Clone::clone)?;
        Ok((&self.core, lane))
    }
}

impl Core {
    fn table(&self) -> MutexGuard<'_, Table> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that a session had is gone.
    fn session_ended(&self, session: i64) {
        self.with_table(|table| table.session_ended(session));
        self.ended.notify_one();
    }

    /// Changes the table, and wakes the reaper if something lapses sooner now.
    fn with_table<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let (outcome, sooner) = {
            let mut table = self.table();
            let planned = table.next();
            let outcome = change(&mut table);
            (outcome, table.next() < planned)
        };
        if sooner {
            self.alarm.notify_one();
        }
        outcome
    }
}

impl fmt::Debug for ZooKeeperBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperBackend").field("options", &self.core.options).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for ZooKeeperBackend {
    fn name(&self) -> &'static str {
        "zookeeper"
    }

    fn guarantees(&self) -> Guarantees {
        Self::promises()
    }

    fn longest_ttl(&self) -> Option<Ttl> {
        let timeout = self.core.granted_timeout().unwrap_or_else(|| self.core.options.asked_timeout());
        Ttl::new((timeout * 3 / 4).clamp(Ttl::MIN, Ttl::MAX)).ok()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let (core, lane) = self.core()?;
        core.attempt(request, &lane.handle).await
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        self.core()?.0.attempt_all(requests).await
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        self.core.wait(request, blocked).await;
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        match self.core() {
            Ok((core, _)) => core.renew(leases).await,
            Err(error) => leases.iter().map(|_| Renewal::Unknown(error.clone())).collect(),
        }
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        self.core()?.0.release(lease, keep).await
    }

    fn post_release(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        match self.core() {
            Ok((core, lane)) => core.post(release, &lane.handle),
            Err(_) => Err(release),
        }
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.core()?.0.cancel(request).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        self.core()?.0.inspect(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        self.core()?.0.list(prefix, limit).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        self.core()?.0.force_release(key).await
    }

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        self.core()?.0.convert(lease, to).await
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        self.core()?.0.resize(key, limit).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.core()?.0.ping().await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        let (core, lane) = self.core()?;
        core.check(&lane.handle).await
    }

    /// Nothing: sessions live on a thread of the store's own, from its first use on.
    async fn serve(&self) {}

    async fn alarmed(&self) {
        self.core.ended.notified().await;
    }
}
