//! Advisory locks of one session for each manager. They end with the session, so a dead process leaves nothing behind, whatever the
//! ttl; what isn't renewed in time is given back by the manager itself. Behind a pooler they would be shared: it is refused.
//!
//! * `session` - the direct connection that holds the locks, on a thread of its own
//! * `locks`, `table` - the operations, and what this session holds
//! * `upkeep` - what keeps these two in step

mod locks;
mod session;
mod table;
mod upkeep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use self::locks::Keeper;
use self::session::Thread;
use super::options::PostgresOptions;
use super::statements::AdvisoryStatements;
use super::{PostgresBackend, answer, check};
use crate::backend::{
    AcquireRequest, Attempt, Backend, BackendError, BackendErrorKind, Blocked, Capability, Guarantees,
    HolderState, LeaseHandle, LockState, Promise, RecordStore, Released, Renewal, Turn, Warning,
};
use crate::clock::Clock;
use crate::key::LockKey;
use crate::ttl::Ttl;

/// Pauses between two attempts of one that waits: nobody tells it.
const RETRY: std::ops::Range<u64> = 20..120;

/// How long another manager may take to give up a lock that is taken from it.
const GIVEN_UP: Duration = Duration::from_secs(2);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// A store in a Postgres database, with advisory locks.
pub struct AdvisoryBackend {
    /// Records are rows in any mode.
    rows: Arc<PostgresBackend>,
    keeper: Arc<Keeper>,
    thread: Thread,
}

impl AdvisoryBackend {
    /// A backend that connects when it is first used. Needs no runtime.
    ///
    /// # Errors
    /// As [`PostgresBackend::open`](super::PostgresBackend::open).
    pub fn open(options: &PostgresOptions, clock: Clock) -> Result<Arc<Self>, BackendError> {
        let namespace = options.checked_namespace()?;
        let rows = PostgresBackend::open(options, clock)?;
        let connections = Arc::clone(&rows.connections);
        let statements = AdvisoryStatements::new(&connections);
        let (keeper, revoked) = Keeper::new(connections, statements, namespace, options.value_label(), clock);
        let (keeper, thread) = (Arc::new(keeper), Thread::start()?);
        let sweeper = Arc::clone(&keeper);
        thread.spawn(async move { sweeper.sweep(revoked).await });
        Ok(Arc::new(Self { rows, keeper, thread }))
    }

    /// The promises of this store.
    #[must_use]
    pub const fn promises() -> Guarantees {
        use Promise::{Fenced, Holds, NotApplicable, Violated};
        Guarantees::new(
            "Postgres, advisory",
            [
                // A process that is stopped keeps its session. A machine that is suspended loses it.
                Violated,
                Fenced,
                Holds,
                // Its locks end with the server; the holder learns of it when its connection ends.
                Violated,
                NotApplicable,
                Violated,
                Violated,
                Holds,
                Violated,
            ],
        )
        .without(&[
            Capability::Queue,
            Capability::Fair,
            Capability::ReadWrite,
            Capability::Semaphore,
            Capability::Owners,
            Capability::Latches,
            Capability::Circles,
        ])
    }

    async fn states(&self, operation: &str, sql: &str, names: Sought<'_>) -> Result<Vec<Row>, BackendError> {
        let connections = &self.keeper.connections;
        let reply = match names {
            Sought::Keys(namespace, names, numbers) => {
                let parameters: [super::connection::Parameter<'_>; 3] =
                    [(&namespace, Type::TEXT), (&names, Type::TEXT_ARRAY), (&numbers, Type::INT8_ARRAY)];
                connections.run(operation, sql, &parameters).await?
            }
            Sought::Prefix(namespace, prefix, limit) => {
                let parameters: [super::connection::Parameter<'_>; 3] =
                    [(&namespace, Type::TEXT), (&prefix, Type::TEXT), (&limit, Type::INT8)];
                connections.run(operation, sql, &parameters).await?
            }
        };
        Ok(reply.rows)
    }
}

enum Sought<'a> {
    Keys(&'a str, &'a [&'a str], &'a [i64]),
    Prefix(&'a str, &'a str, i64),
}

/// A row of `advisory_state`: name, held, owner, label, remaining ms, process of the server.
fn state(key: LockKey, row: &Row) -> Result<LockState, BackendError> {
    let holder = match answer::column(row, 1)? {
        true => Some(answer::holder(row, 2)?),
        false => None,
    };
    Ok(LockState::new(key, holder, 0))
}

#[async_trait]
impl Backend for AdvisoryBackend {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn guarantees(&self) -> Guarantees {
        Self::promises()
    }

    fn longest_ttl(&self) -> Option<Ttl> {
        Some(locks::longest())
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let (keeper, request) = (Arc::clone(&self.keeper), request.clone());
        self.thread.run(async move { keeper.attempt(&request).await }).await
    }

    async fn turn(&self, _: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let pause = Duration::from_millis(fastrand::u64(RETRY));
        // A holder that is stopped or cut off keeps its lock beyond what its row says.
        let remaining = blocked.remaining().filter(|remaining| !remaining.is_zero());
        let lapse = remaining.map_or(pause, |remaining| remaining + Duration::from_millis(5));
        tokio::time::sleep(pause.min(lapse)).await;
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let (keeper, own) = (Arc::clone(&self.keeper), leases.to_vec());
        match self.thread.run(async move { Ok(keeper.renew(&own).await) }).await {
            Ok(renewals) => renewals,
            Err(failure) => vec![Renewal::Unknown(failure); leases.len()],
        }
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        let (keeper, key, owner) = (Arc::clone(&self.keeper), lease.key.clone(), lease.owner);
        self.thread.run(async move { keeper.give_back(&key, owner, keep).await }).await
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        let (keeper, request) = (Arc::clone(&self.keeper), request.clone());
        self.thread.run(async move { keeper.undo(&request).await }).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let sought =
            Sought::Keys(self.keeper.namespace_of(key), &[key.as_str()], &[self.keeper.number_of(key)]);
        let rows = self.states("inspect", &self.keeper.statements.state, sought).await?;
        match rows.first() {
            Some(row) => state(key.clone(), row),
            None => Ok(LockState::new(key.clone(), None, 0)),
        }
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let sought = Sought::Prefix(&self.keeper.namespace, prefix, limit);
        let rows = self.states("list", &self.keeper.statements.list, sought).await?;
        let mut states = Vec::with_capacity(rows.len());
        for row in &rows {
            // What stands there came from a key once.
            if let Ok(key) = LockKey::new(answer::column::<String>(row, 0)?) {
                states.push(state(key, row)?);
            }
        }
        Ok(states)
    }

    /// Another manager is asked to give it up, and does so at once unless it is stopped.
    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let (keeper, own) = (Arc::clone(&self.keeper), key.clone());
        let taken = self.thread.run(async move { Ok(keeper.take_away(&own).await) }).await?;
        if let Some(held) = taken {
            return Ok(Some(held.state(&self.keeper.label, self.keeper.clock.now())));
        }
        let Some(holder) = self.inspect(key).await?.holder else { return Ok(None) };
        if let Some(owner) = holder.owner {
            let owner = owner.to_hex();
            let parameters: [super::connection::Parameter<'_>; 2] =
                [(&self.keeper.channel, Type::TEXT), (&owner, Type::TEXT)];
            let sql = "select pg_notify($1, $2)::text";
            self.keeper.connections.run("force release", sql, &parameters).await?;
        }
        let start = self.keeper.clock.now();
        while self.keeper.clock.now().since(start) < GIVEN_UP {
            tokio::time::sleep(LOOK).await;
            if self.inspect(key).await?.holder.is_none_or(|now| now.owner != holder.owner) {
                return Ok(Some(holder));
            }
        }
        Err(BackendError::refused(
            BackendErrorKind::Unavailable,
            format!(
                "the session that holds it ({}) doesn't give it up; ended by pg_terminate_backend, it gives up all its locks",
                holder.label.as_deref().unwrap_or("not one of distlock's")
            ),
        ))
    }

    async fn ping(&self) -> Result<(), BackendError> {
        let keeper = Arc::clone(&self.keeper);
        self.thread.run(async move { keeper.sessions.get(&keeper.connections).await.map(drop) }).await?;
        self.keeper.connections.run("ping", "select 1", &[]).await.map(drop)
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        check::settings(&self.keeper.connections).await
    }

    async fn serve(&self) {
        self.rows.serve().await;
    }

    async fn alarmed(&self) {
        self.keeper.sessions.ended.notified().await;
    }

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        Arc::clone(&self.rows).records()
    }
}

impl fmt::Debug for AdvisoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvisoryBackend")
            .field("address", &self.keeper.connections.address())
            .field("namespace", &self.keeper.namespace)
            .field("label", &self.keeper.label)
            .finish_non_exhaustive()
    }
}
