//! How long to pause before the next try.

use std::time::Duration;

/// Growing pauses with full jitter: anything between nothing and the bound, so that those who failed together don't come back
/// together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Backoff {
    /// The pause before the retry with this number (the first is 0). `chance` is drawn from 0..1. What the server told is waited
    /// for in full; the jitter comes on top.
    pub(super) fn pause(&self, retry: u32, told: Option<Duration>, chance: f64) -> Duration {
        match told {
            Some(told) => told.saturating_add(self.first.min(self.longest).mul_f64(chance)),
            None => {
                let bound = self.first.saturating_mul(2_u32.saturating_pow(retry)).min(self.longest);
                bound.mul_f64(chance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(1) };

    #[test]
    fn pauses_double_up_to_the_longest_and_spread_over_all_of_it() {
        for (retry, bound) in [(0, 100), (1, 200), (3, 800), (4, 1000), (u32::MAX, 1000)] {
            assert_eq!(BACKOFF.pause(retry, None, 1.0), Duration::from_millis(bound));
            assert_eq!(BACKOFF.pause(retry, None, 0.0), Duration::ZERO);
        }
    }

    #[test]
    fn what_the_server_told_is_never_undercut() {
        let told = Some(Duration::from_secs(3));
        assert_eq!(BACKOFF.pause(7, told, 0.0), Duration::from_secs(3));
        assert_eq!(BACKOFF.pause(7, told, 1.0), Duration::from_millis(3100));
    }
}
