//! From rows to outcomes.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::connection::Reply;
use super::{error, locks};
use crate::backend::{
    Attempt, BackendError, BackendErrorKind, Blocked, Grant, HolderState, Kind, LockState, Mode,
};
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::{FencingToken, OwnerId, OwnerToken};

/// A column, by its place.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, BackendError> {
    row.try_get(place).map_err(|failure| error::unexpected("a statement", &failure.to_string()))
}

/// The one row of a result.
pub(super) fn only<'a>(operation: &str, reply: &'a Reply) -> Result<&'a Row, BackendError> {
    reply.rows.first().ok_or_else(|| error::unexpected(operation, "no row"))
}

/// The rows of attempts begin with: outcome, token, holder, its label, its remaining ms.
pub(super) fn outcome(row: &Row) -> Result<&str, BackendError> {
    column(row, 0)
}

pub(super) fn token(row: &Row) -> Result<FencingToken, BackendError> {
    locks::fencing(column(row, 1)?).ok_or_else(|| error::unexpected("acquire", "no token"))
}

pub(super) fn blocked(row: &Row) -> Result<Blocked, BackendError> {
    let Some(label) = column::<Option<String>>(row, 3)? else { return Ok(Blocked::default()) };
    let holder = Holder::new(Some(label), remaining(column(row, 4)?));
    let owner = column::<Option<&str>>(row, 2)?.and_then(OwnerToken::from_hex);
    Ok(Blocked {
        holder: Some(match owner {
            Some(owner) => holder.by(owner),
            None => holder,
        }),
    })
}

/// What an attempt's row means that is neither a grant nor a wait.
pub(super) fn refusal(row: &Row) -> Result<BackendError, BackendError> {
    Ok(match outcome(row)? {
        "cancelled" => BackendError::cancelled(),
        "conflict" => BackendError::key_in_use(),
        "limit" => BackendError::refused(
            BackendErrorKind::LimitMismatch,
            format!("the semaphore has another limit: {}", column::<i64>(row, 1)?),
        ),
        "gone" => BackendError::refused(BackendErrorKind::NotHeld, "the lease to convert is gone"),
        other => error::unexpected("acquire", other),
    })
}

pub(super) fn attempt(mode: Mode, tokens: u32, reply: &Reply) -> Result<Attempt, BackendError> {
    let row = only("acquire", reply)?;
    match outcome(row)? {
        "granted" => Ok(Attempt::Granted(Grant {
            sent: reply.sent,
            token: token(row)?,
            tokens: locks::block(mode, tokens),
        })),
        "busy" => Ok(Attempt::Busy(blocked(row)?)),
        "queued" => Ok(Attempt::Queued(blocked(row)?)),
        _ => Err(refusal(row)?),
    }
}

/// The states of locks, from rows of the function `state`: one for each holder shown, those of one lock together.
pub(super) fn states(rows: &[Row]) -> Result<Vec<LockState>, BackendError> {
    let mut states: Vec<LockState> = Vec::new();
    for of_one in rows.chunk_by(|one, next| {
        matches!((one.try_get::<_, &str>(0), next.try_get::<_, &str>(0)), (Ok(one), Ok(next)) if one == next)
    }) {
        let Some(first) = of_one.first() else { continue };
        let name: String = column(first, 0)?;
        // What stands there came from a key once.
        let Ok(key) = LockKey::new(name) else { continue };
        states.push(state(key, of_one)?);
    }
    Ok(states)
}

/// The state of one lock.
pub(super) fn state(key: LockKey, rows: &[Row]) -> Result<LockState, BackendError> {
    let free = LockState::new(key.clone(), None, 0);
    let Some(first) = rows.first() else { return Ok(free) };
    if column(first, 10)? {
        return Err(BackendError::key_in_use());
    }
    let Some(kind) = kind(first)? else { return Ok(free) };
    let count = natural(column(first, 7)?);
    let waiters = natural(column(first, 9)?);
    let mut holders = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(label) = column::<Option<String>>(row, 4)? {
            let owner = column::<Option<&str>>(row, 3)?.and_then(OwnerToken::from_hex);
            let holder = HolderState::new(Some(label), remaining(column(row, 6)?), owner);
            let weight = column::<Option<i64>>(row, 5)?.map(natural).unwrap_or_default();
            holders.push(holding(holder, kind, weight, count, column(row, 11)?));
        }
    }
    let state = LockState::shared(key, kind, holders, count, waiters);
    Ok(match kind {
        Kind::Semaphore { .. } => state.with_permits_in_use(natural(column(first, 8)?)),
        _ => state,
    })
}

fn kind(row: &Row) -> Result<Option<Kind>, BackendError> {
    let capacity = column::<Option<i64>>(row, 2)?.map(natural).unwrap_or_default();
    Ok(Some(match column::<Option<&str>>(row, 1)? {
        None => return Ok(None),
        Some("excl") => Kind::Exclusive,
        Some("own") => Kind::Owned,
        Some("rw") => Kind::ReadWrite,
        Some("sem") => Kind::Semaphore { limit: u32::try_from(capacity).unwrap_or(u32::MAX) },
        Some(other) => return Err(error::unexpected("inspect", other)),
    }))
}

fn holding(holder: HolderState, kind: Kind, weight: u64, count: u64, party: Option<&str>) -> HolderState {
    match kind {
        Kind::Exclusive => holder.holding(Mode::Exclusive),
        Kind::ReadWrite if weight == 1 => holder.holding(Mode::Read),
        Kind::ReadWrite => holder.holding(Mode::Write),
        Kind::Semaphore { limit } => {
            holder.holding(Mode::Permits { limit, weight: u32::try_from(weight).unwrap_or(u32::MAX) })
        }
        Kind::Owned => {
            let holder = holder.with_holds(u32::try_from(count).unwrap_or(u32::MAX));
            match party.and_then(OwnerId::from_hex) {
                Some(owner) => holder.holding(Mode::Owned { owner }),
                None => holder,
            }
        }
    }
}

/// A holder, from three columns: owner, label, remaining ms.
pub(super) fn holder(row: &Row, place: usize) -> Result<HolderState, BackendError> {
    let owner = column::<Option<&str>>(row, place)?.and_then(OwnerToken::from_hex);
    Ok(HolderState::new(column(row, place + 1)?, remaining(column(row, place + 2)?), owner))
}

/// The holder that was taken away.
pub(super) fn taken(reply: &Reply) -> Result<Option<HolderState>, BackendError> {
    let row = only("force_release", reply)?;
    let outcome: Option<&str> = column(row, 0)?;
    if outcome == Some("conflict") {
        return Err(BackendError::key_in_use());
    }
    let Some(label) = column::<Option<String>>(row, 2)? else { return Ok(None) };
    let owner = column::<Option<&str>>(row, 1)?.and_then(OwnerToken::from_hex);
    Ok(Some(HolderState::new(Some(label), remaining(column(row, 4)?), owner)))
}

fn remaining(milliseconds: Option<i64>) -> Option<Duration> {
    milliseconds.map(|left| Duration::from_millis(natural(left)))
}

fn natural(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
