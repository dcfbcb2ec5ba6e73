//! Several locks at once, all or none.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::options::{OnLost, Options};
use super::run::{Leash, Run, all, first};
use super::setters::common_setters;
use super::{Guard, Shared, together};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::token::FencingToken;
use crate::ttl::Wait;

/// Exclusive locks on several keys; made by `LockManager::mutex_all`.
///
/// The keys are sorted and each is taken once, so two tasks that want the same keys in another order don't wait for each
/// other for ever. Either all are held in the end, or none. Where nobody holds any of them, they are taken in one step, if the
/// store can.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// # let locks = distlock_runtime::LockManager::connect("memory:").await?;
/// let transfer = locks.mutex_all(["account:7", "account:3"]).lock().await?;
/// let debit = transfer.fencing_token("account:7").expect("it is one of the two");
/// for (account, fence) in transfer.fencing_tokens() {
///     println!("{account} is written under {fence}");
/// }
/// # assert_eq!(transfer.guards().len(), 2);
/// # assert_eq!(debit, transfer.guards()[1].fencing_token());
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is locked before lock()"]
#[derive(Clone)]
pub struct MutexAll {
    shared: Arc<Shared>,
    keys: Result<BTreeSet<LockKey>, LockError>,
    options: Options,
}

impl MutexAll {
    pub(crate) fn new(shared: Arc<Shared>, keys: Result<BTreeSet<LockKey>, LockError>) -> Self {
        let options = shared.defaults.options();
        Self { shared, keys, options }
    }

    common_setters!();

    /// Code that is already under one of these locks may enter again.
    pub fn reentrant(mut self) -> Self {
        self.options.reentrant = true;
        self
    }

    pub(super) fn with_options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Acquires all of them; the wait budget is for all together.
    ///
    /// First all are asked for in one step, which takes all or nothing. If somebody holds one, those up to it are taken in
    /// order, waiting for it as its own lock would, and the rest is asked for in one step again: what comes before in the
    /// order is held meanwhile, so nobody who wants many is starved by those who want few.
    ///
    /// # Errors
    /// `CONFIG` for no key at all; else as [`Mutex::lock`](super::Mutex::lock), naming the key that couldn't be had. None is
    /// held then.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time: nothing stays behind.
    pub async fn lock(self) -> Result<MultiGuard, LockError> {
        let Self { shared, keys, options } = self;
        let keys: Vec<LockKey> = keys?.into_iter().collect();
        if keys.is_empty() {
            return Err(LockError::new(ErrorKind::Config, "lock")
                .detail("a lock on several keys was given none")
                .remedy("don't ask for a lock where there is nothing to protect"));
        }
        let guards = together::take_all(&shared, &keys, options).await?;
        Ok(MultiGuard { guards })
    }

    /// Tries once, without waiting.
    ///
    /// # Errors
    /// `BUSY` when one of them is held; else as [`lock`](Self::lock).
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    pub async fn try_lock(mut self) -> Result<MultiGuard, LockError> {
        self.options.wait = Wait::None;
        self.lock().await
    }
}

impl fmt::Debug for MutexAll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutexAll")
            .field("keys", &self.keys)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Several locks held together. Each keeps its own fencing token: they protect different resources.
#[must_use = "the locks are released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// The single guards, in the order of their keys.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The fencing token of one of the keys, which may be text as where they were given; `None` for a key that isn't among
    /// them.
    #[must_use]
    pub fn fencing_token<K: TryInto<LockKey>>(&self, key: K) -> Option<FencingToken> {
        let key = key.try_into().ok()?;
        self.guards.iter().find(|guard| *guard.key() == key).map(Guard::fencing_token)
    }

    /// Each key with its fencing token, in the order of the keys.
    pub fn fencing_tokens(&self) -> impl ExactSizeIterator<Item = (&LockKey, FencingToken)> {
        self.guards.iter().map(|guard| (guard.key(), guard.fencing_token()))
    }

    /// Whether all of them are certainly still held.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// For how long all of them stay valid without further renewal.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// `Ok` while [`is_valid`](Self::is_valid).
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` for the first that is lost.
    pub fn check(&self) -> Result<(), LockError> {
        self.guards.iter().try_for_each(Guard::check)
    }

    /// Resolves when the first of them is lost.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn lost(&self) -> LockError {
        first(self.guards.iter().map(Guard::lost)).await
    }

    /// Runs a future under all of them; see [`Guard::run`].
    ///
    /// # Errors
    /// `WATCHDOG_RENEWAL_FAILED` if one of them was lost before the future was done.
    ///
    /// # Cancel safety
    /// Dropping it drops the future; the locks are still held.
    pub fn run<F: Future>(&self, future: F) -> Run<'_, F> {
        Run::new(self.leash(OnLost::Cancel), future)
    }

    pub(super) fn leash(&self, policy: OnLost) -> Leash {
        let mut holds = self.guards.iter().map(Guard::hold);
        let first = holds.next().expect("at least one key");
        Leash::of_many(first, holds, policy)
    }

    /// Releases all of them, the last one first and in one round trip, and waits for the store's word.
    ///
    /// # Errors
    /// The first failure; the others are released all the same.
    ///
    /// # Cancel safety
    /// The releases are finished in the background.
    pub async fn release(self) -> Result<(), LockError> {
        let outcomes = all(self.guards.into_iter().rev().map(Guard::release)).await;
        outcomes.into_iter().try_for_each(|outcome| outcome.map(drop))
    }
}
