//! What can be chosen per acquisition.

use std::borrow::Cow;
use std::time::Duration;

use crate::backend::Mode;
use crate::engine::Ask;
use crate::error::{ErrorKind, LockError};
use crate::ttl::{Ttl, Wait};

/// What happens to the work when its lock is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnLost {
    /// The body is dropped at its next await, and the call returns `WATCHDOG_RENEWAL_FAILED`.
    #[default]
    Cancel,
    /// The body goes on and may watch its guard's `lost()`; its own result is returned.
    Signal,
    /// The body goes on, and nothing is said but in the log: for locks that only save work.
    Ignore,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) ttl: Duration,
    pub(crate) wait: Wait,
    pub(crate) reentrant: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) template: &'static str,
    pub(crate) mode: Mode,
    pub(crate) fair: bool,
}

/// Options that were found to make sense together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub(crate) ttl: Ttl,
    pub(crate) options: Options,
}

impl Checked {
    /// The lease cut to what the store can promise.
    pub(super) fn within(self, longest: Option<Ttl>) -> Self {
        Self { ttl: longest.map_or(self.ttl, |longest| self.ttl.min(longest)), ..self }
    }

    /// The same when the store has learned what it can promise. False if that is no less than was asked for.
    pub(super) fn cut(&mut self, longest: Option<Ttl>) -> bool {
        let before = self.ttl;
        *self = self.within(longest);
        self.ttl < before
    }

    /// What is asked of the queues.
    pub(super) fn ask(&self) -> Ask {
        let Self { ttl, options } = *self;
        Ask {
            ttl,
            template: options.template,
            max_hold: options.max_hold,
            hold_at_least: options.hold_at_least,
            mode: options.mode,
            fair: options.fair,
        }
    }
}

impl Options {
    pub(crate) fn check(self) -> Result<Checked, LockError> {
        let ttl = Ttl::new(self.ttl)?;
        if let Mode::Permits { limit, weight } = self.mode {
            if limit == 0 {
                return Err(wrong("a semaphore of no permits", "give the semaphore at least one permit"));
            }
            if weight == 0 || weight > limit {
                return Err(wrong(
                    format!("a hold takes at least one permit, and at most all: {weight} of {limit}"),
                    "ask for 1 to limit permits",
                ));
            }
        }
        // As the attribute refuses it.
        if let (Mode::Owned { .. }, true) = (self.mode, self.fair) {
            return Err(wrong(
                "a lock with an owner is served in the order of arrival anyway, so fair says nothing",
                "leave fair out",
            ));
        }
        if self.max_hold.is_some_and(|most| most.is_zero()) {
            return Err(wrong("max_hold is zero", "give max_hold a positive length, or leave it out"));
        }
        if let Some(least) = self.hold_at_least
            && least > ttl.as_duration()
        {
            return Err(wrong(
                "hold_at_least is longer than the ttl, so it couldn't be kept if this process died",
                "raise the ttl to at least hold_at_least",
            ));
        }
        if let (Some(least), Some(most)) = (self.hold_at_least, self.max_hold)
            && least > most
        {
            return Err(wrong(
                "hold_at_least is longer than max_hold",
                "raise max_hold or lower hold_at_least",
            ));
        }
        Ok(Checked { ttl, options: self })
    }
}

fn wrong(detail: impl Into<Cow<'static, str>>, remedy: &'static str) -> LockError {
    LockError::new(ErrorKind::Config, "lock").detail(detail).remedy(remedy)
}
