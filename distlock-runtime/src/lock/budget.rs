//! How long an acquisition may take.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::ttl::Wait;

/// How long a single try waits for its reply at most.
pub(super) const SINGLE_TRY: Duration = Duration::from_secs(2);
/// The least that one command gets, even at the end of a budget.
const LEAST_TRY: Duration = Duration::from_millis(20);

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

    /// Waits until the budget is used up, but no longer than this; whether it is.
    pub(super) async fn used_up_within(&self, most: Duration) -> bool {
        tokio::time::sleep(self.left(self.clock.now()).min(most)).await;
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
