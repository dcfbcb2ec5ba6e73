//! How long an acquisition may take.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::ttl::Wait;

/// How long a single try waits for its reply at most.
pub(super) const SINGLE_TRY: Duration = Duration::from_secs(2);
/// The least that one command gets, even at the end of a budget.
const LEAST_TRY: Duration = Duration::from_millis(20);

/// How long before the end of a budget the last try begins: what comes back by then is still noticed.
const LAST_TRY: Duration = Duration::from_millis(50);

/// The wait budget of an acquisition, from its start.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    pub(super) clock: Clock,
    pub(super) started: Moment,
    pub(super) wait: Wait,
}

impl Budget {
    /// One try, no waiting.
    pub(super) fn is_single(&self) -> bool {
        matches!(self.wait, Wait::None) || matches!(self.wait, Wait::For(length) if length.is_zero())
    }

    pub(super) fn spent(&self) -> Duration {
        self.clock.now() - self.started
    }

    pub(super) fn left(&self, now: Moment) -> Duration {
        match self.wait {
            Wait::None => Duration::ZERO,
            Wait::For(length) => length.saturating_sub(now - self.started),
            Wait::Forever => Duration::MAX,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left(self.clock.now()).is_zero()
    }

    /// How long a command that is sent now may take: a reply later than half the ttl is of no use.
    pub(super) fn attempt(&self, now: Moment, useful: Duration) -> Duration {
        let most = if self.is_single() { SINGLE_TRY } else { self.left(now).max(LEAST_TRY) };
        most.min(useful)
    }

    /// How long to pause before the next try: as wanted, or until just before the end for a last one. `None`: there is no other try.
    pub(super) fn pause(&self, now: Moment, wanted: Duration) -> Option<Duration> {
        if self.is_single() {
            return None;
        }
        let until_last = self.left(now).saturating_sub(LAST_TRY);
        (!until_last.is_zero()).then(|| wanted.min(until_last))
    }

    /// Waits until the budget is used up, but no longer than this from now on; whether it is.
    pub(super) async fn used_up_within(&self, now: Moment, most: Duration) -> bool {
        tokio::time::sleep(self.left(now).min(most)).await;
        self.is_over()
    }

    pub(super) async fn used_up(&self, mut now: Moment) {
        loop {
            match self.left(now) {
                Duration::ZERO => return,
                Duration::MAX => std::future::pending().await,
                left => tokio::time::sleep(left).await,
            }
            now = self.clock.now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A store that is back by then is found, whatever the pauses are.
    #[test]
    fn the_last_try_is_made_just_before_the_end() {
        let started = Moment::from_nanos(1_000_000);
        for wanted in [ms(10), ms(500), Duration::MAX] {
            let budget = Budget { clock: Clock::System, started, wait: Wait::For(ms(2_000)) };
            let mut now = started;
            while let Some(pause) = budget.pause(now, wanted) {
                assert!(!pause.is_zero() && pause <= wanted);
                now = now + pause;
            }
            assert_eq!(now - started, ms(2_000) - LAST_TRY, "pauses of {wanted:?}");
        }
    }

    #[test]
    fn a_single_try_is_the_only_one_and_forever_has_no_last_one() {
        let budget = |wait| Budget { clock: Clock::System, started: Moment::from_nanos(1), wait };
        let now = Moment::from_nanos(1);
        for wait in [Wait::None, Wait::For(Duration::ZERO), Wait::For(LAST_TRY)] {
            assert_eq!(budget(wait).pause(now, ms(1)), None, "{wait:?}");
        }
        assert_eq!(budget(Wait::Forever).pause(now + ms(1 << 40), ms(500)), Some(ms(500)));
    }
}
