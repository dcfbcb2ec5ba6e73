//! Several locks for one user: in one step where that can be, else in order.

use super::acquire::{acquire_within, named, told_failed, told_granted};
use super::budget::Budget;
use super::options::Options;
use super::refusals::{busy, refused_error, shut_down, too_late};
use super::{Guard, Scope, Shared};
use crate::backend::{Attempt, AttemptAll, BackendError, Blocked};
use crate::clock::{Moment, within};
use crate::engine::{Driver, Place};
use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::Deadline;
use crate::queue::Refused;

/// How many locks are asked for in one step: as many as a renewal takes along.
const TOGETHER: usize = crate::lease::BATCH;

/// What one step brought.
enum Step {
    Granted(Vec<Guard>),
    /// This one is held, by whom the error says.
    Busy(usize, LockError),
    /// Nothing is known: take them one after the other, which also tells what is wrong with which.
    Apart,
}

/// Guards on all of these keys, in their order. Sorted keys make no circles.
pub(super) async fn take_all(
    shared: &Shared,
    keys: &[LockKey],
    options: Options,
) -> Result<Vec<Guard>, LockError> {
    // As an acquisition of one does.
    tokio::task::coop::consume_budget().await;
    let clock = shared.engine.clock();
    let budget = Budget { clock, started: clock.now(), wait: options.wait };
    let scope = Scope::current();
    let (under, free): (Vec<_>, Vec<_>) =
        keys.iter().cloned().partition(|key| scope.find(&shared.engine, key).is_some());
    let mut guards = Vec::with_capacity(keys.len());
    // A re-entry, or the error that it is none: before anything is taken.
    for key in &under {
        guards.push(acquire_within(shared, key, options, budget, &guards).await?);
    }
    let mut rest = free.as_slice();
    while !rest.is_empty() {
        let some = &rest[..rest.len().min(TOGETHER)];
        let in_order = match some {
            [_] => 1,
            some => match step(shared, some, options, &budget).await? {
                Step::Granted(more) => {
                    guards.extend(more);
                    rest = &rest[some.len()..];
                    continue;
                }
                Step::Busy(index, error) if budget.is_single() => {
                    told_failed(options.template, &some[index], &error, clock.now() - budget.started);
                    return Err(error);
                }
                Step::Busy(index, _) => index + 1,
                Step::Apart => some.len(),
            },
        };
        for key in &rest[..in_order] {
            guards.push(acquire_within(shared, key, options, budget, &guards).await?);
        }
        rest = &rest[in_order..];
    }
    guards.sort_by(|one, other| one.key().cmp(other.key()));
    Ok(guards)
}

/// One attempt at all of these, without waiting for a holder. Dropped at any await, the attempts are undone.
async fn step(
    shared: &Shared,
    keys: &[LockKey],
    options: Options,
    budget: &Budget,
) -> Result<Step, LockError> {
    let engine = &shared.engine;
    let checked = options.check()?.within(engine.backend().longest_ttl());
    let mut drivers: Vec<Driver> = Vec::with_capacity(keys.len());
    for (index, key) in keys.iter().enumerate() {
        match engine.enter(key, checked.ask(), None) {
            Ok(Place::Drive(driver)) => drivers.push(driver),
            Ok(Place::Wait(_)) => return Ok(Step::Apart),
            Err(refused @ Refused::Busy) => {
                return Ok(Step::Busy(index, named(refused_error(engine, key, &refused), key)));
            }
            Err(refused) => return Err(named(refused_error(engine, key, &refused), key)),
        }
    }
    let requests =
        drivers.iter_mut().map(|driver| driver.request(false)).collect::<Result<Option<Vec<_>>, _>>()?;
    let Some(requests) = requests else { return Ok(Step::Apart) };
    let started = budget.clock.now();
    let deadline = Deadline::of(checked.ttl);
    let patience = budget.attempt(started, deadline.min_validity());
    let outcome = tokio::select! {
        biased;
        outcome = within(patience, engine.backend().try_acquire_all(&requests)) => outcome.unwrap_or_else(|| {
            Err(BackendError::unknown(format!("no reply within {} ms", patience.as_millis())))
        }),
        () = engine.closed() => return Err(shut_down()),
    };
    let now = budget.clock.now();
    match outcome {
        Ok(AttemptAll::Granted(grants)) => {
            for (driver, grant) in drivers.iter_mut().zip(&grants) {
                driver.outcome(&Ok(Attempt::Granted(*grant)), now);
            }
            if grants.iter().any(|grant| deadline.after(grant.sent) - now < deadline.min_validity()) {
                drivers.iter_mut().for_each(Driver::start_over);
                return if budget.left(now).is_zero() {
                    Err(named(too_late(), &keys[0]))
                } else {
                    Ok(Step::Apart)
                };
            }
            let guard = |(driver, grant): (Driver, _)| driver.granted(grant, now).map(Guard::new);
            let guards: Option<Vec<Guard>> = drivers.into_iter().zip(grants).map(guard).collect();
            // Those that could be had are given back.
            let Some(guards) = guards else {
                return if engine.is_closing() { Err(shut_down()) } else { Ok(Step::Apart) };
            };
            guards.iter().for_each(|guard| told_granted(guard, "granted", started));
            Ok(Step::Granted(guards))
        }
        Ok(AttemptAll::Busy { index, blocked }) => {
            nothing_left(&mut drivers, now);
            let key = keys.get(index).unwrap_or(&keys[0]);
            Ok(Step::Busy(index.min(keys.len() - 1), named(busy(engine, key, blocked), key)))
        }
        Ok(AttemptAll::Apart) => {
            nothing_left(&mut drivers, now);
            Ok(Step::Apart)
        }
        Err(error) => {
            for driver in &mut drivers {
                driver.outcome(&Err(error.clone()), now);
            }
            if budget.is_single() && error.is_transient() {
                return Err(error.into_lock_error("lock", Some(&keys[0])));
            }
            Ok(Step::Apart)
        }
    }
}

/// The answer says that none of the attempts has left anything in the store.
fn nothing_left(drivers: &mut [Driver], now: Moment) {
    for driver in drivers {
        driver.outcome(&Ok(Attempt::Busy(Blocked::default())), now);
    }
}
