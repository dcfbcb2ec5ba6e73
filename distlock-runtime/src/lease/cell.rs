//! The shared state of one lease: written by the engine, read by guards without locks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::Deadline;
use crate::clock::Moment;
use crate::ttl::Ttl;

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loss {
    /// The store says that it is gone or another's.
    Gone,
    /// It couldn't be renewed in time.
    Expired,
    /// Held for longer than `max_hold`.
    MaxHold,
    /// The manager shut down.
    Shutdown,
}

impl Loss {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Gone => "the store has no such lease any more (expired, deleted, or taken by force)",
            Self::Expired => "it could not be renewed before its deadline",
            Self::MaxHold => "it was held for longer than max_hold",
            Self::Shutdown => "the manager was shut down",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Expired => "expired",
            Self::MaxHold => "max_hold",
            Self::Shutdown => "shutdown",
        }
    }
}

#[derive(Debug)]
pub(crate) struct LeaseCell {
    /// The length that the store last confirmed, in milliseconds; only ever grows.
    ttl: AtomicU64,
    /// The length that the next renewal asks for: a re-entry or an extension may want more.
    wanted: AtomicU64,
    /// Nanoseconds; only ever grows.
    deadline: AtomicU64,
    loss: OnceLock<Loss>,
    /// Rung when the lease is lost, and when a hold on it ends.
    bell: Notify,
}

impl LeaseCell {
    pub(crate) fn new(ttl: Ttl, sent: Moment) -> Self {
        let deadline = Deadline::of(ttl).after(sent).as_nanos();
        let ttl = ttl.as_millis();
        Self {
            ttl: AtomicU64::new(ttl),
            wanted: AtomicU64::new(ttl),
            deadline: AtomicU64::new(deadline),
            loss: OnceLock::new(),
            bell: Notify::new(),
        }
    }

    pub(crate) fn ttl(&self) -> Ttl {
        stored(&self.ttl)
    }

    /// The length to ask for.
    pub(crate) fn wanted(&self) -> Ttl {
        stored(&self.wanted)
    }

    /// Later renewals ask for this length if it is larger. True if it is.
    pub(crate) fn want(&self, ttl: Ttl) -> bool {
        self.wanted.fetch_max(ttl.as_millis(), Ordering::AcqRel) < ttl.as_millis()
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Deadline::of(self.ttl()).valid_until(self.deadline())
    }

    /// A renewal to `ttl` sent at `sent` was confirmed. Ignored once the lease is lost: a late reply doesn't bring it back.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Ttl) {
        if self.loss.get().is_none() {
            // The deadline first: a larger ttl brings a larger guard, which belongs to the new deadline.
            self.deadline.fetch_max(Deadline::of(ttl).after(sent).as_nanos(), Ordering::AcqRel);
            self.ttl.fetch_max(ttl.as_millis(), Ordering::AcqRel);
        }
    }

    /// Marks the lease lost; the first cause stands. True if this call was the first.
    pub(crate) fn lose(&self, loss: Loss) -> bool {
        let first = self.loss.set(loss).is_ok();
        if first {
            self.bell.notify_waiters();
        }
        first
    }

    /// Lost, but not because the store said that it is gone: it may stand there until it lapses.
    pub(crate) fn may_stand(&self) -> bool {
        self.loss.get().is_some_and(|loss| *loss != Loss::Gone)
    }

    /// Lost for a reason that is known, or past its deadline by the clock: a flag is stale after a pause, a clock isn't.
    pub(crate) fn loss_at(&self, now: Moment) -> Option<Loss> {
        match self.loss.get() {
            Some(loss) => Some(*loss),
            None if now >= self.valid_until() => Some(Loss::Expired),
            None => None,
        }
    }

    pub(crate) fn ring(&self) {
        self.bell.notify_waiters();
    }

    /// Resolves when something may have changed: a loss, or the end of a hold. Interest is registered on creation of
    /// the returned future's first poll through `enable`, so check after creating it.
    pub(crate) fn bell(&self) -> &Notify {
        &self.bell
    }
}

fn stored(millis: &AtomicU64) -> Ttl {
    Ttl::new(Duration::from_millis(millis.load(Ordering::Acquire))).expect("it was a Ttl")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn the_deadline_never_goes_back_and_a_lost_lease_stays_lost() {
        let cell = LeaseCell::new(Ttl::new(Duration::from_secs(1)).unwrap(), at(1000));
        let first = cell.deadline();
        cell.renewed(at(500), cell.ttl());
        assert_eq!(cell.deadline(), first);
        cell.renewed(at(1300), cell.ttl());
        assert!(cell.deadline() > first);
        assert_eq!(cell.loss_at(at(1400)), None);
        assert!(cell.lose(Loss::Gone));
        assert!(!cell.lose(Loss::Expired));
        cell.renewed(at(5000), cell.ttl());
        assert_eq!(cell.loss_at(at(1400)), Some(Loss::Gone));
    }

    #[test]
    fn wanting_a_larger_ttl_doesnt_shorten_the_present_validity() {
        let cell = LeaseCell::new(Ttl::new(Duration::from_secs(1)).unwrap(), at(1000));
        let until = cell.valid_until();
        assert!(cell.want(Ttl::new(Duration::from_secs(3600)).unwrap()));
        assert_eq!(cell.valid_until(), until);
        cell.renewed(at(1100), cell.wanted());
        assert!(cell.valid_until() > at(3_000_000));
    }

    #[test]
    fn the_clock_decides_even_when_nobody_set_the_flag() {
        let cell = LeaseCell::new(Ttl::new(Duration::from_secs(1)).unwrap(), at(1000));
        assert_eq!(cell.loss_at(at(1000 + 2500)), Some(Loss::Expired));
    }
}
