//! From rows to records.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Row;

use super::super::answer::column;
use crate::backend::{
    BackendError, BackendErrorKind, Fingerprint, Record, RecordInfo, RecordKey, RecordNote, RecordState,
    RecordStatus,
};

/// A claim that was renewed: key, owner, fence.
pub(super) fn held(row: &Row) -> Result<(Vec<u8>, String, i64), BackendError> {
    Ok((column(row, 0)?, column(row, 1)?, column(row, 2)?))
}

/// A record in the columns from `first` on: state, version, fingerprint, rest, result, note.
pub(super) fn record(operation: &str, row: &Row, first: usize) -> Result<Record, BackendError> {
    let state: &str = column(row, first)?;
    let version: i32 = column(row, first + 1)?;
    let digest: &[u8] = column(row, first + 2)?;
    let rest: i64 = column(row, first + 3)?;
    let result: &[u8] = column(row, first + 4)?;
    let note: &str = column(row, first + 5)?;
    from_columns(state, version, digest, rest, result, note).ok_or_else(|| {
        // The row itself isn't shown: it may have somebody's response.
        BackendError::refused(
            BackendErrorKind::Script,
            format!("the record found by {operation} can't be read; it was written by another version"),
        )
    })
}

fn from_columns(
    state: &str,
    version: i32,
    digest: &[u8],
    rest: i64,
    result: &[u8],
    note: &str,
) -> Option<Record> {
    let state = match state {
        "i" => RecordState::InFlight { remaining: duration(rest) },
        "c" => RecordState::Completed { response: Bytes::copy_from_slice(result) },
        "t" => RecordState::Tombstone { reason: String::from_utf8(result.to_vec()).ok()? },
        "u" => RecordState::Unknown,
        _ => return None,
    };
    let fingerprint = Fingerprint { version: u16::try_from(version).ok()?, digest: digest.try_into().ok()? };
    Some(Record { fingerprint, state, note: RecordNote::from_text(note) })
}

/// From `key, fits, state, rest or length, reason, kept for ms, note`; the key, and the record if it passed the filter and can be read.
pub(super) fn listed(row: &Row) -> Result<(Vec<u8>, Option<RecordInfo>), BackendError> {
    let key: Vec<u8> = column(row, 0)?;
    if !column::<bool>(row, 1)? {
        return Ok((key, None));
    }
    let state: &str = column(row, 2)?;
    let rest: i64 = column(row, 3)?;
    let reason: &[u8] = column(row, 4)?;
    let kept_for: i64 = column(row, 5)?;
    let note: &str = column(row, 6)?;
    let info = status(state, rest, reason).zip(<[u8; 32]>::try_from(&key[..]).ok()).map(|(status, bytes)| {
        let key = RecordKey::from_bytes(bytes);
        RecordInfo { key, status, kept_for: Some(duration(kept_for)), note: RecordNote::from_text(note) }
    });
    if info.is_none() {
        // One that was damaged, or is of a later version, mustn't hide all others.
        tracing::warn!("a record can not be read, it is left out");
    }
    Ok((key, info))
}

fn status(state: &str, rest: i64, reason: &[u8]) -> Option<RecordStatus> {
    Some(match state {
        "i" => RecordStatus::InFlight { remaining: duration(rest) },
        "c" => RecordStatus::Completed { bytes: rest.unsigned_abs() },
        "t" => RecordStatus::Tombstone { reason: String::from_utf8_lossy(reason).into_owned() },
        "u" => RecordStatus::Unknown,
        _ => return None,
    })
}

pub(super) fn duration(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_those_of_other_versions_are_not() {
        let read =
            |state, version, digest: &[u8], rest| from_columns(state, version, digest, rest, b"paid", "");
        let done = read("c", 7, &[1; 32], 0).unwrap();
        assert_eq!(done.fingerprint, Fingerprint { version: 7, digest: [1; 32] });
        assert_eq!(done.state, RecordState::Completed { response: "paid".into() });
        assert_eq!(
            read("t", 1, &[1; 32], 0).unwrap().state,
            RecordState::Tombstone { reason: "paid".into() }
        );
        let in_flight = read("i", 1, &[1; 32], -5).unwrap().state;
        assert_eq!(in_flight, RecordState::InFlight { remaining: Duration::ZERO });
        for (state, version, digest) in [("z", 1, &[1; 32][..]), ("c", 70_000, &[1; 32]), ("c", 1, &[1; 31])]
        {
            assert_eq!(read(state, version, digest, 0), None, "{state} {version}");
        }
    }
}
