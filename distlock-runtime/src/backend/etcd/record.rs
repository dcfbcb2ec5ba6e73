//! What stands under a record's name: one line of words, the note last. The result has a name of its own.

use std::fmt::Write as _;
use std::time::Duration;

use crate::backend::{
    Fingerprint, Record, RecordInfo, RecordKey, RecordNote, RecordState, RecordStatus, Settlement,
};
use crate::token::{FencingToken, OwnerToken};

/// Begins every value.
const VERSION: &str = "distlock1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    InFlight,
    Completed { bytes: u64 },
    Tombstone { reason: String },
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) stage: Stage,
    pub(super) owner: OwnerToken,
    pub(super) fence: FencingToken,
    pub(super) fingerprint: Fingerprint,
    /// Of one in flight: how long its claim lives without renewal.
    pub(super) length: Duration,
    pub(super) note: RecordNote,
}

/// A record at one revision.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) entry: Entry,
    pub(super) modified: i64,
    pub(super) lease: i64,
    /// Of one in flight: how long the claim still runs unless renewed; zero if it lapsed.
    pub(super) remaining: Duration,
}

impl Entry {
    pub(super) fn encode(&self) -> String {
        let stage = match &self.stage {
            Stage::InFlight => format!("claimed:{}", self.length.as_millis()),
            Stage::Completed { bytes } => format!("done:{bytes}"),
            Stage::Tombstone { reason } => {
                let escaped =
                    percent_encoding::utf8_percent_encode(reason, percent_encoding::NON_ALPHANUMERIC);
                format!("tombstone:{escaped}")
            }
            Stage::Unknown => "unknown:".to_owned(),
        };
        let digest = self.fingerprint.digest.iter().fold(String::with_capacity(64), |mut digits, byte| {
            write!(digits, "{byte:02x}").expect("writing to a String can't fail");
            digits
        });
        let (owner, fence, version) = (self.owner.to_hex(), self.fence, self.fingerprint.version);
        format!("{VERSION} {stage} {owner} {fence} {version}:{digest} {}", self.note.to_text())
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.splitn(6, ' ');
        if words.next()? != VERSION {
            return None;
        }
        let (stage, detail) = words.next()?.split_once(':')?;
        let mut length = Duration::ZERO;
        let stage = match stage {
            "claimed" => {
                length = Duration::from_millis(detail.parse().ok()?);
                Stage::InFlight
            }
            "done" => Stage::Completed { bytes: detail.parse().ok()? },
            "tombstone" => {
                let reason = percent_encoding::percent_decode_str(detail).decode_utf8().ok()?;
                Stage::Tombstone { reason: reason.into_owned() }
            }
            "unknown" => Stage::Unknown,
            _ => return None,
        };
        let owner = OwnerToken::from_hex(words.next()?)?;
        let fence = FencingToken::new(words.next()?.parse().ok()?);
        let (version, digest) = words.next()?.split_once(':')?;
        let digest = RecordKey::from_hex(digest)?.to_bytes();
        let fingerprint = Fingerprint { version: version.parse().ok()?, digest };
        let note = RecordNote::from_text(words.next()?);
        Some(Self { stage, owner, fence, fingerprint, length, note })
    }

    /// What a settlement makes of it; `None` if it is to be forgotten.
    pub(super) fn settled(&self, settlement: &Settlement) -> Option<(Self, Duration)> {
        let (stage, retain) = match settlement {
            Settlement::Complete { response, retain } => {
                (Stage::Completed { bytes: response.len() as u64 }, *retain)
            }
            Settlement::Release => return None,
            Settlement::Tombstone { reason, retain } => {
                (Stage::Tombstone { reason: reason.clone() }, *retain)
            }
            Settlement::Unknown { retain } => (Stage::Unknown, *retain),
        };
        Some((Self { stage, length: Duration::ZERO, ..self.clone() }, retain))
    }
}

impl Seen {
    /// As claims and look-ups see it.
    pub(super) fn record(self, result: Option<Vec<u8>>) -> Record {
        let state = match self.entry.stage {
            Stage::InFlight => RecordState::InFlight { remaining: self.remaining },
            Stage::Completed { .. } => RecordState::Completed { response: result.unwrap_or_default().into() },
            Stage::Tombstone { reason } => RecordState::Tombstone { reason },
            Stage::Unknown => RecordState::Unknown,
        };
        Record { fingerprint: self.entry.fingerprint, state, note: self.entry.note }
    }

    /// As operators see it.
    pub(super) fn info(self, key: RecordKey, kept_for: Option<Duration>) -> RecordInfo {
        let status = match self.entry.stage {
            Stage::InFlight => RecordStatus::InFlight { remaining: self.remaining },
            Stage::Completed { bytes } => RecordStatus::Completed { bytes },
            Stage::Tombstone { reason } => RecordStatus::Tombstone { reason },
            Stage::Unknown => RecordStatus::Unknown,
        };
        RecordInfo { key, status, kept_for, note: self.entry.note }
    }

    pub(super) fn has_lapsed(&self) -> bool {
        self.entry.stage == Stage::InFlight && self.remaining.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back() {
        let reason = "too large: 5 % of it".to_owned();
        let note = RecordNote::new().with_trace("t").with_label("a b é");
        let stages =
            [Stage::InFlight, Stage::Completed { bytes: 7 }, Stage::Tombstone { reason }, Stage::Unknown];
        for stage in stages {
            for note in [note.clone(), RecordNote::new()] {
                let in_flight = stage == Stage::InFlight;
                let entry = Entry {
                    stage: stage.clone(),
                    owner: OwnerToken::from_hex(&"5".repeat(32)).unwrap(),
                    fence: FencingToken::new(9),
                    fingerprint: Fingerprint { version: 3, digest: [0xab; 32] },
                    length: Duration::from_millis(if in_flight { 30_000 } else { 0 }),
                    note,
                };
                assert_eq!(Entry::decode(entry.encode().as_bytes()), Some(entry));
            }
        }
        assert_eq!(Entry::decode(b"distlock1 done:1"), None);
    }
}
