//! [`Faulty`]: a store that fails by script, for tests without a server.

mod locks;
mod records;
mod script;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

pub use script::{Call, Fault};

use self::script::Script;
use crate::backend::{Backend, BackendError, RecordStore};
use crate::clock::Clock;
use crate::token::OwnerToken;

/// Wraps a store and fails its calls by script. Faults of one kind of call are met in the order in which they were given;
/// when there are none left, calls pass.
///
/// ```
/// # mod distlock { pub use distlock_runtime::{*, testkit}; pub mod backend { pub use distlock_runtime::{Clock, backend::*}; } }
/// use std::time::Duration;
/// use distlock::backend::{Clock, memory::MemoryBackend};
/// use distlock::testkit::{self, Call, Fault, Faulty};
/// use distlock::LockManager;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), distlock::LockError> {
/// let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "tests"), Clock::Tokio);
/// let locks = testkit::paused_on(store.clone(), LockManager::builder());
/// let guard = locks.mutex("job").lock().await?;
/// store.next(Call::Renew, Fault::LoseReply);
/// tokio::time::sleep(Duration::from_secs(60)).await;
/// assert!(guard.is_valid(), "a renewal whose reply is lost is tried again");
/// # Ok(())
/// # }
/// ```
pub struct Faulty {
    inner: Arc<dyn Backend>,
    clock: Clock,
    records: Option<Arc<dyn RecordStore>>,
    script: Arc<Script>,
    /// Owners whose attempts must not take effect any more: the tombstones of a store behind a network.
    cancelled: Arc<Mutex<HashSet<OwnerToken>>>,
}

impl Faulty {
    /// A store that behaves until told otherwise. `clock` is that of the store underneath.
    #[must_use]
    pub fn new(inner: impl Backend, clock: Clock) -> Arc<Self> {
        Self::over(Arc::new(inner), clock)
    }

    /// The same, over a store that is shared.
    #[must_use]
    pub fn over(inner: Arc<dyn Backend>, clock: Clock) -> Arc<Self> {
        let records = inner.clone().records();
        Arc::new(Self { inner, clock, records, script: Arc::default(), cancelled: Arc::default() })
    }

    /// The store underneath, without faults: what a rival or an administrator sees.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Backend> {
        &self.inner
    }

    /// The next call of this kind that has no fault yet meets this one.
    pub fn next(&self, call: Call, fault: Fault) {
        self.script.push(call, Some(fault));
    }

    /// The next call of this kind that has no fault yet passes.
    pub fn pass(&self, call: Call) {
        self.script.push(call, None);
    }

    /// From now on, every call of this kind that has no fault of its own meets this one.
    pub fn always(&self, call: Call, fault: Fault) {
        self.script.every(call, 1, fault);
    }

    /// From now on, each `n`-th call of this kind that has no fault of its own meets this one; zero is none.
    pub fn every(&self, call: Call, n: usize, fault: Fault) {
        self.script.every(call, n, fault);
    }

    /// All calls pass from now on.
    pub fn heal(&self) {
        self.script.clear();
    }

    /// How many calls of this kind there have been.
    #[must_use]
    pub fn count(&self, call: Call) -> usize {
        self.script.count(call)
    }

    fn is_cancelled(cancelled: &Mutex<HashSet<OwnerToken>>, owner: OwnerToken) -> bool {
        cancelled.lock().unwrap_or_else(PoisonError::into_inner).contains(&owner)
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// Runs a call as its fault says. `apply` makes it afresh; it is spawned where it outlives its caller.
async fn meet<T, F>(fault: Option<Fault>, apply: impl FnOnce() -> F) -> Result<T, BackendError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, BackendError>> + Send + 'static,
{
    match fault {
        None => apply().await,
        Some(Fault::Refuse(kind)) => Err(BackendError::refused(kind, "refused by script")),
        Some(Fault::LoseRequest) => Err(BackendError::unknown("lost by script")),
        Some(Fault::LoseReply) => {
            let _ = apply().await;
            Err(BackendError::unknown("applied, and its reply lost by script"))
        }
        Some(Fault::Delay(time)) => {
            tokio::time::sleep(time).await;
            apply().await
        }
        Some(Fault::DelayReply(time)) => {
            let outcome = apply().await;
            tokio::time::sleep(time).await;
            outcome
        }
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::HangApplied) => {
            let _ = apply().await;
            std::future::pending().await
        }
        Some(Fault::Late(time)) => {
            let call = apply();
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                drop(call.await);
            });
            std::future::pending().await
        }
    }
}
