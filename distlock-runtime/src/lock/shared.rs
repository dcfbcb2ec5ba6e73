//! What the handles of one manager share, and the process default.

use std::sync::{Arc, OnceLock};

use super::Scope;
use super::options::Options;
use crate::backend::Mode;
use crate::backend::Quota;
use crate::engine::Engine;
use crate::error::{ErrorKind, LockError};
use crate::record::Packing;
#[cfg(feature = "idempotent")]
use crate::record::{Executions, Waiters};
use crate::telemetry;
use crate::ttl::{Ttl, Wait};

/// What acquisitions use unless they say otherwise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) ttl: Ttl,
    pub(crate) wait: Wait,
}

impl Defaults {
    pub(crate) fn options(&self) -> Options {
        Options {
            ttl: self.ttl.as_duration(),
            wait: self.wait,
            reentrant: false,
            max_hold: None,
            hold_at_least: None,
            template: telemetry::NO_TEMPLATE,
            mode: Mode::Exclusive,
            fair: false,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) defaults: Defaults,
    /// How results are packed into records.
    pub(crate) packing: Packing,
    /// What one scope of records may have.
    pub(crate) quota: Option<Quota>,
    /// The places to wait for calls in flight.
    #[cfg(feature = "idempotent")]
    pub(crate) call_waiters: Waiters,
    /// The calls under way whose callers may have gone.
    #[cfg(feature = "idempotent")]
    pub(crate) detached: Executions,
}

static INSTALLED: OnceLock<Arc<Shared>> = OnceLock::new();

/// Makes this the process default.
pub(crate) fn install(shared: &Arc<Shared>) -> Result<(), LockError> {
    INSTALLED.set(shared.clone()).map_err(|_| {
        LockError::new(ErrorKind::Config, "install")
            .detail("a lock manager is installed already")
            .remedy("install once at start; use locks.scope(future) for another store or in tests")
    })
}

/// The process default, if one is installed.
pub(crate) fn installed() -> Option<Arc<Shared>> {
    INSTALLED.get().cloned()
}

/// The manager for a function that names none: the task's scope, else the process default.
pub(crate) fn current(function: &str) -> Result<Arc<Shared>, LockError> {
    Scope::current().manager().or_else(installed).ok_or_else(|| {
        LockError::new(ErrorKind::Config, "lock")
            .detail(format!("no lock manager for this task, in {function}"))
            .remedy(
                "call locks.install() at start, wrap the call in locks.scope(…), or give the attribute locks = …; a spawned task \
                 doesn't inherit a scope: spawn locks.inherit(…)",
            )
    })
}
