//! A lock's value: `<32 hex digits of the owner token>:<label>`.

use std::time::Duration;

use redis::{Cmd, Value};

use super::{error, keys};
use crate::backend::{BackendError, HolderState, Kind, LockState, Mode};
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::{OwnerId, OwnerToken};

/// Writes the value of this owner as one argument.
pub(super) fn write(command: &mut Cmd, owner_hex: &str, label: &str) {
    keys::parts(command, &[owner_hex.as_bytes(), b":", label.as_bytes()]);
}

/// Owner and label of a value of our form.
pub(super) fn read(value: &[u8]) -> Option<(OwnerToken, &str)> {
    let text = std::str::from_utf8(value).ok()?;
    let (owner, label) = text.split_once(':')?;
    Some((OwnerToken::from_hex(owner)?, label))
}

/// The holder for those who wait.
pub(super) fn holder(value: &[u8], remaining_ms: i64) -> Holder {
    let remaining = remaining(remaining_ms);
    match read(value) {
        Some((owner, label)) => Holder::new(Some(label.to_owned()), remaining).by(owner),
        None => Holder::new(None, remaining),
    }
}

/// The holder for those who inspect.
pub(super) fn holder_state(value: &[u8], remaining_ms: i64) -> HolderState {
    let (owner, label) = read(value).unzip();
    HolderState::new(label.map(str::to_owned), remaining(remaining_ms), owner)
}

/// What `INSPECT` tells.
pub(super) fn lock_state(key: &LockKey, reply: &Value) -> Result<LockState, BackendError> {
    let unexpected = || error::unexpected("inspect", reply);
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let (holder, waiters) = match parts.as_slice() {
        [Value::BulkString(holder), Value::Int(remaining), Value::Int(waiters)] => {
            (Some(holder_state(holder, *remaining)), waiters)
        }
        [Value::Nil, _, Value::Int(waiters)] => (None, waiters),
        _ => return Err(unexpected()),
    };
    Ok(LockState::new(key.clone(), holder, waiters.unsigned_abs()))
}

/// What `SHARE_INSPECT` tells.
pub(super) fn shared_state(key: &LockKey, reply: &Value) -> Result<LockState, BackendError> {
    match reply {
        Value::Array(parts) if parts.is_empty() => Ok(LockState::new(key.clone(), None, 0)),
        Value::Array(parts) => {
            shares(key, parts.as_slice()).ok_or_else(|| error::unexpected("inspect", reply))
        }
        _ => Err(error::unexpected("inspect", reply)),
    }
}

fn shares(key: &LockKey, parts: &[Value]) -> Option<LockState> {
    let [
        Value::BulkString(kind),
        Value::Int(limit),
        Value::Int(used),
        Value::Int(count),
        Value::Int(waiters),
        Value::BulkString(id),
        holders @ ..,
    ] = parts
    else {
        return None;
    };
    let number = |number: &i64| u64::try_from(*number).ok();
    let count = number(count)?;
    let kind = match kind.as_slice() {
        b"rw" => Kind::ReadWrite,
        b"own" => Kind::Owned,
        b"sem" => Kind::Semaphore { limit: u32::try_from(*limit).ok()? },
        _ => return None,
    };
    let owner = std::str::from_utf8(id).ok().and_then(OwnerId::from_hex);
    let holder = |parts: &[Value]| {
        let [Value::BulkString(holder), Value::Int(remaining), Value::Int(weight)] = parts else {
            return None;
        };
        let state = holder_state(holder, *remaining);
        Some(match kind {
            Kind::Semaphore { limit } => {
                state.holding(Mode::Permits { limit, weight: u32::try_from(*weight).ok()? })
            }
            Kind::Owned => {
                let state = state.with_holds(u32::try_from(count).unwrap_or(u32::MAX));
                owner.map_or(state.clone(), |owner| state.holding(Mode::Owned { owner }))
            }
            _ if *weight == 1 => state.holding(Mode::Read),
            _ => state.holding(Mode::Write),
        })
    };
    let holders = holders.chunks(3).map(holder).collect::<Option<Vec<_>>>()?;
    let state = LockState::shared(key.clone(), kind, holders, count, number(waiters)?);
    Some(match kind {
        Kind::Semaphore { .. } => state.with_permits_in_use(number(used)?),
        _ => state,
    })
}

/// From what `PTTL` gives; `None` for a key that never expires.
fn remaining(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_others_have_no_label() {
        let owner = OwnerToken::random().unwrap();
        let ours = format!("{}:web-1:77", owner.to_hex());
        assert_eq!(read(ours.as_bytes()), Some((owner, "web-1:77")));
        for foreign in [&b"1"[..], b"\xff\xfe", b"abc:def", &[b'0'; 32]] {
            assert_eq!(read(foreign), None);
            assert_eq!(holder(foreign, 5).label, None);
        }
        assert_eq!(holder(ours.as_bytes(), -1).remaining, None);
        assert_eq!(holder_state(ours.as_bytes(), 7).remaining, Some(Duration::from_millis(7)));
    }
}
