//! Read/write locks: many readers or one writer, first come, first served.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::options::Options;
use super::setters::common_setters;
use super::{Guard, Shared, Unlocked, acquire};
use crate::backend::Mode;
use crate::error::LockError;
use crate::key::LockKey;
use crate::ttl::Wait;

/// A read/write lock, not yet acquired; made by `LockManager::rw_lock`.
///
/// Every reader has a lease of its own. The queue is first come, first served: readers that come after a waiting writer
/// wait behind it, so a stream of readers doesn't keep writers out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// # let locks = distlock_runtime::LockManager::connect("memory:").await?;
/// let catalog = locks.rw_lock("catalog");
/// let one = catalog.clone().read().await?;
/// let other = catalog.clone().read().await?;
/// assert!(catalog.clone().try_write().await.is_err());
/// drop(one);
/// let writer = other.try_upgrade().await.expect("the only reader");
/// let reader = writer.downgrade().await?;
/// # drop(reader);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is locked before read() or write()"]
#[derive(Clone)]
pub struct RwLock {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    options: Options,
}

impl RwLock {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>) -> Self {
        let options = shared.defaults.options();
        Self { shared, key, options }
    }

    common_setters!();

    /// Code that is already under this lock may enter again: a reader to read, a writer to read or write. A reader that
    /// asks for write gets `DEADLOCK`; see [`ReadGuard::try_upgrade`].
    pub fn reentrant(mut self) -> Self {
        self.options.reentrant = true;
        self
    }

    /// Acquires a share for reading.
    ///
    /// # Errors
    /// As [`Mutex::lock`](super::Mutex::lock); `UNSUPPORTED` on a store without read/write locks.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: nothing stays behind.
    pub async fn read(self) -> Result<ReadGuard, LockError> {
        self.acquire(Mode::Read).await.map(ReadGuard)
    }

    /// Acquires all of it for writing.
    ///
    /// # Errors
    /// As [`read`](Self::read); `DEADLOCK` where the code holds the lock for reading.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn write(self) -> Result<WriteGuard, LockError> {
        self.acquire(Mode::Write).await.map(WriteGuard)
    }

    /// Tries once to read.
    ///
    /// # Errors
    /// `BUSY` while a writer has it or waits for it; else as [`read`](Self::read).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_read(mut self) -> Result<ReadGuard, LockError> {
        self.options.wait = Wait::None;
        self.read().await
    }

    /// Tries once to write.
    ///
    /// # Errors
    /// `BUSY` while anybody has it or waits for it; else as [`write`](Self::write).
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    pub async fn try_write(mut self) -> Result<WriteGuard, LockError> {
        self.options.wait = Wait::None;
        self.write().await
    }

    async fn acquire(mut self, mode: Mode) -> Result<Guard, LockError> {
        self.options.mode = mode;
        acquire::acquire(self.shared, self.key?, self.options).await
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// A share for reading; derefs to [`Guard`]. Its fencing token is that of the last write, so readers of one state agree.
#[must_use = "the share is given back as soon as the guard is dropped"]
#[derive(Debug)]
pub struct ReadGuard(pub(super) Guard);

/// All of a read/write lock; derefs to [`Guard`].
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct WriteGuard(pub(super) Guard);

/// An upgrade that didn't happen, with the share that is still held.
#[derive(Debug)]
pub struct NotUpgraded {
    /// The share.
    pub guard: ReadGuard,
    /// Why: `BUSY` while others read or wait.
    pub error: LockError,
}

impl fmt::Display for NotUpgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl Error for NotUpgraded {
    /// What is below the error whose text is already in this one's.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl From<NotUpgraded> for LockError {
    fn from(failed: NotUpgraded) -> Self {
        failed.error
    }
}

impl ReadGuard {
    /// Turns the share into the whole lock, if nobody else reads and nobody waits, with a new fencing token. There is no
    /// waiting form: two readers that waited for each other to go would wait for ever.
    ///
    /// The whole lock is another hold: a [`GuardRef`](super::GuardRef) of the share isn't valid any more. Code in a `scope` of the
    /// share is under the whole lock from then on.
    ///
    /// # Errors
    /// `BUSY` otherwise; `DEADLOCK` while other guards share the hold; `CONNECTION` (the share is kept, the store may already
    /// have the whole lock for it). The share comes back with the error.
    ///
    /// # Cancel safety
    /// The share is given back.
    pub async fn try_upgrade(self) -> Result<WriteGuard, NotUpgraded> {
        match self.0.convert(Mode::Write).await {
            Ok(guard) => Ok(WriteGuard(guard)),
            Err((guard, error)) => Err(NotUpgraded { guard: Self(guard), error }),
        }
    }

    /// Gives the share back and waits for the store's word; see [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Unlocked, LockError> {
        self.0.release().await
    }
}

impl WriteGuard {
    /// Turns the whole lock into a share for reading, without a gap: no other writer gets between. Code in a `scope` of the whole
    /// lock is under the share from then on.
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` or `UNLOCK_FAILED` if the lock is gone; `DEADLOCK` while other guards share the hold;
    /// `CONNECTION`. On an error the lock is given up: what the store made of the attempt isn't known.
    ///
    /// # Cancel safety
    /// The lock is given up.
    pub async fn downgrade(self) -> Result<ReadGuard, LockError> {
        self.0.convert(Mode::Read).await.map(ReadGuard).map_err(|(_, error)| error)
    }

    /// Releases the lock and waits for the store's word; see [`Guard::release`].
    ///
    /// # Errors
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<Unlocked, LockError> {
        self.0.release().await
    }
}

impl Deref for ReadGuard {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;
    fn deref(&self) -> &Guard {
        &self.0
    }
}
