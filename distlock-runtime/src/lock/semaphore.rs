//! Semaphores: so many at a time, each permit a lease.

use std::fmt;
use std::sync::Arc;

use super::options::Options;
use super::setters::common_setters;
use super::{Guard, Shared, acquire};
use crate::backend::Mode;
use crate::error::LockError;
use crate::key::LockKey;
use crate::ttl::Wait;

/// A semaphore of `limit` permits; made by `LockManager::semaphore`.
///
/// Every hold is a lease with a deadline of its own, so the permits of a holder that died come back within its ttl. The
/// queue is first come, first served: a hold that wants many permits isn't passed by those that want few.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// # let locks = distlock_runtime::LockManager::connect("memory:").await?;
/// let gpus = locks.semaphore("gpu", 4);
/// let three = gpus.clone().acquire_many(3).await?;
/// let one = gpus.clone().acquire().await?;
/// assert!(gpus.try_acquire().await.unwrap_err().is_busy());
/// # drop((three, one));
/// # Ok(())
/// # }
/// ```
#[must_use = "no permit is taken before acquire()"]
#[derive(Clone)]
pub struct Semaphore {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    limit: u32,
    options: Options,
}

impl Semaphore {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>, limit: u32) -> Self {
        let options = shared.defaults.options();
        Self { shared, key, limit, options }
    }

    common_setters!();

    /// Takes one permit.
    ///
    /// # Errors
    /// `LIMIT_MISMATCH` if the semaphore is in use with another limit; `UNSUPPORTED` on a store without semaphores; else as
    /// [`Mutex::lock`](super::Mutex::lock).
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: nothing stays behind.
    pub async fn acquire(self) -> Result<Guard, LockError> {
        self.acquire_many(1).await
    }

    /// Takes `weight` permits at once.
    ///
    /// # Errors
    /// `CONFIG` for none, or for more than there are; else as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn acquire_many(mut self, weight: u32) -> Result<Guard, LockError> {
        self.options.mode = Mode::Permits { limit: self.limit, weight };
        acquire::acquire(self.shared, self.key?, self.options).await
    }

    /// Tries once to take one permit.
    ///
    /// # Errors
    /// `BUSY` when none is free or somebody waits; else as [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Guard, LockError> {
        self.try_acquire_many(1).await
    }

    /// Tries once to take `weight` permits.
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire_many(mut self, weight: u32) -> Result<Guard, LockError> {
        self.options.wait = Wait::None;
        self.acquire_many(weight).await
    }

    /// Gives a semaphore that is in use another limit; acquisitions with the old one fail from then on. Holds beyond a lower
    /// limit stay until they end. False if it wasn't in use: then the next acquisition sets the limit anyway.
    ///
    /// # Errors
    /// `CONFIG` for a limit of 0; `KEY_CONFLICT` if the key is another kind of lock; `CONNECTION`, `UNSUPPORTED`.
    ///
    /// # Cancel safety
    /// It may or may not happen.
    pub async fn resize(self, limit: u32) -> Result<bool, LockError> {
        let key = self.key?;
        let options = Options { mode: Mode::Permits { limit, weight: 1 }, ..self.options };
        options.check().map_err(|error| error.for_key(&key))?;
        let call = self.shared.engine.backend().resize(&key, limit);
        acquire::answered("resize", &key, call).await
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("key", &self.key)
            .field("limit", &self.limit)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
