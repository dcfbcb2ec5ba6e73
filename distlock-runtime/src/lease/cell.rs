//! The shared state of one lease: written by the engine, read by guards without locks.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Deadline;
use crate::clock::Moment;
use crate::ttl::{SharedTtl, Ttl};

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
    const ALL: [Self; 4] = [Self::Gone, Self::Expired, Self::MaxHold, Self::Shutdown];

    fn as_number(self) -> u8 {
        self as u8
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

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

/// The number of no [`Loss`].
const NOT_LOST: u8 = u8::MAX;

/// The lease isn't on its way to a task.
const COLLECTED: u8 = 0;
/// It was handed to a task that hasn't seen it yet.
const UNDER_WAY: u8 = 1;
/// It was still there when the watchdog looked.
const OVERDUE: u8 = 2;

#[derive(Debug)]
pub(crate) struct LeaseCell {
    /// The length that the store last confirmed; only ever grows.
    ttl: SharedTtl,
    /// The length that the next renewal asks for: a re-entry or an extension may want more.
    wanted: SharedTtl,
    /// Nanoseconds; only ever grows.
    deadline: AtomicU64,
    /// A [`Loss`] as a number, or [`NOT_LOST`].
    loss: AtomicU8,
    /// Whether it is on its way to a task of this process.
    parcel: AtomicU8,
    /// A command that takes the lease for its owner may still arrive.
    awaited: bool,
    /// Rung when the lease is lost, and when a hold on it ends. Made when somebody first listens.
    bell: Mutex<Option<Arc<Notify>>>,
}

impl LeaseCell {
    pub(crate) fn new(ttl: Ttl, sent: Moment) -> Self {
        let deadline = Deadline::of(ttl).after(sent).as_nanos();
        Self {
            ttl: SharedTtl::new(ttl),
            wanted: SharedTtl::new(ttl),
            deadline: AtomicU64::new(deadline),
            loss: AtomicU8::new(NOT_LOST),
            parcel: AtomicU8::new(COLLECTED),
            awaited: false,
            bell: Mutex::new(None),
        }
    }

    /// `awaited`: a command of the attempt that was granted never had a reply.
    pub(crate) fn awaited(mut self, awaited: bool) -> Self {
        self.awaited = awaited;
        self
    }

    /// Whether a command that takes the lease for its owner may still arrive.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Handed to another task of this process.
    pub(crate) fn handed_on(&self) {
        self.parcel.store(UNDER_WAY, Ordering::Release);
    }

    /// The task has it.
    pub(crate) fn collected(&self) {
        self.parcel.store(COLLECTED, Ordering::Release);
    }

    /// Whether it lay uncollected for a whole renewal period: a task that is kept without being polled must not keep the
    /// lock for ever. Asked once a period.
    pub(crate) fn is_forgotten(&self) -> bool {
        let seen = self.parcel.compare_exchange(UNDER_WAY, OVERDUE, Ordering::AcqRel, Ordering::Acquire);
        seen == Err(OVERDUE)
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl.get()
    }

    /// The length to ask for.
    pub(crate) fn wanted(&self) -> Ttl {
        self.wanted.get()
    }

    /// Later renewals ask for this length if it is larger. True if it is.
    pub(crate) fn want(&self, ttl: Ttl) -> bool {
        self.wanted.raise(ttl)
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Deadline::of(self.ttl()).valid_until(self.deadline())
    }

    /// A renewal to `ttl` sent at `sent` was confirmed. Ignored once the lease is lost: a late reply doesn't bring it back.
    pub(crate) fn renewed(&self, sent: Moment, ttl: Ttl) {
        if self.loss().is_none() {
            // The deadline first: a larger ttl brings a larger guard, which belongs to the new deadline.
            self.deadline.fetch_max(Deadline::of(ttl).after(sent).as_nanos(), Ordering::AcqRel);
            self.ttl.raise(ttl);
        }
    }

    /// Marks the lease lost; the first cause stands. True if this call was the first.
    pub(crate) fn lose(&self, loss: Loss) -> bool {
        let first = self
            .loss
            .compare_exchange(NOT_LOST, loss.as_number(), Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if first {
            self.ring();
        }
        first
    }

    /// Lost, but not because the store said that it is gone: it may stand there until it lapses.
    pub(crate) fn may_stand(&self) -> bool {
        self.loss().is_some_and(|loss| loss != Loss::Gone)
    }

    /// Lost for a reason that is known, or past its deadline by the clock: a flag is stale after a pause, a clock isn't.
    pub(crate) fn loss_at(&self, now: Moment) -> Option<Loss> {
        match self.loss() {
            Some(loss) => Some(loss),
            None if now >= self.valid_until() => Some(Loss::Expired),
            None => None,
        }
    }

    pub(crate) fn ring(&self) {
        // Who hangs up the bell after this look sees what it would have rung for.
        if let Some(bell) = self.bell_place().as_ref() {
            bell.notify_waiters();
        }
    }

    /// Rings when something may have changed: a loss, or the end of a hold. Register interest (`enable`), then look.
    pub(crate) fn bell(&self) -> Arc<Notify> {
        Arc::clone(self.bell_place().get_or_insert_default())
    }

    pub(crate) fn loss(&self) -> Option<Loss> {
        Loss::from_number(self.loss.load(Ordering::Acquire))
    }

    fn bell_place(&self) -> MutexGuard<'_, Option<Arc<Notify>>> {
        // Nothing panics under this lock.
        self.bell.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn every_loss_comes_back_from_its_number() {
        for loss in Loss::ALL {
            assert_eq!(Loss::from_number(loss.as_number()), Some(loss));
        }
        assert_eq!(Loss::from_number(NOT_LOST), None);
    }

    #[tokio::test]
    async fn a_loss_reaches_who_listens_and_who_comes_later() {
        let cell = LeaseCell::new(Ttl::new(Duration::from_secs(1)).unwrap(), at(1000));
        let bell = cell.bell();
        let mut rung = Box::pin(bell.notified());
        assert!(!rung.as_mut().enable());
        assert!(cell.lose(Loss::Gone));
        rung.await;
        assert_eq!(cell.loss_at(at(1000)), Some(Loss::Gone));
    }

    #[test]
    fn the_clock_decides_even_when_nobody_set_the_flag() {
        let cell = LeaseCell::new(Ttl::new(Duration::from_secs(1)).unwrap(), at(1000));
        assert_eq!(cell.loss_at(at(1000 + 2500)), Some(Loss::Expired));
    }
}
