//! The exclusive lock's builder.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::options::Options;
use super::setters::common_setters;
use super::{Guard, Shared, acquire};
use crate::backend::Mode;
use crate::error::LockError;
use crate::key::LockKey;
use crate::token::OwnerId;
use crate::ttl::Wait;

/// An exclusive lock, not yet acquired; made by `LockManager::mutex`.
///
/// ```no_run
/// # async fn example(locks: distlock_runtime::LockManager) -> Result<(), distlock_runtime::LockError> {
/// use std::time::Duration;
/// let guard = locks.mutex("order:42").ttl(Duration::from_secs(30)).wait(Duration::from_secs(5)).lock().await?;
/// println!("fencing token {}", guard.fencing_token());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is locked before lock() or try_lock()"]
#[derive(Clone)]
pub struct Mutex {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    options: Options,
}

impl Mutex {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>) -> Self {
        let options = shared.defaults.options();
        Self { shared, key, options }
    }

    common_setters!();

    /// Code that is already under this lock (in `guard.run`, `guard.scope` or the attribute) may enter again, without a
    /// round trip; otherwise that is a `DEADLOCK` error at once.
    pub fn reentrant(mut self) -> Self {
        self.options.reentrant = true;
        self
    }

    /// First come, first served over all processes that ask for a fair lock on this key: one place in the store's queue per
    /// task, and no hand-off inside the process. A plain acquisition may still get in between.
    pub fn fair(mut self) -> Self {
        self.options.fair = true;
        self
    }

    /// Held under an explicit owner: a text of 1 to 256 bytes, such as the id of a business transaction. Whoever asks with
    /// the same id, in whatever task or process, enters at once, also past those who wait; everybody else waits until the
    /// last hold of this owner is gone. No [`reentrant`](Self::reentrant) is needed, and waiters are served in order of
    /// arrival: with [`fair`](Self::fair) beside it, which would say nothing, the acquisition is a `CONFIG` error, as in the attribute.
    ///
    /// All holds of an owner share one fencing token. Each is a lease of its own, renewed while it is held, so a process
    /// that dies takes only its own holds along. An owner that always has a hold somewhere keeps the others out for as
    /// long; code under two holds of one owner may overlap.
    ///
    /// A key that is locked with owners is another kind of lock than a plain one (`KEY_CONFLICT`).
    pub fn owner<O>(mut self, id: O) -> Self
    where
        O: TryInto<OwnerId>,
        O::Error: Into<LockError>,
    {
        match id.try_into() {
            Ok(owner) => self.options.mode = Mode::Owned { owner },
            Err(error) => self.key = self.key.and_then(|_| Err(error.into())),
        }
        self
    }

    /// Keep the lock for at least this long, also when the work is done sooner: jobs on schedulers whose clocks differ
    /// then run once. At most the ttl.
    pub fn hold_at_least(mut self, least: Duration) -> Self {
        self.options.hold_at_least = Some(least);
        self
    }

    /// Acquires the lock, waiting for it within the budget.
    ///
    /// # Errors
    /// `LOCK_TIMEOUT` (with the holder) when it was held for the whole budget; `CONNECTION` when the store didn't answer
    /// within it; `DEADLOCK`, `TOO_MANY_WAITERS`, `KEY_CONFLICT`, `PERMISSION`, `OUT_OF_MEMORY`, `CLOCK_DRIFT`,
    /// `SHUTDOWN`, `CONFIG`; `WATCHDOG_RENEWAL_FAILED` when it would enter again and the hold is lost.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: nothing stays behind, and nothing takes effect later.
    pub async fn lock(self) -> Result<Guard, LockError> {
        acquire::acquire(self.shared, self.key?, self.options).await
    }

    /// Tries once, without waiting for a holder. A store that doesn't answer is waited for: 2 s, or half of a shorter ttl, then
    /// it is `CONNECTION`.
    ///
    /// # Errors
    /// `BUSY` (with the holder) when it is held; else as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(mut self) -> Result<Guard, LockError> {
        self.options.wait = Wait::None;
        self.lock().await
    }

    /// Acquires the lock and runs a future under it; see [`Guard::run`].
    ///
    /// # Errors
    /// As [`lock`](Self::lock) and [`Guard::run`].
    ///
    /// # Cancel safety
    /// Dropping it drops the future and releases the lock.
    pub async fn run<F: Future>(self, future: F) -> Result<F::Output, LockError> {
        let guard = self.lock().await?;
        guard.run(future).await
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
