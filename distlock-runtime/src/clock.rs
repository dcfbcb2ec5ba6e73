//! The only clock. Leases are judged by `CLOCK_BOOTTIME`, which goes on while the machine is suspended, as the
//! store's expiry does; the wall clock plays no part.

use std::future::poll_fn;
use std::ops::{Add, Sub};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

/// A point in time of one [`Clock`], in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Far beyond every deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// From nanoseconds of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is before.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Earlier by `span`, not below the clock's start.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl Sub for Moment {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

fn nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(span.subsec_nanos()))
}

/// Where the time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clock {
    /// `CLOCK_BOOTTIME` (Linux), else the system's monotonic clock.
    System,
    /// tokio's clock, which tests can pause and advance. Only inside a tokio runtime.
    ///
    /// For a store that is given to `testkit::paused_on`. The builder's [`backend`](crate::ManagerBuilder::backend) is no
    /// substitute: such a manager judges leases by the system's clock and renews them from a thread of its own, neither of
    /// which stands still, so paused time would move the store alone.
    Tokio,
}

impl Clock {
    /// The time now.
    #[must_use]
    pub fn now(self) -> Moment {
        match self {
            Self::System => system_now(),
            Self::Tokio => tokio_now(),
        }
    }
}

fn system_now() -> Moment {
    use rustix::time::{ClockId, clock_gettime};
    #[cfg(target_os = "linux")]
    let time = clock_gettime(ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("the time since boot is positive");
    let nanos = u64::try_from(time.tv_nsec).expect("nanoseconds are positive");
    Moment(seconds * 1_000_000_000 + nanos)
}

/// tokio's instants have no epoch: count from the first one that this process asked for on this thread's
/// runtime. A paused clock only moves forward, so a fixed far-away start keeps differences exact.
fn tokio_now() -> Moment {
    static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();
    let now = tokio::time::Instant::now().into_std();
    let epoch = *EPOCH.get_or_init(|| now);
    // A later runtime's paused clock may start before the epoch; an hour of head start keeps that apart from zero.
    const HEAD_START: Duration = Duration::from_secs(3600);
    Moment(nanos((now + HEAD_START).saturating_duration_since(epoch)))
}

/// The future's output, or `None` when it takes longer. What is ready at once pays for no timer.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = pin!(None);
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        if timer.is_none() {
            timer.set(Some(tokio::time::sleep(limit)));
        }
        timer.as_mut().as_pin_mut().expect("set above").poll(cx).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_never_goes_back() {
        let mut last = Clock::System.now();
        for _ in 0..10_000 {
            let now = Clock::System.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_clock_follows_the_paused_time() {
        let start = Clock::Tokio.now();
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(Clock::Tokio.now() - start, Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn within_ends_with_the_future_or_with_the_time() {
        let second = Duration::from_secs(1);
        let after = async |time| {
            tokio::time::sleep(time).await;
            7
        };
        assert_eq!(within(Duration::ZERO, async { 7 }).await, Some(7));
        assert_eq!(within(second, after(second / 2)).await, Some(7));
        let start = Clock::Tokio.now();
        assert_eq!(within(second, after(second * 2)).await, None);
        assert_eq!(Clock::Tokio.now() - start, second);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Moment::from_nanos(5).since(Moment::from_nanos(9)), Duration::ZERO);
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::from_nanos(5).minus(Duration::from_secs(1)), Moment::from_nanos(0));
    }
}
