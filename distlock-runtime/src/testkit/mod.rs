//! For tests: a store with paused time, and the conformance suite for stores.

pub mod conformance;

pub use crate::conformance;
use crate::manager::LockManager;

/// A manager on a `memory:` store of its own whose clock, lanes and watchdog live in the caller's runtime, so that
/// paused time moves leases, renewals and waits along. `tokio::time::sleep` lets the watchdog do its work on the way;
/// `tokio::time::advance` jumps, as a process does that was stopped, so a jump beyond the ttl loses the lock.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// let locks = distlock::testkit::memory_paused();
/// let guard = locks.mutex("job").lock().await?;
/// tokio::time::sleep(Duration::from_secs(3600)).await;
/// assert!(guard.is_valid(), "an hour of renewals passed in no time");
/// tokio::time::advance(Duration::from_secs(60)).await;
/// assert!(!guard.is_valid(), "a pause longer than the ttl");
/// # Ok(())
/// # }
/// ```
///
/// Use it in the code under test through `locks.scope(future)`, which makes it the manager of the attributes below.
///
/// # Panics
/// Outside of a tokio runtime.
#[must_use]
pub fn memory_paused() -> LockManager {
    LockManager::builder().paused().connect_lazily("memory:").expect("memory: needs nothing")
}
