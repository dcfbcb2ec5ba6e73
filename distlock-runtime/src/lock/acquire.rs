//! From "I want this lock" to a guard: re-entry, the local queue, and the attempts at the store within the wait budget.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use super::budget::{Budget, SINGLE_TRY};
use super::noting::Noting;
use super::options::{Checked, Options};
use super::refusals::{budget_error, busy, no_reply, refused_error, shut_down, too_late};
use super::{Guard, Scope, Shared};
use crate::backend::{Applied, Attempt, BackendError, Blocked, Grant, Mode, Turn};
use crate::clock::{Moment, within};
use crate::engine::{Delivery, Driver, Engine, Hold, Patient, Place, Post, Waiting};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::lease::Deadline;
use crate::queue::Refused;
use crate::telemetry;

/// The longest pause between two tries while the store doesn't answer.
const MAX_BACKOFF: Duration = Duration::from_millis(500);
/// A task of this process that asks the store and does nothing for so long isn't polled, or the store doesn't answer it: the next
/// one takes its turn.
const STUCK: Duration = Duration::from_secs(3);

/// Acquires, and tells telemetry how it went.
pub(super) async fn acquire(shared: Arc<Shared>, key: LockKey, options: Options) -> Result<Guard, LockError> {
    let clock = shared.engine.clock();
    let budget = Budget { clock, started: clock.now(), wait: options.wait };
    acquire_from(&shared, &key, options, budget, budget.started, &[]).await
}

/// The same within a budget that others use too, by a call that holds these guards already.
pub(super) async fn acquire_within(
    shared: &Shared,
    key: &LockKey,
    options: Options,
    budget: Budget,
    beside: &[Guard],
) -> Result<Guard, LockError> {
    acquire_from(shared, key, options, budget, budget.clock.now(), beside).await
}

async fn acquire_from(
    shared: &Shared,
    key: &LockKey,
    options: Options,
    budget: Budget,
    started: Moment,
    beside: &[Guard],
) -> Result<Guard, LockError> {
    let clock = budget.clock;
    let template = options.template;
    let span = tracing::info_span!("distlock.wait", lock = template, key = tracing::field::Empty);
    if tracing::enabled!(tracing::Level::DEBUG) {
        span.record("key", tracing::field::display(&key));
    }
    let beside = beside.iter().map(|guard| guard.hold().view().clone()).collect();
    let noting = Noting::new(&shared.engine, key, options.mode, beside);
    let outcome = inner(shared, key, options, &budget, started, noting)
        .instrument(span)
        .await
        .map_err(|error| named(error, key));
    match outcome {
        Ok((guard, how)) => {
            told_granted(&guard, how, started);
            Ok(guard)
        }
        Err(error) => {
            told_failed(template, key, &error, clock.now() - started);
            Err(error)
        }
    }
}

pub(super) fn named(error: LockError, key: &LockKey) -> LockError {
    if error.key().is_some() { error } else { error.for_key(key) }
}

pub(super) fn told_granted(guard: &Guard, how: &'static str, started: Moment) {
    let view = guard.hold().view();
    let (template, waited) = (view.template(), view.acquired().since(started));
    telemetry::acquired(template, how, waited);
    tracing::debug!(lock = template, key = %guard.key(), token = %guard.fencing_token(), ?waited, "lock acquired");
}

pub(super) fn told_failed(template: &'static str, key: &LockKey, error: &LockError, waited: Duration) {
    telemetry::acquired(template, error.code(), waited);
    tracing::debug!(lock = template, %key, code = error.code(), ?waited, "lock not acquired");
}

/// The guard, and how telemetry calls the way to it.
async fn inner(
    shared: &Shared,
    key: &LockKey,
    options: Options,
    budget: &Budget,
    started: Moment,
    mut noting: Noting<'_>,
) -> Result<(Guard, &'static str), LockError> {
    // A loop of acquires that never has to wait must still let other tasks of its worker run.
    tokio::task::coop::consume_budget().await;
    let engine = &shared.engine;
    let mut checked = options.check()?.within(engine.backend().longest_ttl());
    let scope = Scope::current();
    let patience = budget.attempt(started, Duration::MAX);
    if let Some(hold) = scope.find_settled(engine, key, patience).await
        && let Some(guard) = reenter(&scope, hold, &checked)?
    {
        return Ok((guard, "reentered"));
    }
    // Without a hold nothing was waited for until here, and a look at the clock is a thirtieth of a hand-off.
    let mut now = if scope.holds_nothing() { started } else { engine.clock().now() };
    loop {
        let patient = (!budget.is_single()).then(|| engine.patient(budget.left(now)));
        let place = engine.enter(key, checked.ask(), patient);
        let driver = match place.map_err(|refused| refused_error(engine, key, &refused))? {
            Place::Drive(driver) => driver,
            Place::Wait(waiting) => {
                noting.blocked()?;
                let timed = patient != Some(Patient::Untimed);
                match wait(engine, key, waiting, now, timed, budget, &mut noting).await? {
                    Delivery::Drive(driver) => {
                        now = engine.clock().now();
                        *driver
                    }
                    // A hold that lay here while this task wasn't polled, or the process was stopped, may be over.
                    Delivery::Granted(hold) => match hold.view().check() {
                        Ok(()) => return Ok((Guard::new(hold), "granted")),
                        Err(lost) if budget.is_over() => return Err(lost),
                        Err(_) => {
                            now = engine.clock().now();
                            continue;
                        }
                    },
                }
            }
        };
        match drive(engine, driver, budget, now, &checked, &mut noting).await {
            Ok(Some(guard)) => return Ok((guard, "granted")),
            Ok(None) => {}
            // Refused because it is too long, by a store that learned only now how long a lease may be.
            Err(error)
                if error.kind() == ErrorKind::Config && checked.cut(engine.backend().longest_ttl()) => {}
            Err(error) => return Err(error),
        }
        now = engine.clock().now();
    }
}

/// What becomes of an acquisition under a hold of the same key; `None` if the hold doesn't concern it.
fn reenter(scope: &Scope, hold: Hold, checked: &Checked) -> Result<Option<Guard>, LockError> {
    let deadlock = || LockError::new(ErrorKind::Deadlock, "lock");
    match (hold.lease().mode(), checked.options.mode) {
        (Mode::Read, Mode::Write) => {
            return Err(deadlock()
                .detail("this task holds the lock for reading and asks to write")
                .remedy("use try_upgrade() on the read guard, or ask for write from the start"));
        }
        (Mode::Permits { .. }, Mode::Permits { limit, weight }) => {
            // More permits are more permits, not a re-entry; but more than there are can't be had. How many that is, is what is
            // asked for now: the limit may have changed since the hold began, and the store refuses a wrong one.
            let held = scope.permits(hold.engine(), hold.key());
            return if held.saturating_add(u64::from(weight)) <= u64::from(limit) {
                Ok(None)
            } else {
                Err(deadlock()
                    .detail(format!("this task holds {held} of {limit} permits and asks for {weight} more"))
                    .remedy("take them all at once with acquire_many"))
            };
        }
        (held, wanted) if held.kind() != wanted.kind() => return Ok(None),
        (Mode::Owned { owner: held }, Mode::Owned { owner }) if held != owner => {
            return Err(deadlock()
                .detail("this task holds the lock as another owner")
                .remedy("ask as the same owner, or release the lock before"));
        }
        _ => {}
    }
    // Who names the owner means to enter again.
    let owned = matches!(checked.options.mode, Mode::Owned { .. });
    if !checked.options.reentrant && !owned {
        return Err(deadlock()
            .detail("this task already holds the lock")
            .remedy("mark the inner acquisition reentrant, or don't nest it"));
    }
    hold.view().check()?;
    if hold.lease().cell.want(checked.ttl) {
        // The larger length holds from the next renewal on: let that be now.
        hold.engine().hurry(hold.lease().id);
    }
    Ok(Some(Guard::new(hold)))
}

/// A call to the store that isn't an acquisition, within a bound.
pub(super) async fn answered<T>(
    operation: &'static str,
    key: &LockKey,
    call: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, LockError> {
    match tokio::time::timeout(SINGLE_TRY, call).await {
        Ok(outcome) => outcome.map_err(|error| error.into_lock_error(operation, Some(key))),
        Err(_) => Err(LockError::new(ErrorKind::Connection, operation)
            .for_key(key)
            .detail(format!("no reply within {} s", SINGLE_TRY.as_secs()))),
    }
}

/// Waits behind other tasks of this process.
async fn wait(
    engine: &Arc<Engine>,
    key: &LockKey,
    mut waiting: Waiting<'_>,
    mut now: Moment,
    mut timed: bool,
    budget: &Budget,
    noting: &mut Noting<'_>,
) -> Result<Delivery, LockError> {
    loop {
        tokio::select! {
            biased;
            post = waiting.post() => match post.ok_or_else(shut_down)? {
                Post::News(delivery) => return Ok(delivery),
                Post::Later(inbox) => {
                    waiting.goes_on(inbox);
                    now = budget.clock.now();
                    timed = true;
                }
            },
            circle = noting.circle() => return Err(circle),
            over = budget.used_up_within(now, STUCK), if timed => {
                if over {
                    return Err(budget_error(engine, key, None, budget));
                }
                waiting.look_at_the_driver();
                now = budget.clock.now();
            }
        }
    }
}

/// Asks the store until it grants, the budget is used up, or it refuses for good. `None` if this task has to queue up again.
async fn drive(
    engine: &Arc<Engine>,
    mut driver: Driver,
    budget: &Budget,
    now: Moment,
    checked: &Checked,
    noting: &mut Noting<'_>,
) -> Result<Option<Guard>, LockError> {
    tokio::select! {
        biased;
        outcome = attempts(engine, &mut driver, budget, now, checked, noting) => {
            let Some((grant, now)) = outcome? else { return Ok(None) };
            // Refused because of a shutdown, the next round says so.
            Ok(driver.granted(grant, now).map(Guard::new))
        }
        () = engine.closed() => Err(shut_down()),
    }
}

/// A grant, and a look at the clock after it; `None` if another task has the turn now.
async fn attempts(
    engine: &Arc<Engine>,
    driver: &mut Driver,
    budget: &Budget,
    mut now: Moment,
    checked: &Checked,
    noting: &mut Noting<'_>,
) -> Result<Option<(Grant, Moment)>, LockError> {
    let backend = engine.backend();
    let deadline = Deadline::of(checked.ttl);
    let mut backoff = Duration::from_millis(10);
    let mut refused = None;
    loop {
        let Some(request) = driver.request(!budget.is_single())? else { return Ok(None) };
        let patience = budget.attempt(now, deadline.min_validity());
        let outcome = match within(patience, backend.try_acquire(&request)).await {
            Some(outcome) => outcome,
            None => Err(no_reply(patience, refused.as_ref())),
        };
        now = budget.clock.now();
        driver.outcome(&outcome, now);
        let error = match outcome {
            Ok(Attempt::Granted(grant)) => {
                if deadline.after(grant.sent) - now >= deadline.min_validity() {
                    return Ok(Some((grant, now)));
                }
                driver.start_over();
                if budget.left(now).is_zero() {
                    return Err(too_late());
                }
                continue;
            }
            Ok(Attempt::Busy(blocked)) if budget.is_single() => {
                return Err(busy(engine, &request.key, blocked));
            }
            Ok(Attempt::Busy(blocked) | Attempt::Queued(blocked)) => {
                backoff = Duration::from_millis(10);
                if !driver.waits() {
                    return Err(refused_error(engine, &request.key, &Refused::TooMany));
                }
                noting.blocked()?;
                let turn = turn(engine, &request, &blocked, budget, now, noting).await?;
                now = budget.clock.now();
                match turn {
                    Some(grant) => return Ok(Some((grant, now))),
                    None => continue,
                }
            }
            Err(error) => error,
        };
        if !error.is_transient() {
            return Err(error.into_lock_error("lock", Some(&request.key)));
        }
        let Some(pause) = budget.pause(now, backoff.mul_f64(0.5 + fastrand::f64() / 2.0)) else {
            return Err(error.into_lock_error("lock", Some(&request.key)));
        };
        tokio::time::sleep(pause).await;
        now = budget.clock.now();
        backoff = (backoff * 2).min(MAX_BACKOFF);
        if error.applied() == Applied::No {
            refused = Some(error);
        }
    }
}

/// Waits for the turn of a blocked attempt; `None` to ask again.
async fn turn(
    engine: &Engine,
    request: &crate::backend::AcquireRequest,
    blocked: &Blocked,
    budget: &Budget,
    now: Moment,
    noting: &mut Noting<'_>,
) -> Result<Option<Grant>, LockError> {
    tokio::select! {
        biased;
        turn = engine.backend().turn(request, blocked) => match turn {
            Ok(Turn::Again) => Ok(None),
            Ok(Turn::Granted(grant)) => Ok(Some(grant)),
            // The next attempt will tell what is wrong.
            Err(error) if error.is_transient() => Ok(None),
            Err(error) => Err(error.into_lock_error("lock", Some(&request.key))),
        },
        circle = noting.circle() => Err(circle),
        () = budget.used_up(now) => Err(budget_error(engine, &request.key, Some(blocked), budget)),
    }
}
