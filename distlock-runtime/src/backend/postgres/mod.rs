//! Postgres: leases as rows of tables that the crate makes by itself, waiting in a line in the database with hand-over on release,
//! wake-ups by `NOTIFY`. Works behind poolers that give each statement another session. The tables are written down in `docs/wire.md`.
//!
//! | file | holds |
//! |---|---|
//! | `options`, `url`, `tls` | how to reach the server |
//! | `advisory/` | the other mode: advisory locks of a session |
//! | `connection/` | one connection for each runtime |
//! | `migration`, `sql/` | the tables, and the functions that do the work in the database |
//! | `statements`, `answer` | calling them, and what comes back |
//! | `locks`, `plain`, `admin`, `latches`, `waits`, `check` | the operations on locks |
//! | `records/` | those on idempotency records |
//! | `serve` | waiting: the subscription |
//! | `error` | from SQLSTATEs to error classes |

mod admin;
mod advisory;
mod answer;
mod check;
mod connection;
mod error;
mod latches;
mod locks;
mod migration;
mod options;
mod plain;
mod records;
mod serve;
mod statements;
mod tls;
mod url;
mod waits;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

pub use self::advisory::AdvisoryBackend;
pub use self::migration::MIGRATION;
pub(crate) use self::options::check_schema;
pub use self::options::{PostgresMode, PostgresOptions};

use self::connection::Connections;
use self::records::Records;
use self::statements::Statements;
use super::settings;
use super::wakeups::Wakeups;
use super::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Guarantees, HolderState, LatchStore,
    LeaseHandle, LockState, Mode, PostedRelease, Promise, RecordStore, Released, Renewal, Turn, WaitBoard,
    Warning,
};
use crate::clock::Clock;
use crate::key::LockKey;
use crate::token::OwnerToken;

/// A lease ends by the server's clock to the microsecond.
const AFTER_END: Duration = Duration::from_millis(2);

/// The store that the options' [mode](PostgresOptions::mode) says.
///
/// # Errors
/// As [`PostgresBackend::open`].
pub fn open(options: &PostgresOptions, clock: Clock) -> Result<Arc<dyn Backend>, BackendError> {
    Ok(match options.mode {
        PostgresMode::Row => PostgresBackend::open(options, clock)?,
        PostgresMode::Advisory => AdvisoryBackend::open(options, clock)?,
    })
}

/// A store in a Postgres database, with leases as rows.
pub struct PostgresBackend {
    connections: Arc<Connections>,
    statements: Arc<Statements>,
    records: Arc<Records>,
    namespace: String,
    label: String,
    channel: String,
    wakeups: Arc<Wakeups>,
}

impl PostgresBackend {
    /// A backend that connects when it is first used, and makes the tables then if it may. Needs no runtime.
    ///
    /// # Errors
    /// `Config` for a wrong namespace or schema, unreadable certificate files, or TLS without the feature `postgres-tls`.
    pub fn open(options: &PostgresOptions, clock: Clock) -> Result<Arc<Self>, BackendError> {
        let namespace = options.checked_namespace()?.to_owned();
        let connections = Arc::new(Connections::new(options, clock)?);
        let random = OwnerToken::random().map_err(|failure| settings::config(failure.to_string()))?;
        let (wakeups, channel) = (Arc::new(Wakeups::new(AFTER_END)), format!("distlock_{}", random.to_hex()));
        let records = Records::new(connections.clone(), &namespace, wakeups.clone(), &channel);
        Ok(Arc::new(Self {
            statements: Arc::new(Statements::new(&connections, &options.value_label())),
            records: Arc::new(records),
            connections,
            namespace,
            label: options.value_label(),
            channel,
            wakeups,
        }))
    }

    /// The promises of this store.
    #[must_use]
    pub const fn promises() -> Guarantees {
        use Promise::{Fenced, Holds, NotApplicable, Violated};
        Guarantees::new(
            "Postgres, rows",
            [
                Violated,
                Fenced,
                Holds,
                Holds,
                NotApplicable,
                // Unless synchronous_commit is off, which the start-up check reports.
                Holds,
                // A standby that gets the writes later may lack the last grants, and, beyond 32 of them, the sequence of the tokens: not
                // even those tell two holders apart. A synchronous one has all.
                Violated,
                Violated,
                Violated,
            ],
        )
    }

    /// A raw key stands for itself, whatever the namespace.
    fn namespace_of(&self, key: &LockKey) -> &str {
        if key.is_raw() { "" } else { &self.namespace }
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    fn name(&self) -> &'static str {
        "postgres"
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

    /// A lock that was handed on is an invitation: the next attempt finds its own row, renews it to the full ttl and
    /// draws its token, so that the lease's deadline always counts from a send time of ours.
    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        self.wakeups.turn(request.owner, blocked.remaining()).await;
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        self.renew_all(leases).await
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        self.wakeups.leave(lease.owner);
        self.give_back(lease, keep).await
    }

    fn post_release(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        self.wakeups.leave(release.lease().owner);
        self.post(release)
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.wakeups.leave(request.owner);
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

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        self.change(lease, to).await
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        self.change_limit(key, limit).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.connections.run("ping", "select 1", &[]).await.map(drop)
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        check::settings(&self.connections).await
    }

    async fn serve(&self) {
        self.work().await;
    }

    fn waits(self: Arc<Self>) -> Option<Arc<dyn WaitBoard>> {
        Some(self)
    }

    fn latches(self: Arc<Self>) -> Option<Arc<dyn LatchStore>> {
        Some(self)
    }

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        Some(Arc::clone(&self.records) as _)
    }
}

impl fmt::Debug for PostgresBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBackend")
            .field("address", &self.connections.address())
            .field("namespace", &self.namespace)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}
