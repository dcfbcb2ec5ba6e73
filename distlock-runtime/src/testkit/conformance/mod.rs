//! The conformance suite: what every store must do, as async functions over a [`Store`].
//!
//! A store of your own runs the whole suite with one line in a file of its `tests/` folder; each case becomes a `#[test]`
//! with a runtime and a deadline of its own:
//!
//! ```
//! # mod distlock { pub use distlock_runtime::testkit; pub mod backend { pub use distlock_runtime::{Clock, backend::*}; } }
//! use std::sync::Arc;
//! use distlock::backend::{Backend, Clock, memory::MemoryBackend};
//! use distlock::testkit::conformance::Store;
//!
//! struct Memory(String);
//!
//! impl Memory {
//!     fn new() -> Self {
//!         Self(format!("conformance-{}", fastrand::u64(..)))
//!     }
//! }
//!
//! #[async_trait::async_trait]
//! impl Store for Memory {
//!     async fn backend(&self, label: &str) -> Arc<dyn Backend> {
//!         Arc::new(MemoryBackend::named(&self.0, Clock::System, label))
//!     }
//!
//!     fn calls_outlive_their_futures(&self) -> bool {
//!         false
//!     }
//! }
//!
//! distlock::testkit::conformance!(Memory::new());
//! # fn main() {}
//! ```
//!
//! The expression makes the store anew for each case, inside of the case's runtime, so it may `.await`. Cases use keys with
//! random names, so a store that is shared between them is fine too. They come on two levels: *waist* cases call
//! [`Backend`] and [`RecordStore`](crate::backend::RecordStore) directly, *user* cases go through
//! [`LockManager`](crate::LockManager) and show that the store carries all that is promised there.
//!
//! Functions here are tests: they panic where the store falls short.

mod admin;
mod attempts;
mod capabilities;
mod case;
mod cases;
mod circles;
mod guards;
mod holders;
mod inventory;
mod kinds;
mod latches;
mod leases;
mod loss;
mod managers;
mod over_faults;
mod owners;
mod queue;
mod quota;
mod records;
mod reentry;
mod rules;
mod runner;
mod settlement;
mod together;
mod tokens;
mod tools;
mod traced;
mod waiting;

use std::sync::Arc;

use async_trait::async_trait;

use crate::backend::Backend;
use crate::key::LockKey;

pub use capabilities::concerns;
pub use case::{Case, Shortfall, check_all};
pub use over_faults::{OverFaults, Trouble};
#[doc(hidden)]
pub use runner::run_case;
pub use runner::{conformance, run};

/// A store under test.
#[async_trait]
pub trait Store: Send + Sync {
    /// A new handle to the same locks, as another process would open it, with this label. It is made for
    /// [`Clock::System`](crate::Clock::System).
    async fn backend(&self, label: &str) -> Arc<dyn Backend>;

    /// Whether a call may take effect after its future was dropped, as one that is on a network may. Then a cancelled
    /// attempt must be harmless when it arrives after its cancel.
    fn calls_outlive_their_futures(&self) -> bool {
        true
    }

    /// Whether the store keeps idempotency records.
    fn has_records(&self) -> bool {
        true
    }

    /// Whether the store has count-down latches.
    fn has_latches(&self) -> bool {
        true
    }

    /// Whether the outcome of every call reaches its caller. Where it may not (see [`OverFaults`]), the cases that judge single calls are
    /// left out.
    fn tells_every_outcome(&self) -> bool {
        true
    }

    /// Writes something under the key that isn't a lock, as a client that isn't distlock would. `false` where no other
    /// client exists.
    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        let _ = key;
        false
    }

    /// What is there now, to see that it was left alone.
    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let _ = key;
        None
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for Arc<S> {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        (**self).backend(label).await
    }

    fn calls_outlive_their_futures(&self) -> bool {
        (**self).calls_outlive_their_futures()
    }

    fn has_records(&self) -> bool {
        (**self).has_records()
    }

    fn has_latches(&self) -> bool {
        (**self).has_latches()
    }

    fn tells_every_outcome(&self) -> bool {
        (**self).tells_every_outcome()
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        (**self).put_foreign_value(key).await
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        (**self).foreign_value(key).await
    }
}

macro_rules! export {
    ([$($unused:tt)*] $($room:ident: [$($case:ident),* $(,)?])*) => {
        $(pub use $room::{$($case),*};)*
    };
}
crate::__conformance_cases!([export] []);
