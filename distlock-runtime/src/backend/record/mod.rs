//! Idempotency records: the small trait beside the lock waist.
//!
//! One record a key; every transition is one atomic operation, compared on (owner token, fence) and judged by the
//! store's clock: `absent → in flight → completed | tombstone | unknown`.

mod inventory;
mod note;
mod quota;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

pub use inventory::{Purged, RecordFilter, RecordInfo, RecordStatus, Resolved};
pub use note::{RecordNote, RecordScope};
pub use quota::{Charge, Quota, Reservation, Reserved};

use super::{BackendError, BackendErrorKind, Renewal};
use crate::clock::Moment;
use crate::token::{FencingToken, OwnerToken};
use crate::ttl::Ttl;

/// The name of a record: a SHA-256 over length-framed parts, so no choice of client keys shifts the borders.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordKey([u8; 32]);

impl RecordKey {
    /// The key for these parts (scope, client's key, …) in a domain of their own.
    #[must_use]
    pub fn derive(domain: &str, parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in std::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
            hash.update(u64::try_from(part.len()).expect("a length fits in 64 bits").to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }

    /// Reads back what [`to_hex`](Self::to_hex) wrote.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// Reads back what [`to_bytes`](Self::to_bytes) gave.
    #[must_use]
    pub const fn from_bytes(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// The digest itself.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// 64 hex digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a String can't fail");
            text
        })
    }
}

impl fmt::Debug for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RecordKey({}…)", &self.to_hex()[..8])
    }
}

/// What a request looked like, so that the same key with another payload is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    /// Which algorithm made it; a rolling deploy computes the stored version to compare.
    pub version: u16,
    /// Its digest.
    pub digest: [u8; 32],
}

/// What a claim does with a record whose executor's lease ran out before it settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CrashPolicy {
    /// The record becomes `unknown`; nothing runs again (at most once).
    Reject,
    /// A claim with the same fingerprint takes over with a larger fence; the work runs again.
    Takeover,
}

/// A claim for a key.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The record.
    pub key: RecordKey,
    /// This execution's proof of ownership; a repeat with the same one continues as owner.
    pub owner: OwnerToken,
    /// What the request looks like.
    pub fingerprint: Fingerprint,
    /// How long the claim lives without renewal.
    pub lease: Ttl,
    /// What to do with an execution that died.
    pub after_crash: CrashPolicy,
    /// How long an `unknown` record is kept.
    pub retain: Duration,
    /// What the record says to people.
    pub note: RecordNote,
}

/// What a claim found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClaimOutcome {
    /// The key is ours to execute.
    Claimed {
        /// When the command was handed to the socket, or earlier.
        sent: Moment,
        /// Grows with every claim of this key.
        fence: FencingToken,
        /// An execution that died was taken over.
        taken_over: bool,
    },
    /// There is a record already; it was not changed (but for a lapsed one under [`CrashPolicy::Reject`]).
    Present(Record),
}

/// A record as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The fingerprint that its claim came with.
    pub fingerprint: Fingerprint,
    /// Its state.
    pub state: RecordState,
    /// What its claim left for people.
    pub note: RecordNote,
}

/// The state of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordState {
    /// Somebody executes it.
    InFlight {
        /// How long the executor's lease still runs unless renewed; zero if it lapsed.
        remaining: Duration,
    },
    /// Done; this is the stored result.
    Completed {
        /// The encoded result, opaque to the store.
        response: Bytes,
    },
    /// Done, but the result was not kept.
    Tombstone {
        /// Why.
        reason: String,
    },
    /// It may or may not have happened.
    Unknown,
    /// Done, but the stored result can't be unpacked here: no key for it, changed, or of a version that isn't known. Said by
    /// [`Records`](crate::Records), never by a store.
    Unreadable {
        /// Why.
        why: &'static str,
    },
}

/// A claim that is held: what renewal and settlement are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLease {
    /// The record.
    pub key: RecordKey,
    /// The claim's owner.
    pub owner: OwnerToken,
    /// The claim's fence.
    pub fence: FencingToken,
    /// The claim's full length.
    pub ttl: Ttl,
}

/// How a claim ends. Retention starts at the settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settlement {
    /// Keep this result for later replays.
    Complete {
        /// The encoded result.
        response: Bytes,
        /// For how long.
        retain: Duration,
    },
    /// Nothing happened: forget the record, the next request executes.
    Release,
    /// It happened, the result isn't kept.
    Tombstone {
        /// Why, a short word.
        reason: String,
        /// For how long to refuse.
        retain: Duration,
    },
    /// It may or may not have happened.
    Unknown {
        /// For how long to refuse.
        retain: Duration,
    },
}

/// What a settlement met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The record is settled as asked (now, or by an earlier try of the same owner and fence).
    Done,
    /// The claim isn't ours any more; nothing was changed.
    Fenced,
}

/// A store of idempotency records. Every call is safe to repeat with the same owner and fence.
#[async_trait]
pub trait RecordStore: fmt::Debug + Send + Sync + 'static {
    /// Claims the key, or tells what stands there.
    async fn claim(&self, claim: &Claim) -> Result<ClaimOutcome, BackendError>;

    /// Undoes a claim whose outcome is unknown and whose work was never begun: forgets the record if this owner has it
    /// in flight, and as far as the store can, makes a late arrival of the claim harmless.
    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError>;

    /// Renews claims to their full ttl; one outcome each, in order.
    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal>;

    /// Ends a claim under its fence.
    async fn settle(&self, lease: &RecordLease, settlement: &Settlement) -> Result<Settled, BackendError>;

    /// The record as it stands; `None` if there is none.
    async fn look_up(&self, key: &RecordKey) -> Result<Option<Record>, BackendError>;

    /// Waits until the record may have changed, at most `at_most`. May return early. Registers its interest before it
    /// looks, so a change after the last look-up isn't missed by more than the store's fallback period.
    async fn changed(&self, key: &RecordKey, at_most: Duration);

    /// The records that pass the filter, `limit` at most. What changes meanwhile may be missing or be shown as it was. Looks
    /// at the store step by step, never at all of it at once.
    async fn list_records(
        &self,
        filter: &RecordFilter,
        limit: usize,
    ) -> Result<Vec<RecordInfo>, BackendError> {
        let _ = (filter, limit);
        Err(unsupported())
    }

    /// Settles a record whose outcome nobody knows: one that is unknown, or in flight with a lapsed lease. With a
    /// fingerprint, only if it is the record's. Whoever had claimed it is fenced off from then on.
    async fn resolve(
        &self,
        key: &RecordKey,
        fingerprint: Option<Fingerprint>,
        settlement: &Settlement,
    ) -> Result<Resolved, BackendError> {
        let _ = (key, fingerprint, settlement);
        Err(unsupported())
    }

    /// Gives a record its place in its scope's quota, before it is claimed. One that has its place keeps it.
    async fn reserve(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        let _ = wanted;
        Err(unsupported())
    }

    /// Says what a record's place is worth, or gives it back; nothing happens to a record without one.
    async fn charge(&self, charge: &Charge) -> Result<(), BackendError> {
        let _ = charge;
        Err(unsupported())
    }

    /// Forgets the records of this scope, `limit` at most, but those that somebody executes. Looks at the store step by step.
    async fn purge(&self, scope: &RecordScope, limit: usize) -> Result<Purged, BackendError> {
        let _ = (scope, limit);
        Err(unsupported())
    }
}

fn unsupported() -> BackendError {
    BackendError::refused(BackendErrorKind::Unsupported, "the store can't do this with records")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_framed() {
        assert_ne!(RecordKey::derive("d", &[b"ab", b"c"]), RecordKey::derive("d", &[b"a", b"bc"]));
        assert_ne!(RecordKey::derive("d", &[b"a"]), RecordKey::derive("da", &[]));
        assert_eq!(RecordKey::derive("d", &[b"a"]).to_hex().len(), 64);
    }
}
