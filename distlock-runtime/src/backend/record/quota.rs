//! How many records a scope may have, and how much they may keep.

use std::time::Duration;

use super::{RecordKey, RecordScope, Settlement};

/// The bounds of one scope: one principal, or one tenant. Records without a scope are not bounded.
///
/// A claim of a new key takes a place, and is refused where there is none; repeats of a key that has its place always pass. Results
/// count with their length as stored, from when they are settled: a scope may go beyond its bytes by what was under way when
/// it reached them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub(crate) keys: u64,
    pub(crate) bytes: u64,
}

impl Quota {
    /// No bounds; set the ones you want.
    #[must_use]
    pub const fn new() -> Self {
        Self { keys: u64::MAX, bytes: u64::MAX }
    }

    /// How many records may live at a time, in flight and kept.
    #[must_use]
    pub const fn keys(mut self, keys: u64) -> Self {
        self.keys = keys;
        self
    }

    /// How many bytes of results may be kept, as stored.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// How many records may live at a time; `u64::MAX` if that isn't bounded.
    #[must_use]
    pub const fn max_keys(&self) -> u64 {
        self.keys
    }

    /// How many bytes of results may be kept; `u64::MAX` if that isn't bounded.
    #[must_use]
    pub const fn max_bytes(&self) -> u64 {
        self.bytes
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self::new()
    }
}

/// A place asked for, before the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Whose.
    pub scope: RecordScope,
    /// For which record.
    pub key: RecordKey,
    /// How long the place is kept if nothing more is heard of the record.
    pub hold: Duration,
    /// The bounds.
    pub quota: Quota,
}

/// Whether there was a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reserved {
    /// The record has its place, now or from before.
    Granted,
    /// There is none.
    Full {
        /// How many records the scope has.
        keys: u64,
        /// How many bytes they keep.
        bytes: u64,
    },
}

/// What a place is worth after the settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Whose.
    pub scope: RecordScope,
    /// Of which record.
    pub key: RecordKey,
    /// How long its result is, as stored.
    pub bytes: u64,
    /// How long it is kept; zero gives the place back.
    pub retain: Duration,
}

impl Charge {
    /// That of a settlement.
    #[must_use]
    pub fn of(scope: RecordScope, key: RecordKey, settlement: &Settlement) -> Self {
        let (bytes, retain) = match settlement {
            Settlement::Complete { response, retain } => (response.len() as u64, *retain),
            Settlement::Tombstone { retain, .. } | Settlement::Unknown { retain } => (0, *retain),
            Settlement::Release => (0, Duration::ZERO),
        };
        Self { scope, key, bytes, retain }
    }
}
