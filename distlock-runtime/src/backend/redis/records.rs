//! Idempotency records: a hash each, every transition one script.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use redis::Value;

use super::calls::milliseconds;
use super::connection::Lane;
use super::{RedisBackend, error, script, slot};
use crate::backend::{
    BackendError, Charge, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Purged, Record, RecordFilter,
    RecordInfo, RecordKey, RecordLease, RecordNote, RecordScope, RecordState, RecordStore, Renewal,
    Reservation, Reserved, Resolved, Settled, Settlement,
};
use crate::token::FencingToken;

/// How many claims one script call renews.
const RENEWALS: usize = 100;
/// How long a withdrawn claim may still be under way.
const LATE_CLAIM: Duration = Duration::from_secs(120);
/// Most managers that are told of one record's end; further ones ask.
const WATCHERS: usize = 32;

#[async_trait]
impl RecordStore for RedisBackend {
    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, BackendError> {
        match &self.standby {
            None => Ok(self.claim_record(claim).await?.0),
            Some(standby) => Box::pin(self.claim_kept(standby, claim)).await,
        }
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError> {
        let record = self.namespace.record(&claim.key);
        let owner = claim.owner.to_hex();
        let withdrawal = self.namespace.record_withdrawal(&record, &owner);
        self.connections
            .run(&script::RECORD_WITHDRAW, || {
                let mut call = script::RECORD_WITHDRAW.call(2, 2, 320);
                call.arg(&record).arg(&withdrawal).arg(&owner).arg(milliseconds(LATE_CLAIM));
                call
            })
            .await?;
        Ok(())
    }

    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        let slot = |index: usize| slot::of_key(self.namespace.record(&leases[index].key).as_bytes());
        let groups = self.groups(0..leases.len(), RENEWALS, slot);
        let build = |group: &[usize]| {
            let claims = || group.iter().map(|index| &leases[*index]);
            let mut call = script::RECORD_RENEW.call(group.len(), 3 * group.len(), 192 * group.len());
            for lease in claims() {
                call.arg(self.namespace.record(&lease.key));
            }
            for lease in claims() {
                call.arg(lease.owner.to_hex());
            }
            for lease in claims() {
                call.arg(lease.fence.get());
            }
            for lease in claims() {
                call.arg(lease.ttl.as_millis());
            }
            call
        };
        let shortest = leases.iter().map(|lease| lease.ttl.as_duration()).min().unwrap_or_default();
        let mut outcomes = self.renew_groups(&script::RECORD_RENEW, groups, shortest, &build).await;
        outcomes.sort_unstable_by_key(|(index, _)| *index);
        outcomes.into_iter().map(|(_, renewal)| renewal).collect()
    }

    async fn settle(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, BackendError> {
        let record = self.namespace.record(&lease.key);
        let owner = lease.owner.to_hex();
        let (state, retain, payload) = settled(settlement);
        let reply = self
            .connections
            .run(&script::RECORD_SETTLE, || {
                let mut call = script::RECORD_SETTLE.call(1, 5, 256 + payload.len());
                call.arg(&record)
                    .arg(&owner)
                    .arg(lease.fence.get())
                    .arg(state)
                    .arg(kept(retain))
                    .arg(payload);
                call
            })
            .await?;
        match reply.value {
            Value::Int(1) => Ok(Settled::Done),
            Value::Int(0) => Ok(Settled::Fenced),
            other => Err(error::unexpected("settle", &other)),
        }
    }

    async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, BackendError> {
        let record = self.namespace.record(key);
        let reply = self
            .connections
            .run(&script::RECORD_LOOK_UP, || {
                let mut call = script::RECORD_LOOK_UP.call(1, 0, 160);
                call.arg(&record);
                call
            })
            .await?;
        match reply.value {
            Value::Nil => Ok(None),
            other => present("look up", other).map(Some),
        }
    }

    async fn list_records(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        self.look_through(filter, limit).await
    }

    async fn resolve(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        self.resolve_record(key, fingerprint, settlement).await
    }

    async fn reserve(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        self.take_place(wanted).await
    }

    async fn charge(&self, charge: &Charge) -> Result<(), BackendError> {
        self.value_place(charge).await
    }

    async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, BackendError> {
        let purged = self.purge_records(scope, limit).await?;
        // Places of what is in flight are taken again by its next claims.
        if purged.is_complete {
            self.clear_places(scope).await?;
        }
        Ok(purged)
    }

    async fn changed(&self, key: &RecordKey, at_most: Duration) {
        let settled = self.wakeups.settled_or_lapsed(*key, || self.in_flight(key));
        // Whoever wants to know asks the store itself afterwards.
        let _ = tokio::time::timeout(at_most, settled).await;
    }
}

impl RedisBackend {
    /// With the connection that answered.
    pub(super) async fn claim_record(
        &self,
        claim: &Claim,
    ) -> Result<(ClaimOutcome, Arc<Lane>), BackendError> {
        let record = self.namespace.record(&claim.key);
        let counter = self.namespace.record_counter(&record);
        let owner = claim.owner.to_hex();
        let withdrawal = self.namespace.record_withdrawal(&record, &owner);
        let (fingerprint, note) = (written(claim.fingerprint), claim.note.to_text());
        let policy = match claim.after_crash {
            CrashPolicy::Reject => "reject",
            CrashPolicy::Takeover => "takeover",
        };
        let reply = self
            .connections
            .run(self.drawing(&script::RECORD_CLAIM), || {
                let mut call = self.drawing(&script::RECORD_CLAIM).call(3, 6, 576 + note.len());
                call.arg(&record).arg(&counter).arg(&withdrawal).arg(&owner).arg(&fingerprint);
                call.arg(claim.lease.as_millis()).arg(policy).arg(kept(claim.retain)).arg(&note);
                call
            })
            .await?;
        if let Value::Array(parts) = &reply.value
            && let [Value::Int(1), Value::Int(fence), Value::Int(taken_over)] = parts[..]
        {
            let fence = FencingToken::new(fence.unsigned_abs());
            let outcome = ClaimOutcome::Claimed { sent: reply.sent, fence, taken_over: taken_over == 1 };
            return Ok((outcome, reply.lane));
        }
        if reply.value == Value::Int(-1) {
            return Err(BackendError::refused(
                crate::backend::BackendErrorKind::Script,
                "this claim was withdrawn before; claim anew",
            ));
        }
        Ok((ClaimOutcome::Present(present("claim", reply.value)?), reply.lane))
    }
}

impl RedisBackend {
    /// How long the lease of a record in flight still runs; asks to be told when it ends.
    async fn in_flight(&self, key: &RecordKey) -> Result<Option<Duration>, BackendError> {
        let record = self.namespace.record(key);
        let reply = self
            .connections
            .run(&script::RECORD_LOOK_UP, || {
                let mut call = script::RECORD_LOOK_UP.call(1, 2, 192);
                call.arg(&record);
                self.told_by(&mut call, slot::of_key(record.as_bytes()));
                call.arg(WATCHERS);
                call
            })
            .await?;
        match &reply.value {
            Value::Nil => Ok(None),
            Value::Array(parts) => match &parts[..] {
                [_, _, Value::BulkString(remaining)] => parsed(remaining).map(Some),
                _ => Err(error::unexpected("watch", &reply.value)),
            },
            other => Err(error::unexpected("watch", other)),
        }
    }
}

/// The letter of the state, the retention and what is stored.
pub(super) fn settled(settlement: &Settlement) -> (&'static str, Duration, &[u8]) {
    match settlement {
        Settlement::Complete { response, retain } => ("c", *retain, &response[..]),
        Settlement::Release => ("r", Duration::ZERO, b""),
        Settlement::Tombstone { reason, retain } => ("t", *retain, reason.as_bytes()),
        Settlement::Unknown { retain } => ("u", *retain, b""),
    }
}

/// From `{0, state, fingerprint, remaining ms or response or reason, note}`.
fn present(operation: &str, reply: Value) -> Result<Record, BackendError> {
    let Value::Array(parts) = reply else { return Err(error::unexpected(operation, &reply)) };
    let record = match <[Value; 5]>::try_from(parts) {
        Ok(
            [
                Value::Int(0),
                Value::BulkString(state),
                Value::BulkString(fingerprint),
                Value::BulkString(rest),
                Value::BulkString(note),
            ],
        ) => read(&state, &fingerprint, rest, &note),
        _ => None,
    };
    record.ok_or_else(|| {
        // The reply itself isn't shown: it may be somebody's response.
        BackendError::refused(
            crate::backend::BackendErrorKind::Script,
            format!("the record found by {operation} can't be read; it was written by another version"),
        )
    })
}

fn read(state: &[u8], fingerprint: &[u8], rest: Vec<u8>, note: &[u8]) -> Option<Record> {
    let state = match state {
        b"i" => RecordState::InFlight { remaining: parsed(&rest).ok()? },
        b"c" => RecordState::Completed { response: Bytes::from(rest) },
        b"t" => RecordState::Tombstone { reason: String::from_utf8(rest).ok()? },
        b"u" => RecordState::Unknown,
        _ => return None,
    };
    let note = RecordNote::from_text(&String::from_utf8_lossy(note));
    Some(Record { fingerprint: fingerprint_read(fingerprint)?, state, note })
}

fn parsed(milliseconds: &[u8]) -> Result<Duration, BackendError> {
    let number = std::str::from_utf8(milliseconds).ok().and_then(|text| text.parse().ok());
    number
        .map(Duration::from_millis)
        .ok_or_else(|| error::unexpected("look up", &Value::BulkString(milliseconds.to_vec())))
}

/// `<version>:<hex digest>`.
pub(super) fn written(fingerprint: Fingerprint) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{}:", fingerprint.version);
    for byte in fingerprint.digest {
        write!(text, "{byte:02x}").expect("writing to a String can't fail");
    }
    text
}

fn fingerprint_read(text: &[u8]) -> Option<Fingerprint> {
    let (version, digest) = std::str::from_utf8(text).ok()?.split_once(':')?;
    Some(Fingerprint { version: version.parse().ok()?, digest: RecordKey::from_hex(digest)?.to_bytes() })
}

/// A key with a ttl of nothing would be gone at once.
pub(super) fn kept(retain: Duration) -> u64 {
    milliseconds(retain).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_round_trip() {
        let fingerprint = Fingerprint { version: 7, digest: *b"0123456789abcdef0123456789ABCDEF" };
        assert_eq!(fingerprint_read(written(fingerprint).as_bytes()), Some(fingerprint));
        for broken in ["", "7", "x:00", "7:00", "70000:00", "\u{e9}:"] {
            assert_eq!(fingerprint_read(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn records_of_other_versions_are_errors_without_their_contents() {
        let part = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let reply =
            Value::Array(vec![Value::Int(0), part("z"), part("nonsense"), part("secret body"), part("")]);
        let error = present("claim", reply).unwrap_err();
        assert!(!format!("{error:?}").contains("secret"), "{error}");
    }
}
