//! For tests: a store with paused time, a store that fails by script, and the conformance suite for stores.
//!
//! # How to test code that takes locks
//!
//! Give it a manager on a store in memory, and let the runtime's paused time pass: an hour of renewals, waits and expiries
//! takes no time at all, and nothing depends on how busy the machine is.
//!
//! ```
//! # use distlock_runtime as distlock;
//! use std::time::Duration;
//! use distlock::{ErrorKind, LockError, LockManager, testkit};
//!
//! // The code under test.
//! async fn nightly_report(locks: &LockManager) -> Result<&'static str, LockError> {
//!     let guard = locks.mutex("report").wait(Duration::from_secs(60)).lock().await?;
//!     guard.run(async { tokio::time::sleep(Duration::from_secs(600)).await; "written" }).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! // In a `#[tokio::test(start_paused = true)]`:
//! let locks = testkit::memory_paused();
//! // One is at it for ten minutes, the other waits for one.
//! let (first, second) = tokio::join!(nightly_report(&locks), nightly_report(&locks));
//! assert_eq!(first.unwrap(), "written");
//! assert_eq!(second.unwrap_err().kind(), ErrorKind::Timeout);
//!
//! // Somebody takes the lock away in the middle.
//! let (report, _) = tokio::join!(nightly_report(&locks), async {
//!     tokio::time::sleep(Duration::from_secs(5)).await;
//!     locks.force_release("report", "a test").await
//! });
//! assert_eq!(report.unwrap_err().kind(), ErrorKind::Lost);
//! # }
//! ```
//!
//! * Code with `#[distributed_lock]` finds the manager through `locks.scope(future)`.
//! * Two processes are two managers on one store: `MemoryBackend::named` and [`paused_on`].
//! * A store that is down, slow or forgetful is [`Faulty`].
//! * `tokio::time::sleep` lets the watchdog do its work on the way; `tokio::time::advance` jumps, as a process does that was
//!   stopped, so a jump beyond the ttl loses the lock.
//!
//! # How to test a store of your own
//!
//! With [`conformance!`](crate::conformance): see [`mod@conformance`].

pub mod conformance;
mod faulty;

use std::sync::Arc;

use crate::backend::Backend;
use crate::manager::{LockManager, ManagerBuilder};

pub use conformance::conformance;
pub use faulty::{Call, Fault, Faulty};

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
    paused(LockManager::builder())
}

/// As [`memory_paused`], with the builder's ttl, wait, label and bounds.
///
/// ```
/// # use distlock_runtime as distlock;
/// use std::time::Duration;
/// use distlock::{LockManager, testkit};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// let locks = testkit::paused(LockManager::builder().label("test").ttl(Duration::from_secs(2)));
/// let guard = locks.mutex("job").lock().await?;
/// tokio::time::advance(Duration::from_secs(3)).await;
/// assert!(!guard.is_valid(), "a pause longer than two seconds");
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// Outside of a tokio runtime, and for a ttl beyond its bounds.
#[must_use]
pub fn paused(builder: ManagerBuilder) -> LockManager {
    builder.paused().connect_lazily("memory:").expect("memory: needs nothing, and the ttl is in its bounds")
}

/// As [`paused`], on a store of your own. It must use [`Clock::Tokio`](crate::Clock::Tokio).
///
/// # Panics
/// Outside of a tokio runtime, and for a ttl beyond its bounds.
#[must_use]
pub fn paused_on(backend: Arc<dyn Backend>, builder: ManagerBuilder) -> LockManager {
    builder.paused().launch(backend).expect("nothing to connect to, and the ttl is in its bounds")
}

#[cfg(test)]
mod tests {
    /// The calls of a trait or of its implementation.
    fn calls<'a>(source: &'a str, head: &str) -> Vec<&'a str> {
        let block =
            source.split_once(head).expect("the head is there").1.split("\n}").next().unwrap_or_default();
        let heads = block.lines().filter_map(|line| line.strip_prefix("    "));
        let names =
            heads.filter_map(|line| line.trim_start_matches("async ").strip_prefix("fn ")?.split('(').next());
        names.collect()
    }

    /// A call that a wrapper forgets would take the trait's default instead of the store's answer.
    #[test]
    fn wrappers_forward_every_call() {
        let trait_calls = calls(include_str!("../backend/mod.rs"), "pub trait Backend:");
        assert!(trait_calls.len() > 15 && trait_calls.contains(&"convert"), "{trait_calls:?}");
        for (source, head, exceptions) in [
            // A release is met by a fault when the engine sends it.
            (include_str!("faulty/locks.rs"), "impl Backend for Faulty", &["post_release"][..]),
            (include_str!("conformance/traced.rs"), "impl Backend for Handle", &[]),
        ] {
            let forwarded = calls(source, head);
            let forgotten: Vec<_> = trait_calls
                .iter()
                .filter(|call| !forwarded.contains(call) && !exceptions.contains(call))
                .collect();
            assert!(forgotten.is_empty(), "{head}: {forgotten:?}");
        }
        let records = calls(include_str!("../backend/record/mod.rs"), "pub trait RecordStore:");
        let forwarded = calls(include_str!("faulty/records.rs"), "impl RecordStore for Faulty");
        assert!(records.len() > 8 && records.iter().all(|call| forwarded.contains(call)), "{records:?}");
    }
}
