//! Looking through records: step by step, never all keys at once.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::Value;

use super::connection::Node;
use super::keys::glob_escaped;
use super::script::Script;
use super::spread::all;
use super::{RedisBackend, error, records, script, slot};
use crate::backend::{
    BackendError, BackendErrorKind, Fingerprint, Purged, RecordFilter, RecordInfo, RecordKey, RecordNote,
    RecordScope, RecordStatus, Resolved, Settlement,
};

/// How many keys the server looks at in one step of a scan.
const SCAN: u32 = 500;
/// How many records one script call looks at.
const LOOKS: usize = 100;

impl RedisBackend {
    pub(super) async fn look_through(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        let scope = filter.scope.map(RecordScope::to_hex).unwrap_or_default();
        let wanted = if filter.unresolved { "u" } else { "" };
        // A scan may give a key twice.
        let mut found = BTreeMap::new();
        for node in self.connections.nodes().await? {
            let mut cursor = 0;
            while found.len() < limit {
                let (next, keys) = self.scan_records(&node, cursor).await?;
                let groups = self.groups_of(&keys);
                let rows = groups.iter().map(|keys| self.ask_of(&script::RECORD_LIST, keys, &scope, wanted));
                for (keys, rows) in groups.iter().zip(all(rows).await) {
                    for row in rows? {
                        // One that was damaged, or is of a later version, mustn't hide all others.
                        let Some(info) = info(keys, &row) else {
                            tracing::warn!(record = ?named(keys, &row), "a record can not be read, it is left out");
                            continue;
                        };
                        if found.len() < limit {
                            found.insert(info.key, info);
                        }
                    }
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        Ok(found.into_values().collect())
    }

    /// These records, some at a time, as one script takes them.
    fn groups_of(&self, keys: &[RecordKey]) -> Vec<Vec<RecordKey>> {
        let slot = |index: usize| slot::of_key(self.namespace.record(&keys[index]).as_bytes());
        let groups = self.groups(0..keys.len(), LOOKS, slot);
        groups.into_iter().map(|group| group.into_iter().map(|index| keys[index]).collect()).collect()
    }

    /// What a script has to say of some records.
    async fn ask_of(
        &self,
        script: &Script,
        keys: &[RecordKey],
        scope: &str,
        argument: &str,
    ) -> Result<Vec<Value>, BackendError> {
        let call = || {
            let mut call = script.call(keys.len(), 2, 96 * keys.len() + 64);
            for key in keys {
                call.arg(self.namespace.record(key));
            }
            call.arg(scope).arg(argument);
            call
        };
        match self.connections.run(script, call).await?.value {
            Value::Array(rows) => Ok(rows),
            other => Err(error::unexpected(script.name, &other)),
        }
    }

    pub(super) async fn resolve_record(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        let record = self.namespace.record(key);
        let fingerprint = fingerprint.map(records::written).unwrap_or_default();
        let (state, retain, payload) = records::settled(settlement);
        let reply = self
            .connections
            .run(&script::RECORD_RESOLVE, || {
                let mut call = script::RECORD_RESOLVE.call(1, 4, 256 + payload.len());
                call.arg(&record).arg(state).arg(records::kept(retain)).arg(payload).arg(&fingerprint);
                call
            })
            .await?;
        match reply.value {
            Value::Int(1) => Ok(Resolved::Done),
            Value::Int(0) => Ok(Resolved::Refused),
            Value::Int(-1) => Ok(Resolved::Absent),
            other => Err(error::unexpected("resolve", &other)),
        }
    }

    pub(super) async fn purge_records(
        &self,
        scope: &RecordScope,
        limit: usize,
    ) -> Result<Purged, BackendError> {
        let scope = scope.to_hex();
        let mut purged = Purged::default();
        // In flight are counted once, though a scan may give a key twice.
        let mut seen = std::collections::HashSet::new();
        for node in self.connections.nodes().await? {
            let mut cursor = 0;
            loop {
                let (next, mut keys) = self.scan_records(&node, cursor).await?;
                keys.retain(|key| seen.insert(*key));
                let mut groups = self.groups_of(&keys).into_iter().peekable();
                while groups.peek().is_some() {
                    // So many at once as may be removed: each of them may be one of the scope's.
                    let (mut some, mut left) = (Vec::new(), limit - purged.removed);
                    while let Some(group) = groups.next_if(|group| some.is_empty() || group.len() <= left) {
                        left = left.saturating_sub(group.len());
                        some.push(group);
                    }
                    let most = (limit - purged.removed).to_string();
                    let counts =
                        some.iter().map(|keys| self.ask_of(&script::RECORD_PURGE, keys, &scope, &most));
                    for counts in all(counts).await {
                        let counts = counts?;
                        let &[Value::Int(removed), Value::Int(in_flight), Value::Int(left)] = &counts[..]
                        else {
                            return Err(error::unexpected("purge", &Value::Array(counts)));
                        };
                        purged.removed += usize::try_from(removed).unwrap_or(0);
                        purged.in_flight += usize::try_from(in_flight).unwrap_or(0);
                        if left > 0 {
                            return Ok(purged);
                        }
                    }
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        Ok(Purged { is_complete: true, ..purged })
    }

    /// One step over the names of records.
    async fn scan_records(&self, node: &Node, cursor: u64) -> Result<(u64, Vec<RecordKey>), BackendError> {
        let prefix = self.namespace.record_prefix();
        let pattern = format!("{}*", glob_escaped(&prefix));
        let step = node
            .command("list", || {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(SCAN);
                scan
            })
            .await?;
        let (next, names) = redis::from_redis_value::<(u64, Vec<Vec<u8>>)>(step).map_err(|_| unreadable())?;
        let key = |name: &Vec<u8>| {
            let text = std::str::from_utf8(name).ok()?.strip_prefix(prefix.as_str())?;
            RecordKey::from_hex(text)
        };
        Ok((next, names.iter().filter_map(key).collect()))
    }
}

/// From `{index, state, rest, kept for ms, note}`.
fn info(keys: &[RecordKey], whole: &Value) -> Option<RecordInfo> {
    let Value::Array(row) = whole else { return None };
    let [_, Value::BulkString(state), Value::BulkString(rest), Value::Int(kept), Value::BulkString(note)] =
        &row[..]
    else {
        return None;
    };
    let key = named(keys, whole)?;
    let rest = String::from_utf8_lossy(rest);
    let status = match state.as_slice() {
        b"i" => RecordStatus::InFlight { remaining: Duration::from_millis(rest.parse().ok()?) },
        b"c" => RecordStatus::Completed { bytes: rest.parse().ok()? },
        b"t" => RecordStatus::Tombstone { reason: rest.into_owned() },
        b"u" => RecordStatus::Unknown,
        _ => return None,
    };
    let kept_for = u64::try_from(*kept).ok().map(Duration::from_millis);
    Some(RecordInfo { key, status, kept_for, note: RecordNote::from_text(&String::from_utf8_lossy(note)) })
}

/// The record that a row is about.
fn named(keys: &[RecordKey], row: &Value) -> Option<RecordKey> {
    let Value::Array(row) = row else { return None };
    let Some(Value::Int(index)) = row.first() else { return None };
    keys.get(usize::try_from(*index).ok()?.checked_sub(1)?).copied()
}

fn unreadable() -> BackendError {
    BackendError::refused(
        BackendErrorKind::Script,
        "redis gave an unexpected reply to a look through its records",
    )
}
