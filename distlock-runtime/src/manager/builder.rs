//! Options of a manager.

use std::sync::Arc;
use std::time::Duration;

use super::{LockManager, connect};
use crate::backend::{Backend, Quota};
use crate::clock::Clock;
use crate::engine::{Engine, Host, Limits};
use crate::error::{ErrorKind, LockError};
use crate::lock::{Defaults, Shared};
use crate::record::Packing;
#[cfg(feature = "idempotent")]
use crate::record::{Executions, Waiters};
use crate::ttl::{Ttl, Wait};

/// Builds a [`LockManager`].
///
/// ```no_run
/// # async fn example() -> Result<(), distlock_runtime::LockError> {
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
///
/// let locks = distlock::LockManager::builder()
///     .namespace("billing")
///     .label("invoice-worker-3")
///     .ttl(Duration::from_secs(10))
///     .connect("redis://127.0.0.1:6379")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing happens before connect()"]
pub struct ManagerBuilder {
    pub(super) namespace: Option<String>,
    pub(super) label: Option<String>,
    pub(super) ttl: Duration,
    wait: Wait,
    limits: Limits,
    packing: Packing,
    quota: Option<Quota>,
    strict: bool,
    circles: bool,
    pub(super) clock: Clock,
    host: Host,
}

impl ManagerBuilder {
    pub(super) fn new() -> Self {
        Self {
            namespace: None,
            label: None,
            ttl: Ttl::DEFAULT.as_duration(),
            wait: Wait::default(),
            limits: Limits { waiters_per_key: 10_000, waiters: 100_000 },
            packing: Packing::new(),
            quota: None,
            strict: false,
            circles: false,
            clock: Clock::System,
            host: Host::Thread,
        }
    }

    /// Prefix of all keys in the store, 1 to 32 of `A-Z a-z 0-9 _ . -` (default `distlock`). Managers with different
    /// namespaces don't see each other's locks. A URL's `namespace=` goes first.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Who this is, for people who look at a lock (default `host:pid`). A URL's `label=` goes first. In Redis, blanks and
    /// control characters of it become `_`, and it is cut after 64 bytes.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// The ttl of locks that don't say (default 30 s).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// The wait budget of locks that don't say (default 10 s).
    pub fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How many tasks of this process may wait: for one key (default 10 000) and in all (default 100 000).
    pub fn max_waiters(mut self, per_key: usize, in_all: usize) -> Self {
        self.limits = Limits { waiters_per_key: per_key, waiters: in_all };
        self
    }

    /// How results are written into this manager's idempotency records: compressed, sealed; as they are unless told.
    pub fn packing(mut self, packing: Packing) -> Self {
        self.packing = packing;
        self
    }

    /// What one scope (a principal, a tenant) may have in this manager's idempotency records: a claim beyond it is
    /// `QUOTA_EXCEEDED`. Without it, there are no bounds. It costs a round trip a claim.
    pub fn quota(mut self, quota: Quota) -> Self {
        self.quota = Some(quota);
        self
    }

    /// Refuse to start when the store's settings can cost locks (such as an eviction policy that deletes keys), instead
    /// of warning in the log.
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Find circles of waiting tasks over processes too, not only within this one (off by default). All managers that may be
    /// in a circle must have it.
    ///
    /// A task that holds locks in its lock scope and has waited for another for half a second publishes both in the store, twice a
    /// second, and follows what the holders wait for: then one task of a circle fails with `DEADLOCK`, which names the
    /// others and their keys, after one to three seconds instead of the whole wait budget. It costs such a waiter one command
    /// for each lock it holds and one for each lock it looks at, twice a second; shorter waits, and tasks that hold nothing, cost nothing.
    pub fn detect_circles(mut self) -> Self {
        self.circles = true;
        self
    }

    /// Runs clock and background work inside the caller's runtime, for tests with paused time.
    #[cfg(feature = "testkit")]
    pub(crate) fn paused(mut self) -> Self {
        self.clock = Clock::Tokio;
        self.host = Host::Task;
        self
    }

    /// Connects by URL; see [`LockManager::connect`].
    ///
    /// # Errors
    /// As [`LockManager::connect`], and `CONFIG` from [`strict`](Self::strict).
    ///
    /// # Cancel safety
    /// Safe: nothing stays behind.
    pub async fn connect(self, url: &str) -> Result<LockManager, LockError> {
        let opened = connect::open(url, &self)?;
        self.label(opened.label).start(opened.backend).await
    }

    /// A manager on a store of your own.
    ///
    /// # Errors
    /// What the store says to a `ping`, and `CONFIG` from [`strict`](Self::strict).
    ///
    /// # Cancel safety
    /// Safe: nothing stays behind.
    pub async fn backend(self, backend: Arc<dyn Backend>) -> Result<LockManager, LockError> {
        self.start(backend).await
    }

    /// A manager that doesn't look whether the store is there: it connects at the first use.
    ///
    /// # Errors
    /// `CONFIG`.
    pub fn connect_lazily(self, url: &str) -> Result<LockManager, LockError> {
        let opened = connect::open(url, &self)?;
        self.label(opened.label).launch(opened.backend)
    }

    async fn start(self, backend: Arc<dyn Backend>) -> Result<LockManager, LockError> {
        let strict = self.strict;
        let locks = self.launch(backend)?;
        let backend = locks.shared.engine.backend();
        locks.ask("connect", None, backend.ping()).await?;
        for warning in locks.ask("connect", None, backend.check()).await? {
            if strict && warning.severe {
                return Err(LockError::new(ErrorKind::Config, "connect")
                    .detail(warning.text)
                    .remedy("mend the store's settings, or connect without strict()"));
            }
            tracing::warn!(store = backend.name(), code = warning.code, "{}", warning.text);
        }
        Ok(locks)
    }

    pub(crate) fn launch(self, backend: Arc<dyn Backend>) -> Result<LockManager, LockError> {
        let defaults = Defaults { ttl: Ttl::new(self.ttl)?, wait: self.wait };
        let label = self.label.unwrap_or_else(connect::default_label).into();
        #[cfg(feature = "idempotent")]
        let call_waiters = Waiters::new(self.limits.waiters_per_key);
        let board = if self.circles { backend.clone().waits() } else { None };
        if self.circles && board.is_none() {
            return Err(LockError::new(ErrorKind::Unsupported, "connect")
                .detail(format!("the store {} can't find circles over processes", backend.name()))
                .remedy("connect without detect_circles(): circles within one process are found anyway"));
        }
        let engine = Engine::start(backend, self.clock, label, self.limits, board, self.host)?;
        Ok(LockManager {
            shared: Arc::new(Shared {
                engine,
                defaults,
                packing: self.packing,
                quota: self.quota,
                #[cfg(feature = "idempotent")]
                call_waiters,
                #[cfg(feature = "idempotent")]
                detached: Executions::new(),
            }),
        })
    }
}
