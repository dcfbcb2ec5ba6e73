//! [`LockManager`]: connects, makes locks, looks at them, shuts down.

mod builder;
mod connect;
mod shutdown;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

pub use builder::ManagerBuilder;
pub use shutdown::ShutdownReport;

use crate::backend::{BackendError, Capability, Guarantees, HolderState, Kind, LockState};
use crate::engine::LockEvent;
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lock::{
    self, AsManager, Election, Latch, Manager, Mutex, MutexAll, RwLock, Scope, Scoped, Semaphore, Shared,
};
use crate::record::Records;
#[cfg(feature = "idempotent")]
use crate::record::{Executions, Idempotent};

/// How long a look at the store may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The handle to a store of locks; cheap to clone. One per process and store is enough, also over many runtimes.
///
/// When the last handle and the last guard are gone, its background thread ends.
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<Shared>,
}

impl LockManager {
    /// Connects by URL.
    ///
    /// | URL | store |
    /// |---|---|
    /// | `memory:` | in this process, **a store of its own for each manager**: two managers don't see each other's locks |
    /// | `memory:name` | in this process, shared by all managers that open this name |
    /// | `redlock://…` | a majority of 3 to 9 independent Redis servers; the parameters are those of `RedlockOptions::from_url` |
    /// | `redis://…`, `rediss://…`, `redis+unix://…`, `redis+sentinel://…`, `redis+cluster://…` | a Redis server, the primary that Sentinels watch, or a Cluster; the parameters are those of `RedisOptions::from_url` |
    ///
    /// # Errors
    /// `CONFIG` for a URL that isn't understood (the text says which part and how to mend it) or a feature that isn't
    /// compiled in; `CONNECTION` when the store can't be reached; `PERMISSION` for wrong credentials.
    ///
    /// # Cancel safety
    /// Safe: nothing stays behind.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// The options that a URL can't give, or that you don't want in a string.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::new()
    }

    /// An exclusive lock on a key: text, or a [`LockKey`] built with `KeyWriter`. A key that can't be is reported by
    /// `lock()`.
    pub fn mutex<K>(&self, key: K) -> Mutex
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        Mutex::new(self.shared.clone(), key.try_into().map_err(Into::into))
    }

    /// Exclusive locks on several keys at once, all or none.
    pub fn mutex_all<I>(&self, keys: I) -> MutexAll
    where
        I: IntoIterator,
        I::Item: TryInto<LockKey>,
        <I::Item as TryInto<LockKey>>::Error: Into<LockError>,
    {
        let keys = keys.into_iter().map(|key| key.try_into().map_err(Into::into)).collect();
        MutexAll::new(self.shared.clone(), keys)
    }

    /// A read/write lock on a key.
    pub fn rw_lock<K>(&self, key: K) -> RwLock
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        RwLock::new(self.shared.clone(), key.try_into().map_err(Into::into))
    }

    /// An election of one leader among all who stand for the same key.
    pub fn election<K>(&self, key: K) -> Election
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        Election::new(self.shared.clone(), key.try_into().map_err(Into::into))
    }

    /// A semaphore of `limit` permits on a key. Whoever uses it must say the same limit.
    pub fn semaphore<K>(&self, key: K, limit: u32) -> Semaphore
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        Semaphore::new(self.shared.clone(), key.try_into().map_err(Into::into), limit)
    }

    /// A latch on a key that opens after `count` counts. Whoever uses it must say the same number.
    pub fn latch<K>(&self, key: K, count: u32) -> Latch
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        Latch::new(self.shared.clone(), key.try_into().map_err(Into::into), count)
    }

    /// Makes this the manager of every attribute that names none.
    ///
    /// # Errors
    /// `CONFIG` if one is installed already.
    pub fn install(&self) -> Result<(), LockError> {
        lock::install(&self.shared)
    }

    /// The installed manager.
    #[must_use]
    pub fn installed() -> Option<Self> {
        lock::installed().map(|shared| Self { shared })
    }

    /// Makes this the manager of the attributes that are called in `future`, whatever manager the code around has: for tests, or
    /// several stores in one process. The locks that the code around is under stay known below.
    pub fn scope<F: Future>(&self, future: F) -> Scoped<F> {
        Scope::current().with_manager(self.shared.clone()).wrap(future)
    }

    /// Gives a future that is about to be spawned the lock scope of the code that spawns it: its reentrant acquisitions
    /// share the holds that this code is under, for as long as those last, and its attributes use the same manager.
    ///
    /// Where [`scope`](Self::scope) sets the manager, this keeps the one that the code has already; only if it has none,
    /// this one is used.
    pub fn inherit<F: Future>(&self, future: F) -> Scoped<F> {
        Scope::current().or_manager(&self.shared).wrap(future)
    }

    /// Work that runs at most once for this key, its result kept for whoever asks again: text, or a [`LockKey`] built with
    /// `KeyWriter`. A key that can't be is reported by `run()`. The key is no lock: a mutex of the same name is another thing.
    #[cfg(feature = "idempotent")]
    pub fn idempotent<K>(&self, key: K) -> Idempotent
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        Idempotent::new(self.shared.clone(), key.try_into().map_err(Into::into))
    }

    /// The [detached](Idempotent::detach) calls of this manager, all of its handles together, to wait for them at a shutdown.
    #[cfg(feature = "idempotent")]
    #[must_use]
    pub fn executions(&self) -> Executions {
        self.shared.detached.clone()
    }

    /// The store's idempotency records.
    ///
    /// # Errors
    /// `UNSUPPORTED` if the store has none.
    pub fn records(&self) -> Result<Records, LockError> {
        Records::new(self.shared.engine.clone(), self.shared.packing.clone(), self.shared.quota)
    }

    /// What the store promises under which fault.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        self.shared.engine.backend().guarantees()
    }

    /// Reaches the store and back, within 5 s; for health checks.
    ///
    /// # Errors
    /// `CONNECTION`, `PERMISSION`.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn ping(&self) -> Result<(), LockError> {
        self.ask("ping", None, self.shared.engine.backend().ping()).await
    }

    /// A stream of what happens to this manager's locks. A listener that falls behind by more than 1024 events misses
    /// some, and is told so.
    #[must_use]
    pub fn events(&self) -> Events {
        Events { receiver: self.shared.engine.subscribe() }
    }

    /// How many leases (locks and idempotency claims) this manager holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.shared.engine.held()
    }

    /// The state of a lock: who holds it and for how long, how many wait. Hold count, token and waiting tasks are known
    /// for locks that this process holds or waits for; elsewhere a process counts as one waiter.
    ///
    /// # Errors
    /// `CONNECTION` (no answer within 5 s), `PERMISSION`, `KEY_CONFLICT`, `CONFIG` for a key that can't be.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn inspect<K>(&self, key: K) -> Result<LockState, LockError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        let key = key.try_into().map_err(Into::into)?;
        let state = self.ask("inspect", Some(&key), self.shared.engine.backend().inspect(&key)).await?;
        Ok(self.with_local(state))
    }

    /// The locks now held whose key starts with `prefix` (raw keys aside), at most 10 000, with ten of the holders of each. For people and tools: on a store
    /// with many keys it takes a while, and what changes meanwhile may be missing.
    ///
    /// # Errors
    /// `CONNECTION` (no answer within 5 s), `PERMISSION`.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn list(&self, prefix: &str) -> Result<Vec<LockState>, LockError> {
        let states = self.ask("list", None, self.shared.engine.backend().list(prefix, 10_000)).await?;
        Ok(states.into_iter().map(|state| self.with_local(state)).collect())
    }

    /// Takes a lock from whoever holds it, and hands it on. A holder of this manager learns of it at once, any other at its
    /// next renewal (every third of its ttl; its `check` and `is_valid` ask no store); what it does until then only the
    /// fencing token can stop. Logged with the reason at `warn`.
    ///
    /// Returns who held it; `None` if it was free.
    ///
    /// # Errors
    /// `CONNECTION` (no answer within 5 s: it may have happened), `PERMISSION`, `KEY_CONFLICT` for a value that isn't a lock
    /// of ours (it is left alone), `CONFIG` for a key that can't be.
    ///
    /// # Cancel safety
    /// It may or may not happen.
    pub async fn force_release<K>(&self, key: K, reason: &str) -> Result<Option<HolderState>, LockError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        let key = key.try_into().map_err(Into::into)?;
        let engine = &self.shared.engine;
        let taken = self.ask("force release", Some(&key), engine.backend().force_release(&key)).await?;
        if let Some(holder) = &taken {
            tracing::warn!(%key, holder = holder.label.as_deref(), reason, "lock released by force");
            engine.forced(&key, holder, reason);
        }
        Ok(taken)
    }

    async fn ask<T>(
        &self,
        operation: &'static str,
        key: Option<&LockKey>,
        call: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, LockError> {
        match tokio::time::timeout(PATIENCE, call).await {
            Ok(outcome) => outcome.map_err(|error| error.into_lock_error(operation, key)),
            Err(_) => {
                let error = LockError::new(ErrorKind::Connection, operation)
                    .detail(format!("no reply within {} s", PATIENCE.as_secs()));
                Err(match key {
                    Some(key) => error.for_key(key),
                    None => error,
                })
            }
        }
    }

    /// With what this process knows of its own holds, and of its tasks that wait behind one another.
    fn with_local(&self, mut state: LockState) -> LockState {
        let engine = &self.shared.engine;
        for holder in state.holder.iter_mut().chain(&mut state.holders) {
            let Some(view) = holder.owner.and_then(|owner| engine.local_hold(&state.key, owner)) else {
                continue;
            };
            holder.token = Some(view.token());
            if state.kind != Some(Kind::Owned) {
                holder.hold_count = Some(view.guards());
            }
        }
        let Some((waiting, asks)) = engine.local_waiters(&state.key) else { return state };
        // The process stands in the store's queue with one entry at most; its other tasks are behind that.
        state.waiters += waiting as u64;
        if asks && !self.guarantees().can(Capability::Queue) {
            state.waiters += 1;
        }
        state
    }
}

impl AsManager for LockManager {
    fn shared(&self) -> Manager {
        Manager(self.shared.clone())
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("backend", self.shared.engine.backend()).finish_non_exhaustive()
    }
}

/// The stream of lifecycle events; see [`LockManager::events`].
#[derive(Debug)]
pub struct Events {
    receiver: broadcast::Receiver<LockEvent>,
}

impl Events {
    /// The next event; `None` when the manager is gone. Events that were missed are skipped and logged.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> Option<LockEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "a listener to lock events fell behind");
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests;
