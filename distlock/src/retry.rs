//! Repeats calls of your own that may succeed the next time: with growing pauses, full jitter, and a budget of time.
//!
//! A lock waits by itself for as long as you say. What it doesn't repeat is the work under it, and calls to others: a partner that
//! answers 503, a database that is failing over, a function under [`#[distributed_lock]`](macro@crate::distributed_lock) whose store was
//! away.
//!
//! ```
//! use std::time::Duration;
//! use distlock::retry::{Again, Retry};
//! use distlock::{LockError, LockManager, distributed_lock};
//!
//! #[distributed_lock(key = "order:<id>", wait = "1s")]
//! async fn ship(id: u64) -> Result<u64, LockError> {
//!     Ok(id)
//! }
//!
//! # struct Response { status: u16, retry_after: Option<Duration> }
//! # async fn partner(_: u64) -> Result<u64, Response> { Ok(1) }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), LockError> {
//! # let locks = LockManager::connect("memory:").await?;
//! # locks.scope(async {
//! // A lock's errors know whether it makes sense: busy and store down yes, wrong configuration no.
//! let shipped = Retry::new().budget(Duration::from_secs(20)).run(|| ship(42)).await?;
//!
//! // For all others you say it.
//! let told = Retry::new().run_when(|| partner(shipped), |refused| match refused.status {
//!     429 | 503 => refused.retry_after.map_or(Again::Later, Again::After),
//!     500.. => Again::Later,
//!     _ => Again::Never,
//! }).await;
//! # assert!(told.is_ok());
//! # Ok(()) }).await
//! # }
//! ```
//!
//! Repeat only what may be done twice. A call whose reply was lost may have been executed: give it an idempotency key, or write under the
//! lock's fencing token.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use tokio::time::Instant;

use crate::LockError;

/// How to repeat a call. Cheap to copy; keep one for each partner.
#[derive(Clone, Copy, Debug)]
#[must_use = "it does nothing until `run`"]
pub struct Retry {
    first: Duration,
    most: Duration,
    budget: Duration,
    attempts: usize,
}

/// Whether a call that failed is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Again {
    /// It would fail again: a wrong argument, missing rights.
    Never,
    /// After the usual pause.
    Later,
    /// Not before this time has passed, as a `Retry-After` says, and then within the usual pause: who was sent away together doesn't come
    /// back together.
    After(Duration),
}

/// An error that knows whether its call is worth repeating.
pub trait Repeatable {
    /// Whether, and when.
    fn again(&self) -> Again;
}

/// By [`is_retryable`](LockError::is_retryable).
impl Repeatable for LockError {
    fn again(&self) -> Again {
        if self.is_retryable() { Again::Later } else { Again::Never }
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::new()
    }
}

impl Retry {
    /// Pauses of up to 50 ms at first and 2 s later, for 10 s in all.
    pub const fn new() -> Self {
        Self {
            first: Duration::from_millis(50),
            most: Duration::from_secs(2),
            budget: Duration::from_secs(10),
            attempts: usize::MAX,
        }
    }

    /// The longest first pause, and the longest of all. The bound doubles from one to the other; each pause is any time up to it (full
    /// jitter), so that callers who failed together don't come again together.
    pub const fn pauses(mut self, first: Duration, most: Duration) -> Self {
        self.first = first;
        self.most = most;
        self
    }

    /// How long after the first call the last one may begin; default 10 s. If a pause would end later, the error is returned at once. A
    /// call under way is not cut short: put a time-out into it.
    pub const fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// The most calls, the first one included; default: as many as the budget has room for. 0 counts as 1.
    pub const fn attempts(mut self, attempts: usize) -> Self {
        self.attempts = attempts;
        self
    }

    /// Calls until it succeeds, the error isn't [`Repeatable`], or the budget is used up.
    ///
    /// # Errors
    /// The last call's.
    ///
    /// # Cancel safety
    /// Dropped, it drops the call under way, and makes no other: nothing runs on behind your back.
    ///
    /// # Panics
    /// Where there is no tokio runtime with timers.
    pub async fn run<T, E, F>(&self, call: impl FnMut() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
        E: Repeatable,
    {
        self.run_when(call, E::again).await
    }

    /// The same for errors that are judged here.
    ///
    /// # Errors
    /// The last call's.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// Where there is no tokio runtime with timers.
    pub async fn run_when<T, E, F>(
        &self,
        call: impl FnMut() -> F,
        mut again: impl FnMut(&E) -> Again,
    ) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        let end = Instant::now().checked_add(self.budget);
        let bounds = ExponentialBuilder::new()
            .with_min_delay(self.first.min(self.most))
            .with_max_delay(self.most)
            .with_max_times(self.attempts.saturating_sub(1));
        // The bounds are backon's, the jitter is ours: its own is never shorter than the bound.
        let pause = |error: &E, bound: Option<Duration>| {
            let jittered = bound?.mul_f64(fastrand::f64());
            let pause = match again(error) {
                Again::Never => return None,
                Again::Later => jittered,
                Again::After(least) => least.saturating_add(jittered),
            };
            let in_time = end.is_none_or(|end| Instant::now().checked_add(pause).is_some_and(|at| at <= end));
            in_time.then_some(pause)
        };
        call.retry(bounds).adjust(pause).await
    }
}
