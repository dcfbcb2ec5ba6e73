//! `memory:`, the embedded default and the reference for every other store: one process only, and it says so.
//!
//! Leases expire by the clock, waiters stand in a queue with deadlines, and a release hands the lock to the head, as on
//! a server; only the server is missing.

mod latches;
mod lock;
mod locks;
mod places;
mod records;
mod waits;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use self::locks::Table;
use self::records::Records;
use self::waits::Waits;
use super::{
    AcquireRequest, Attempt, AttemptAll, Backend, BackendError, Blocked, Guarantees, HolderState, LatchStore,
    LeaseHandle, LockState, Mode, PostedRelease, Promise, RecordStore, Released, Renewal, Turn, WaitBoard,
    Warning,
};
use crate::clock::Clock;
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How long a waiter keeps its place without asking again.
const LIVE: Duration = Duration::from_secs(3);
/// How long a lock that was handed to a waiter stays reserved for it.
const CLAIM: Duration = Duration::from_secs(3);
/// The longest sleep of a waiter between two looks.
const FALLBACK: Duration = Duration::from_secs(1);

/// The store in this process's memory.
pub struct MemoryBackend {
    clock: Clock,
    label: Arc<str>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    records: Mutex<Records>,
    waits: Mutex<Waits>,
}

static NAMED: LazyLock<Mutex<HashMap<String, Weak<Shared>>>> = LazyLock::new(Mutex::default);

impl MemoryBackend {
    /// An empty store of its own.
    #[must_use]
    pub fn new(clock: Clock, label: &str) -> Self {
        Self { clock, label: label.into(), shared: Arc::default() }
    }

    /// The store of this name, shared by all who open it in this process for as long as one of them lives.
    #[must_use]
    pub fn named(name: &str, clock: Clock, label: &str) -> Self {
        let mut named = lock(&NAMED);
        named.retain(|_, shared| shared.strong_count() > 0);
        let shared = named.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::default();
            named.insert(name.to_owned(), Arc::downgrade(&shared));
            shared
        });
        Self { clock, label: label.into(), shared }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.shared.table)
    }

    /// The promises of this store.
    #[must_use]
    pub const fn promises() -> Guarantees {
        use Promise::{Fenced, NotApplicable, Violated};
        Guarantees::new(
            "memory",
            [
                // A body between two awaits goes on after the pause, beside the one that has the lock by then.
                Violated,
                Fenced,
                NotApplicable,
                NotApplicable,
                NotApplicable,
                NotApplicable,
                NotApplicable,
                NotApplicable,
                NotApplicable,
            ],
        )
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code of others runs under these locks, so a poisoned one is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for MemoryBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBackend").field("label", &self.label).finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for MemoryBackend {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn guarantees(&self) -> Guarantees {
        Self::promises()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let now = self.clock.now();
        self.table().acquire(request, &self.label, now)
    }

    async fn try_acquire_all(&self, requests: &[AcquireRequest]) -> Result<AttemptAll, BackendError> {
        let now = self.clock.now();
        self.table().acquire_all(requests, &self.label, now)
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let bell = self.table().bell(&request.key, request.owner);
        if let Some(bell) = bell {
            let rest =
                blocked.remaining().map_or(FALLBACK, |rest| rest + Duration::from_millis(1)).min(FALLBACK);
            // A ring between the attempt and now left a permit in the bell.
            let _ = tokio::time::timeout(rest, bell.notified()).await;
        }
        // Not in the queue any more: the lock was handed over meanwhile, and the next attempt finds it.
        Ok(Turn::Again)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let now = self.clock.now();
        let mut table = self.table();
        leases
            .iter()
            .map(|lease| if table.renew(lease, now) { Renewal::Renewed { sent: now } } else { Renewal::Gone })
            .collect()
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        Ok(self.table().release(&lease.key, lease.owner, keep, self.clock.now()))
    }

    fn post_release(&self, release: PostedRelease) -> Result<(), PostedRelease> {
        self.table().release(&release.lease().key, release.lease().owner, release.keep(), self.clock.now());
        release.done();
        Ok(())
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        // No attempt can arrive late here: each is over when its future is.
        self.table().cancel(&request.key, request.owner, self.clock.now());
        Ok(())
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let now = self.clock.now();
        let mut table = self.table();
        table.check_latch(key, now)?;
        Ok(table.inspect(key, LockState::MOST_HOLDERS, now))
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        Ok(self.table().list(prefix, limit, self.clock.now()))
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let now = self.clock.now();
        let mut table = self.table();
        table.check_latch(key, now)?;
        Ok(table.force_release(key, now))
    }

    async fn convert(&self, lease: &LeaseHandle, to: Mode) -> Result<Attempt, BackendError> {
        self.table().convert(lease, to, self.clock.now())
    }

    async fn resize(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        self.table().resize(key, limit, self.clock.now())
    }

    async fn ping(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        Ok(Vec::new())
    }

    async fn serve(&self) {}

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

/// A waiter's bell: a permit is kept if nobody listens yet.
type Bell = Arc<Notify>;

/// Names a waiter.
type Owner = OwnerToken;
