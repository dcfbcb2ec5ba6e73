//! The deadline: the single source of truth about a lease.
//!
//! It counts from the time just *before* a command was handed to the socket and never from the reply, so a slow reply
//! shortens it. Drift covers clocks that run at different speeds; the guard lets an async body stop before another
//! client may enter.

use std::time::Duration;

use crate::clock::Moment;
use crate::ttl::Ttl;

/// How far the store's clock and ours may drift apart during one ttl: 1 % + 2 ms, as in the Redlock algorithm.
fn drift(ttl: Ttl) -> Duration {
    Duration::from_millis(ttl.as_millis().div_ceil(100) + 2)
}

/// How long before the deadline a holder stops: an async body needs a moment to.
fn guard(ttl: Ttl) -> Duration {
    drift(ttl).max(ttl.as_duration() / 20).max(Duration::from_millis(5))
}

/// The arithmetic of one ttl.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    ttl: Ttl,
}

impl Deadline {
    pub(crate) const fn of(ttl: Ttl) -> Self {
        Self { ttl }
    }

    /// When a lease that was granted or renewed by a command sent at `sent` may be gone from the store.
    pub(crate) fn after(&self, sent: Moment) -> Moment {
        (sent + self.length()).minus(drift(self.ttl))
    }

    /// When a holder with this deadline must regard the lock as lost.
    pub(crate) fn valid_until(&self, deadline: Moment) -> Moment {
        deadline.minus(guard(self.ttl))
    }

    /// The least that must be left of a lease for it to count as acquired.
    pub(crate) fn min_validity(&self) -> Duration {
        self.length() / 2
    }

    /// When to renew a lease whose last command was sent at `sent`; `jitter` in 0..1 spreads it over ±10 %.
    pub(crate) fn renew_at(&self, sent: Moment, jitter: f64) -> Moment {
        sent + (self.length() / 3).mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0))
    }

    /// How much earlier than due a renewal may be taken along in somebody else's batch.
    pub(crate) fn batch_window(&self) -> Duration {
        (self.length() / 30).min(Duration::from_secs(1))
    }

    /// How long one renewal may take: no reply within that time counts as unknown.
    pub(crate) fn attempt_timeout(&self, now: Moment, deadline: Moment) -> Duration {
        (self.length() / 6).min(deadline.since(now) / 2)
    }

    fn length(&self) -> Duration {
        self.ttl.as_duration()
    }

    /// The pause after the n-th unknown renewal in a row: 10 ms doubling to ttl/12.
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let most = (self.length() / 12).max(Duration::from_millis(1));
        Duration::from_millis(10).saturating_mul(1 << failures.saturating_sub(1).min(16)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ttl(ms: u64) -> Ttl {
        Ttl::new(Duration::from_millis(ms)).unwrap()
    }

    #[test]
    fn drift_is_one_percent_and_two_milliseconds() {
        assert_eq!(drift(ttl(30_000)), Duration::from_millis(302));
        assert_eq!(drift(ttl(101)), Duration::from_millis(4));
    }

    #[test]
    fn validity_ends_before_the_store_lets_a_rival_in() {
        for ms in [100, 150, 900, 30_000, 24 * 3_600_000] {
            let deadline = Deadline::of(ttl(ms));
            let sent = Moment::from_nanos(1_000_000_000);
            let until = deadline.valid_until(deadline.after(sent));
            assert!(until < sent + Duration::from_millis(ms));
            assert!(until > sent + Duration::from_millis(ms / 2), "{ms} ms leaves too little");
            assert!(deadline.renew_at(sent, 1.0) < until);
        }
    }

    #[test]
    fn backoff_doubles_to_a_twelfth_of_the_ttl() {
        let deadline = Deadline::of(ttl(1_200));
        let pauses: Vec<_> = (1..6).map(|n| deadline.backoff(n).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 100]);
    }
}
