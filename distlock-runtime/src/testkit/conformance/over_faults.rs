//! The suite over a store in trouble.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Store;
use crate::backend::{Backend, BackendErrorKind};
use crate::clock::Clock;
use crate::key::LockKey;
use crate::testkit::{Call, Fault, Faulty};

/// What happens to the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// Nothing: the suite passes over the wrapper as without it.
    None,
    /// Each call is applied a little later.
    SlowRequests,
    /// Each call is answered a little later.
    SlowReplies,
    /// Each third call that changes something is applied, and its reply lost.
    LostReplies,
    /// Each third call that changes something is lost on its way.
    LostRequests,
    /// Each third call that changes something is refused: the store isn't there just now.
    Refusals,
}

impl Trouble {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::None,
        Self::SlowRequests,
        Self::SlowReplies,
        Self::LostReplies,
        Self::LostRequests,
        Self::Refusals,
    ];

    fn set_up(self, store: &Faulty) {
        let slow = Duration::from_millis(3);
        let (calls, every, fault) = match self {
            Self::None => return,
            Self::SlowRequests => (Call::ALL, 1, Fault::Delay(slow)),
            Self::SlowReplies => (Call::ALL, 1, Fault::DelayReply(slow)),
            Self::LostReplies => (CHANGES, 3, Fault::LoseReply),
            Self::LostRequests => (CHANGES, 3, Fault::LoseRequest),
            Self::Refusals => (CHANGES, 3, Fault::Refuse(BackendErrorKind::Unavailable)),
        };
        calls.iter().for_each(|call| store.every(*call, every, fault));
    }
}

/// What managers have to repeat or to undo when it goes wrong.
const CHANGES: &[Call] = &[Call::Cancel, Call::Release, Call::Renew, Call::TryAcquire];

/// A store whose every handle is behind [`Faulty`], with the same trouble for all: the suite then shows that the store's calls are as
/// safe to repeat and to undo as managers need them to be. Where outcomes are lost, the cases that judge single calls are left out.
///
/// ```
/// # mod distlock { pub use distlock_runtime::testkit; pub mod backend { pub use distlock_runtime::{Clock, backend::*}; } }
/// use std::sync::Arc;
/// use distlock::backend::{Backend, Clock, memory::MemoryBackend};
/// use distlock::testkit::conformance::{OverFaults, Store, Trouble};
///
/// struct Mine(String);
///
/// #[async_trait::async_trait]
/// impl Store for Mine {
///     async fn backend(&self, label: &str) -> Arc<dyn Backend> {
///         Arc::new(MemoryBackend::named(&self.0, Clock::System, label))
///     }
/// }
///
/// mod over_lost_replies {
///     # use super::*;
///     distlock::testkit::conformance!(OverFaults::new(Mine("mine".to_owned()), Trouble::LostReplies));
/// }
/// # fn main() {}
/// ```
#[derive(Debug)]
pub struct OverFaults<S> {
    store: S,
    trouble: Trouble,
}

impl<S: Store> OverFaults<S> {
    /// This store in this trouble.
    #[must_use]
    pub const fn new(store: S, trouble: Trouble) -> Self {
        Self { store, trouble }
    }
}

#[async_trait]
impl<S: Store> Store for OverFaults<S> {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let store = Faulty::over(self.store.backend(label).await, Clock::System);
        self.trouble.set_up(&store);
        store
    }

    fn calls_outlive_their_futures(&self) -> bool {
        self.store.calls_outlive_their_futures()
    }

    fn has_records(&self) -> bool {
        self.store.has_records()
    }

    fn has_latches(&self) -> bool {
        self.store.has_latches()
    }

    fn tells_every_outcome(&self) -> bool {
        let loses = matches!(self.trouble, Trouble::LostReplies | Trouble::LostRequests | Trouble::Refusals);
        !loses && self.store.tells_every_outcome()
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        self.store.put_foreign_value(key).await
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        self.store.foreign_value(key).await
    }
}
