//! Redis, one node, the primary of a group that Sentinels watch, or a Cluster: locks as string keys with a ttl, read/write locks and semaphores as hashes with a deadline for each holder,
//! fencing tokens from a counter, waiting in a queue on the server with direct hand-over, idempotency records as hashes. The wire form is written down in `docs/wire.md`.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `credentials`, `replicated`, `url`, `several`, `sentinel_url`, `cluster_url`, `endpoint` | how to reach the server |
//! | `connection/` | one connection per server and runtime, batching; the servers of a Cluster |
//! | `keys`, `slot`, `value` | names and values in the store |
//! | `script`, `lua/`, `calls` | the scripts, and the commands that call them |
//! | `locks`, `together`, `shares`, `latches`, `waits`, `admin`, `check`, `records` | the operations |
//! | `native` | giving back without a script where the server can |
//! | `serve`, `contention` | waiting: the subscription, which keys are busy |
//! | `spread` | work on many keys, which may be in several slots |
//! | `standby` | what a grant needs where a replica may take over |
//! | `given_back` | what a replica that takes over may not have heard of |
//! | `member` | what a group of servers asks each |
//! | `error` | from replies to error classes |

mod admin;
mod calls;
mod check;
mod cluster_url;
mod connection;
mod contention;
mod credentials;
mod endpoint;
mod error;
mod given_back;
mod inventory;
mod keys;
mod latches;
mod locks;
mod member;
mod native;
mod options;
mod quota;
mod records;
mod replicated;
mod script;
mod sentinel_url;
mod serve;
mod several;
mod shares;
mod slot;
mod spread;
mod standby;
mod together;
mod url;
mod value;
mod waits;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use credentials::{CredentialProvider, Credentials};
pub use options::RedisOptions;
pub(super) use url::{REPLICATION, network_parameters};

use self::connection::Connections;
use self::contention::Contention;
use self::given_back::GivenBack;
use self::keys::Namespace;
use self::native::Native;
use self::serve::Channel;
use self::spread::any;
use self::standby::Standby;
use super::settings;
use super::wakeups::Wakeups;
use super::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Guarantees, HolderState, LatchStore,
    LeaseHandle, LockState, Mode, PostedRelease, RecordStore, Released, Renewal, Turn, WaitBoard, Warning,
};
use crate::clock::Clock;
use crate::key::LockKey;

/// The server removes a key when its millisecond is over.
const AFTER_END: Duration = Duration::from_millis(5);

/// A store on one Redis server, on the primary of a group that Sentinels watch, or on a Cluster.
///
/// Locks are safe against everything but what the [guarantees](Backend::guarantees) name; a resource that compares
/// fencing tokens stays safe under most of that too.
pub struct RedisBackend {
    connections: Connections,
    namespace: Namespace,
    label: String,
    channel: Channel,
    wakeups: Arc<Wakeups>,
    contention: Contention,
    native: Native,
    /// Tokens lie above the clock's floor each time, since a replica with an older counter may take over.
    draws_ahead: bool,
    guarantees: Guarantees,
    standby: Option<Standby>,
    /// Where another server may take over.
    given_back: Option<GivenBack>,
}

impl RedisBackend {
    /// A backend that connects when it is first used. Needs no runtime.
    ///
    /// # Errors
    /// `Config` for a wrong namespace, Sentinels without a name to ask for, unreadable certificate files, or TLS without the feature `redis-tls`.
    pub fn open(options: &RedisOptions, clock: Clock) -> Result<Arc<Self>, BackendError> {
        options.check_credentials()?;
        let namespace = Namespace::new(options.checked_namespace()?);
        options.check_replication()?;
        let connections = Connections::new(
            options.reach()?,
            options.address(),
            options.connect_limit(),
            clock,
            options.login.clone(),
            options.replication.strict_failover,
        );
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|failure| {
            settings::config("the operating system gave no random numbers").with_source(failure)
        })?;
        Ok(Arc::new(Self {
            connections,
            channel: Channel::new(&namespace, u64::from_ne_bytes(random)),
            namespace,
            label: options.value_label(),
            wakeups: Arc::new(Wakeups::new(AFTER_END)),
            contention: Contention::new(),
            native: Native::default(),
            draws_ahead: options.may_fail_over(),
            guarantees: options.guarantees(),
            standby: Standby::new(&options.replication, clock),
            given_back: options.has_replicas().then(|| GivenBack::new(clock)),
        }))
    }
}

#[async_trait]
impl Backend for RedisBackend {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees.clone()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        match &self.standby {
            None => Ok(self.attempt(request).await?.0),
            Some(standby) => Box::pin(self.attempt_kept(standby, request)).await,
        }
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        match &self.standby {
            None => Ok(self.attempt_all(requests).await?.0),
            Some(standby) => Box::pin(self.attempt_all_kept(standby, requests)).await,
        }
    }

    /// A lock that was handed on is an invitation: the next attempt finds its own value, renews it to the full ttl and
    /// draws its token, so that the lease's deadline always counts from a send time of ours.
    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        self.wakeups.turn(request.owner, blocked.remaining()).await;
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let mut renewals = self.renew_all(leases).await;
        if let Some(standby) = &self.standby {
            self.judge(standby, leases, &mut renewals).await;
        }
        renewals
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        self.forget(lease.owner);
        let told = self.telling(&lease.key);
        let released = self.give_back(lease, keep).await;
        // Not before: told again meanwhile, the lock would be found to be free, and its holder would hear that it was lost.
        self.remember(lease, keep, told);
        released
    }

    fn post_release(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        self.forget(release.lease().owner);
        let lease = release.lease();
        self.remember(lease, release.keep(), self.telling(&lease.key));
        self.post(release)
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.forget(request.owner);
        self.remember(&request.lease(), None, self.telling(&request.key));
        self.undo(request).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        self.look_at(key, LockState::MOST_HOLDERS).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        self.held(prefix, limit).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        self.take_away(key).await
    }

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        match &self.standby {
            None => Ok(self.change(lease, to).await?.0),
            Some(standby) => Box::pin(self.change_kept(standby, lease, to)).await,
        }
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        self.change_limit(key, limit).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        let nodes = self.connections.nodes().await?;
        // A part of a Cluster that is away concerns whoever needs that part.
        any(nodes.iter().map(|node| node.command("ping", || redis::cmd("PING")))).await.map(drop)
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.check_settings().await
    }

    async fn serve(&self) {
        tokio::join!(self.listen(), self.connections.follow(), self.tell_again());
    }

    fn waits(self: Arc<Self>) -> Option<Arc<dyn WaitBoard>> {
        Some(self)
    }

    fn latches(self: Arc<Self>) -> Option<Arc<dyn LatchStore>> {
        Some(self)
    }

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        Some(self)
    }
}

impl fmt::Debug for RedisBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBackend")
            .field("address", &self.connections.address())
            .field("namespace", &self.namespace)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
