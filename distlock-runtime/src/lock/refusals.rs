//! Why an acquisition comes to nothing, in words for whoever asked.

use std::time::Duration;

use super::budget::Budget;
use super::in_the_way;
use crate::backend::{BackendError, Blocked};
use crate::engine::Engine;
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::queue::Refused;

pub(super) fn busy(engine: &Engine, key: &LockKey, blocked: Blocked) -> LockError {
    let error = LockError::new(ErrorKind::Busy, "lock");
    match blocked.holder {
        Some(holder) => in_the_way::blame(engine, key, holder, error),
        None => error,
    }
}

pub(super) fn too_late() -> LockError {
    LockError::new(ErrorKind::ClockDrift, "lock")
        .detail("the grant came so late that less than half of the ttl was left; it was given back")
        .remedy("raise the ttl, or look at why the store answers slowly")
}

pub(super) fn shut_down() -> LockError {
    LockError::new(ErrorKind::Shutdown, "lock").detail("the lock manager grants nothing any more")
}

pub(super) fn refused_error(engine: &Engine, key: &LockKey, refused: &Refused) -> LockError {
    match refused {
        Refused::TooMany => LockError::new(ErrorKind::TooManyWaiters, "lock")
            .detail("too many tasks of this process wait already")
            .remedy("wait for a shorter time, or raise max_waiters"),
        Refused::Closed => shut_down(),
        Refused::Busy => {
            let error = LockError::new(ErrorKind::Busy, "lock");
            match in_the_way::here(engine, key) {
                Some(view) => in_the_way::blame_here(engine, &view, error),
                None => error.detail("another task of this process is acquiring it"),
            }
        }
    }
}

pub(super) fn budget_error(
    engine: &Engine,
    key: &LockKey,
    blocked: Option<&Blocked>,
    budget: &Budget,
) -> LockError {
    let elsewhere = blocked.and_then(|blocked| blocked.holder.clone());
    let here = if elsewhere.is_none() { in_the_way::here(engine, key) } else { None };
    if elsewhere.is_none()
        && here.is_none()
        && let Some(error) = engine.local_trouble(key)
    {
        return error.into_lock_error("lock", Some(key));
    }
    let waited = budget.clock.now() - budget.started;
    let error = LockError::new(ErrorKind::Timeout, "lock")
        .detail(format!("waited {} ms", waited.as_millis()))
        .remedy("raise wait, hold the lock for a shorter time, or treat it as busy");
    let elsewhere = elsewhere.or_else(|| engine.local_elsewhere(key));
    match (here, elsewhere) {
        (Some(view), _) => in_the_way::blame_here(engine, &view, error),
        (None, Some(holder)) => in_the_way::blame(engine, key, holder, error),
        (None, None) => error,
    }
}

/// A last try may have no time for its reply; what the store said before is the better reason.
pub(super) fn no_reply(patience: Duration, refused: Option<&BackendError>) -> BackendError {
    let before = refused.map(|refused| format!("; before that: {refused}")).unwrap_or_default();
    BackendError::unknown(format!("no reply within {} ms{before}", patience.as_millis()))
}
