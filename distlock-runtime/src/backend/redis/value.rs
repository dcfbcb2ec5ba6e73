//! A lock's value: `<32 hex digits of the owner token>:<label>`.

use std::time::Duration;

use redis::{Cmd, Value};

use super::{error, keys};
use crate::backend::{BackendError, HolderState, LockState};
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::OwnerToken;

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
    Holder::new(read(value).map(|(_, label)| label.to_owned()), remaining(remaining_ms))
}

/// The holder for those who inspect.
pub(super) fn holder_state(value: &[u8], remaining_ms: i64) -> HolderState {
    let (owner, label) = read(value).unzip();
    HolderState::new(label.map(str::to_owned), remaining(remaining_ms), owner)
}

/// What `INSPECT` and `SHARE_INSPECT` tell.
pub(super) fn lock_state(key: &LockKey, reply: &Value) -> Result<LockState, BackendError> {
    let unexpected = || error::unexpected("inspect", reply);
    let Value::Array(parts) = reply else { return Err(unexpected()) };
    let (holder, waiters) = match parts.as_slice() {
        [Value::BulkString(holder), Value::Int(remaining), Value::Int(waiters)] => {
            (Some(holder_state(holder, *remaining)), waiters)
        }
        [Value::BulkString(holder), Value::Int(remaining), Value::Int(waiters), Value::Int(holds)] => {
            let holds = u32::try_from(*holds).unwrap_or(u32::MAX);
            (Some(holder_state(holder, *remaining).with_holds(holds)), waiters)
        }
        [Value::Nil, _, Value::Int(waiters), ..] => (None, waiters),
        _ => return Err(unexpected()),
    };
    Ok(LockState::new(key.clone(), holder, waiters.unsigned_abs()))
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
