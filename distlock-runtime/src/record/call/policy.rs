//! What can be chosen for work that runs once.

use std::time::Duration;

use crate::backend::{CrashPolicy, Settlement};
use crate::error::{ErrorKind, LockError};
use crate::lock::Defaults;
use crate::telemetry;
use crate::ttl::{Ttl, Wait};

/// The shortest retention: a shorter one would end before anybody can ask again.
const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// What an `Err` of the work does to its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// It may have had effects before it failed: nothing runs again under the key, who asks again gets `OUTCOME_UNKNOWN`.
    #[default]
    Unknown,
    /// It had none: the record is forgotten and the next call runs. Only for work that has no effect before its very end, such
    /// as a single database transaction.
    Release,
}

/// What dropping the future does while the work runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnCancel {
    /// The work may have had effects: nothing runs again under the key, who asks again gets `OUTCOME_UNKNOWN`.
    #[default]
    Unknown,
    /// The work had none: the record is forgotten and the next call runs.
    Release,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) retain: Duration,
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) after_crash: CrashPolicy,
    pub(crate) on_failure: OnFailure,
    pub(crate) on_cancel: OnCancel,
    pub(crate) result_limit: usize,
    pub(crate) template: &'static str,
}

impl Options {
    pub(crate) fn new(defaults: &Defaults) -> Self {
        Self {
            retain: Duration::from_secs(24 * 60 * 60),
            lease: defaults.ttl.as_duration(),
            wait: defaults.wait,
            after_crash: CrashPolicy::Reject,
            on_failure: OnFailure::default(),
            on_cancel: OnCancel::default(),
            result_limit: 1 << 20,
            template: telemetry::NO_TEMPLATE,
        }
    }

    /// The claim's length, if all makes sense.
    pub(super) fn check(&self) -> Result<Ttl, LockError> {
        if self.retain < SHORTEST_RETENTION {
            return Err(LockError::new(ErrorKind::Config, "claim")
                .detail(format!("a retention of {:?} ends before anybody can ask again", self.retain))
                .remedy("choose hours; it counts from the completion"));
        }
        Ttl::new(self.lease)
    }

    pub(super) fn unknown(&self) -> Settlement {
        Settlement::Unknown { retain: self.retain }
    }

    pub(super) fn failed(&self) -> Settlement {
        match self.on_failure {
            OnFailure::Unknown => self.unknown(),
            OnFailure::Release => Settlement::Release,
        }
    }

    pub(super) fn cancelled(&self) -> Settlement {
        match self.on_cancel {
            OnCancel::Unknown => self.unknown(),
            OnCancel::Release => Settlement::Release,
        }
    }
}
