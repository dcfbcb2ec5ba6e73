//! The engine on a store that fails by script, in paused time: what becomes of leases, attempts, releases and claims when replies are
//! lost, late, or refusals.

mod acquires;
mod calls;
mod claims;
mod releases;
mod renewals;
mod shutdown;
mod waiting;

use std::{sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, ErrorKind, LockError, LockEvent, LockKey, LockManager,
    backend::{BackendErrorKind, memory::MemoryBackend},
    testkit::{self, Faulty},
};
use tokio::time::Instant;

const KEY: &str = "key";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn store() -> (Arc<Faulty>, LockManager) {
    let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "here"), Clock::Tokio);
    (store.clone(), testkit::paused_on(store, LockManager::builder()))
}

/// Whether the store has the lock, past all faults.
async fn is_held(store: &Faulty) -> bool {
    store.inner().inspect(&LockKey::new(KEY).unwrap()).await.unwrap().holder.is_some()
}

/// Waits, in paused time, until something is so; how long that took.
async fn until(what: &str, mut probe: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !probe().await {
        assert!(start.elapsed() < ms(600_000), "waited in vain for: {what}");
        tokio::time::sleep(ms(5)).await;
    }
    start.elapsed()
}

#[track_caller]
fn assert_kind<T: std::fmt::Debug>(outcome: Result<T, LockError>, kind: ErrorKind) {
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

/// Everything that has been said so far.
async fn said(events: &mut distlock_runtime::Events) -> Vec<LockEvent> {
    let mut said = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(ms(1), events.next()).await {
        said.push(event);
    }
    said
}

fn refusals() -> [(BackendErrorKind, ErrorKind); 5] {
    [
        (BackendErrorKind::KeyConflict, ErrorKind::KeyConflict),
        (BackendErrorKind::OutOfMemory, ErrorKind::OutOfMemory),
        (BackendErrorKind::Permission, ErrorKind::Permission),
        (BackendErrorKind::Script, ErrorKind::Script),
        (BackendErrorKind::Unsupported, ErrorKind::Unsupported),
    ]
}
