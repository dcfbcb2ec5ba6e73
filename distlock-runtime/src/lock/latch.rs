//! Count-down latches: wait until so many others are done.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Shared;
use super::budget::{Budget, SINGLE_TRY};
use super::refusals::shut_down;
use crate::backend::{BackendError, LatchSpec, LatchStore};
use crate::clock::within;
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::token::{OwnerId, OwnerToken};
use crate::ttl::{Ttl, Wait};

/// The largest number that a latch can count from.
pub const MAX_LATCH_COUNT: u32 = 100_000;

/// How long the store remembers a latch unless told otherwise.
const RETAIN: Duration = Duration::from_secs(24 * 3600);
/// The store hasn't said how many are left.
const UNSEEN: u32 = u32::MAX;
/// First and last pause between two tries while the store doesn't answer.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A latch that opens when so many counts have come, from whatever process; made by `LockManager::latch`.
///
/// The first call that counts or waits makes it, and it counts down once: open, it stays open until the store forgets it
/// ([`retain`](Self::retain)). For another round, take another key.
///
/// It doesn't know who is to count. Work whose process dies before it has counted is never counted, and those who wait are told
/// how many are left when their time is up. Where another process takes over such work, let it count with
/// [`count_down_once`](Self::count_down_once): then work that was done twice counts once.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), distlock_runtime::LockError> {
/// # let locks = distlock_runtime::LockManager::connect("memory:").await?;
/// let shards = locks.latch("reindex:2026-11", 2);
/// for shard in ["a", "b"] {
///     let done = shards.clone();
///     tokio::spawn(async move { done.count_down_once(shard).await });
/// }
/// shards.wait().await?;
/// assert_eq!(shards.count().await?, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Latch {
    shared: Arc<Shared>,
    key: Result<LockKey, LockError>,
    count: u32,
    retain: Duration,
    wait: Wait,
}

impl Latch {
    pub(crate) fn new(shared: Arc<Shared>, key: Result<LockKey, LockError>, count: u32) -> Self {
        let wait = shared.defaults.wait;
        Self { shared, key, count, retain: RETAIN, wait }
    }

    /// How long the store remembers it after the last call that counted or waited, 100 ms to 24 h (24 h unless said otherwise).
    /// Longer than the longest work that counts: one that counts later would begin a new latch.
    #[must_use]
    pub fn retain(mut self, length: Duration) -> Self {
        self.retain = length;
        self
    }

    /// How long [`wait`](Self::wait) waits (zero: it looks once), and the other calls for a store that doesn't answer (10 s unless the manager says
    /// otherwise).
    #[must_use]
    pub fn within(mut self, length: Duration) -> Self {
        self.wait = Wait::For(length);
        self
    }

    /// Wait without bound.
    #[must_use]
    pub fn forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Counts down by one; gives how many are left. Counts beyond the last do nothing.
    ///
    /// # Errors
    /// `LIMIT_MISMATCH` if the latch counts from another number, `KEY_CONFLICT` if the key is a lock, `CONNECTION` when the store
    /// didn't answer in time (it may have counted), `OUT_OF_MEMORY`, `PERMISSION`, `UNSUPPORTED` on a store without latches,
    /// `SHUTDOWN`, `CONFIG`.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it may or may not have counted. [`count_down_once`](Self::count_down_once) can be called again.
    pub async fn count_down(&self) -> Result<u32, LockError> {
        self.count_down_by(1).await
    }

    /// Counts down by `by`, at most to zero.
    ///
    /// # Errors
    /// `CONFIG` for none, or for more than the latch counts from; else as [`count_down`](Self::count_down).
    ///
    /// # Cancel safety
    /// As [`count_down`](Self::count_down).
    pub async fn count_down_by(&self, by: u32) -> Result<u32, LockError> {
        self.counted(OwnerToken::random()?, by).await
    }

    /// Counts down by one for this id (1 to 256 bytes), once however often it is called with it, by whatever process.
    ///
    /// # Errors
    /// `CONFIG` for an id that can't be; else as [`count_down`](Self::count_down).
    ///
    /// # Cancel safety
    /// Dropped before it is done, it may or may not have counted; calling it again counts once.
    pub async fn count_down_once(&self, id: impl AsRef<str>) -> Result<u32, LockError> {
        self.counted(OwnerId::new(id)?.as_token(), 1).await
    }

    /// Waits until the latch is open. Where the store can tell, it tells.
    ///
    /// # Errors
    /// `LOCK_TIMEOUT`, with how many are left, when it wasn't open in time; else as [`count_down`](Self::count_down).
    ///
    /// # Cancel safety
    /// Safe: nothing stays behind but the latch.
    pub async fn wait(&self) -> Result<(), LockError> {
        let spec = self.spec()?;
        let budget = self.budget();
        if budget.is_single() {
            return match self.count().await? {
                0 => Ok(()),
                left => Err(self.not_open(&budget, left).for_key(&spec.key)),
            };
        }
        let left = AtomicU32::new(UNSEEN);
        let store = self.store()?;
        let opened = self.insist("wait", &spec, &budget, || store.opened(&spec, &left));
        tokio::select! {
            biased;
            outcome = opened => outcome,
            () = self.shared.engine.closed() => Err(shut_down().for_key(&spec.key)),
            () = budget.used_up(budget.started) => {
                Err(match left.load(Ordering::Acquire) {
                    UNSEEN => LockError::new(ErrorKind::Connection, "wait")
                        .detail(format!("no reply within {} ms", budget.spent().as_millis())),
                    left => self.not_open(&budget, left),
                }
                .for_key(&spec.key))
            }
        }
    }

    /// How many counts are left; all of them if nobody has counted or waited yet.
    ///
    /// # Errors
    /// As [`count_down`](Self::count_down).
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    pub async fn count(&self) -> Result<u32, LockError> {
        let spec = self.spec()?;
        let store = self.store()?;
        let budget = self.budget();
        self.insist("count", &spec, &budget, || bounded(&budget, store.left(&spec))).await
    }

    async fn counted(&self, token: OwnerToken, by: u32) -> Result<u32, LockError> {
        let spec = self.spec()?;
        if by == 0 || by > self.count {
            let detail = format!("a latch of {} can't be counted down by {by}", self.count);
            return Err(wrong(detail).remedy("count down by 1 to the latch's number").for_key(&spec.key));
        }
        let store = self.store()?;
        // The same token for each try: it counts once.
        let budget = self.budget();
        self.insist("count down", &spec, &budget, || bounded(&budget, store.count_down(&spec, token, by)))
            .await
    }

    /// Tries again while the store doesn't answer and there is time.
    async fn insist<T, F>(
        &self,
        operation: &'static str,
        spec: &LatchSpec,
        budget: &Budget,
        mut call: impl FnMut() -> F,
    ) -> Result<T, LockError>
    where
        F: Future<Output = Result<T, BackendError>>,
    {
        let mut backoff = BACKOFF.0;
        loop {
            if self.shared.engine.is_closing() {
                return Err(shut_down().for_key(&spec.key));
            }
            let error = match call().await {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            let wanted = backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
            match budget.pause(budget.clock.now(), wanted) {
                Some(pause) if error.is_transient() => tokio::time::sleep(pause).await,
                _ => {
                    let error = error.into_lock_error(operation, Some(&spec.key));
                    return Err(match error.kind() {
                        ErrorKind::LimitMismatch => error.remedy("use one number everywhere, or another key"),
                        _ => error,
                    });
                }
            }
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    fn not_open(&self, budget: &Budget, left: u32) -> LockError {
        let (waited, count) = (budget.spent().as_millis(), self.count);
        LockError::new(ErrorKind::Timeout, "wait")
            .detail(format!("waited {waited} ms for a latch, {left} of {count} are left"))
            .remedy("wait for longer, or find out which work hasn't counted")
    }

    fn budget(&self) -> Budget {
        let clock = self.shared.engine.clock();
        Budget { clock, started: clock.now(), wait: self.wait }
    }

    fn spec(&self) -> Result<LatchSpec, LockError> {
        let key = self.key.clone()?;
        if self.count == 0 || self.count > MAX_LATCH_COUNT {
            let detail = format!("a latch counts from 1 to {MAX_LATCH_COUNT}, not from {}", self.count);
            return Err(wrong(detail).remedy("count in larger steps").for_key(&key));
        }
        let retain = Ttl::new(self.retain).map_err(|error| error.for_key(&key))?;
        Ok(LatchSpec { key, count: self.count, retain })
    }

    fn store(&self) -> Result<&Arc<dyn LatchStore>, LockError> {
        self.shared.engine.latches().ok_or_else(|| {
            let name = self.shared.engine.backend().name();
            LockError::new(ErrorKind::Unsupported, "latch")
                .detail(format!("the store {name} has no latches"))
                .remedy("use a store that has them beside it, such as one Redis")
        })
    }
}

/// One try, as long as it may take.
async fn bounded<T>(
    budget: &Budget,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let patience = budget.attempt(budget.clock.now(), SINGLE_TRY);
    let late = || Err(BackendError::unknown(format!("no reply within {} ms", patience.as_millis())));
    within(patience, call).await.unwrap_or_else(late)
}

fn wrong(detail: String) -> LockError {
    LockError::new(ErrorKind::Config, "latch").detail(detail)
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("key", &self.key)
            .field("count", &self.count)
            .field("retain", &self.retain)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
