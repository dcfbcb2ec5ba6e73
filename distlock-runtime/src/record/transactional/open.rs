//! A claim that is held by an open transaction, and the answers that lead there.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::claim::milliseconds;
use super::statement::{OwnedValue, SqlTransaction, Statement};
use super::{TransactionalRecords, refusal};
use crate::backend::{Fingerprint, RecordKey};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::record::Fingerprints;
use crate::record::packing::Place;
use crate::token::{FencingToken, OwnerToken};

/// What a claim in a transaction found.
#[derive(Debug)]
pub enum Begun {
    /// The key is new. Do the work in this transaction, settle the claim in it, and commit.
    Execute(OpenClaim),
    /// It was done before; this is its response.
    Completed(Response),
}

/// A response that was kept.
#[derive(Clone)]
pub struct Response {
    bytes: Bytes,
    #[cfg(feature = "idempotent")]
    key: LockKey,
}

impl Response {
    /// As it was given to [`complete`](OpenClaim::complete).
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// As it was given to [`complete`](OpenClaim::complete).
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }

    /// The value that was given to [`complete_with`](OpenClaim::complete_with).
    ///
    /// # Errors
    /// `RECORD_UNREADABLE` if it was another type's, or bytes were given.
    #[cfg(feature = "idempotent")]
    pub fn value<T>(&self) -> Result<T, LockError>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let read = crate::record::Kept::<Result<T, std::convert::Infallible>>::values().decode(&self.bytes);
        match read {
            Ok(Ok(value)) => Ok(value),
            Err(why) => {
                Err(LockError::new(ErrorKind::RecordUnreadable, "claim").for_key(&self.key).detail(why))
            }
        }
    }
}

/// A claim that holds until its transaction ends.
///
/// A transaction that commits without [`complete`](Self::complete), [`complete_without`](Self::complete_without) or
/// [`forget`](Self::forget) leaves a record that says that nobody knows the outcome. To undo everything, roll back.
#[derive(Clone, Debug)]
#[must_use = "settle it before the commit, or nothing runs under its key again"]
pub struct OpenClaim {
    records: TransactionalRecords,
    key: LockKey,
    record: RecordKey,
    owner: OwnerToken,
    fence: FencingToken,
    fingerprint: Fingerprint,
    retain: Duration,
}

impl OpenClaim {
    pub(super) fn new(
        records: TransactionalRecords,
        key: LockKey,
        record: RecordKey,
        owner: OwnerToken,
        fingerprint: Fingerprint,
        retain: Duration,
    ) -> Self {
        Self { records, key, record, owner, fence: FencingToken::new(0), fingerprint, retain }
    }

    /// Grows with every claim of this key.
    #[must_use]
    pub fn fence(&self) -> FencingToken {
        self.fence
    }

    /// Keeps the response, from the commit on.
    ///
    /// # Errors
    /// `SUPERSEDED` if this isn't the transaction that the claim was made in, or a savepoint before it was rolled back to: roll back.
    /// `RECORD_UNREADABLE` if the response can't be packed: nothing was sent. An error with a [source](std::error::Error::source) of the
    /// client's has failed the transaction.
    ///
    /// # Cancel safety
    /// Dropped, it may have been kept: roll back, or commit and look.
    pub async fn complete<X: SqlTransaction>(
        self,
        transaction: &mut X,
        response: impl Into<Bytes>,
    ) -> Result<(), LockError> {
        let statement = self.completion(response)?;
        self.settle(transaction, &statement).await
    }

    /// The same for a value, with serde as JSON; [`Response::value`] gives it back.
    ///
    /// # Errors
    /// As [`complete`](Self::complete), and `CONFIG` for a value that can't be written as JSON.
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    #[cfg(feature = "idempotent")]
    pub async fn complete_with<X: SqlTransaction>(
        self,
        transaction: &mut X,
        value: &(impl serde::Serialize + ?Sized),
    ) -> Result<(), LockError> {
        // Nothing of the value is held over an await.
        let statement = crate::record::kept_value(value)
            .map_err(|error| {
                LockError::new(ErrorKind::Config, "settle")
                    .for_key(&self.key)
                    .detail("the value can't be written as JSON")
                    .caused_by(error)
            })
            .and_then(|bytes| self.completion(bytes));
        let statement = statement?;
        self.settle(transaction, &statement).await
    }

    /// Says that it was done, without a response to keep: whoever asks again gets `RESULT_NOT_RETAINED`, with this short word.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn complete_without<X: SqlTransaction>(
        self,
        transaction: &mut X,
        reason: &str,
    ) -> Result<(), LockError> {
        let statement = self.statement("t", reason.as_bytes().to_vec())?;
        self.settle(transaction, &statement).await
    }

    /// Gives the key back, with the commit: nothing was done under it, and the next one executes.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn forget<X: SqlTransaction>(self, transaction: &mut X) -> Result<(), LockError> {
        let statement = self.statement("r", Vec::new())?;
        self.settle(transaction, &statement).await
    }

    /// The statement of [`complete`](Self::complete), for a client that is no [`SqlTransaction`]; its answer goes to
    /// [`confirm`](Self::confirm).
    ///
    /// # Errors
    /// `RECORD_UNREADABLE` if the response can't be packed.
    pub fn completion(&self, response: impl Into<Bytes>) -> Result<Statement, LockError> {
        let packed = self.records.packing.pack(self.place(), response.into()).map_err(|why| {
            LockError::new(ErrorKind::RecordUnreadable, "settle").for_key(&self.key).detail(why)
        })?;
        self.statement("c", packed.to_vec())
    }

    /// Whether the answer of [`completion`](Self::completion) says that the response is kept.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    pub fn confirm(&self, answer_of_statement: &[u8]) -> Result<(), LockError> {
        if answer_of_statement == b"y" {
            return Ok(());
        }
        Err(LockError::new(ErrorKind::Superseded, "settle")
            .for_key(&self.key)
            .detail("the transaction doesn't hold the claim")
            .remedy("roll back; settle a claim in the transaction that made it"))
    }

    async fn settle<X: SqlTransaction>(
        &self,
        transaction: &mut X,
        statement: &Statement,
    ) -> Result<(), LockError> {
        let answer = refusal::fetch(transaction, statement, "settle").await;
        self.confirm(&answer.map_err(|error| error.for_key(&self.key))?)
    }

    fn statement(&self, state: &str, result: Vec<u8>) -> Result<Statement, LockError> {
        let schema = self.records.checked_schema()?;
        Ok(Statement {
            sql: format!("select \"{schema}\".tx_settle($1, $2, $3, $4, $5, $6, $7)"),
            values: vec![
                OwnedValue::Text(self.records.namespace.clone()),
                OwnedValue::Bytes(self.record.to_bytes().to_vec()),
                OwnedValue::Text(self.owner.to_hex()),
                OwnedValue::Int(i64::try_from(self.fence.get()).unwrap_or(i64::MAX)),
                OwnedValue::Text(state.to_owned()),
                OwnedValue::Int(milliseconds(self.retain)),
                OwnedValue::Bytes(result),
            ],
        })
    }

    fn place(&self) -> Place {
        Place { key: self.record, fingerprint: self.fingerprint }
    }

    pub(super) fn error(&self, kind: ErrorKind) -> LockError {
        LockError::new(kind, "claim").for_key(&self.key)
    }
}

/// It may be anything: only its length is shown.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Response({} bytes)", self.bytes.len())
    }
}

/// What the answer to a claim says.
pub(super) fn answer(
    mut open: OpenClaim,
    fingerprints: &Fingerprints,
    answer: Vec<u8>,
) -> Result<Begun, LockError> {
    let unreadable =
        |open: &OpenClaim, why: &'static str| open.error(ErrorKind::RecordUnreadable).detail(why);
    let Some((kind, rest)) = answer.split_first() else { return Err(unreadable(&open, "an empty answer")) };
    match kind {
        b'n' => {
            let fence = rest.try_into().map_err(|_| unreadable(&open, "a fence of another length"))?;
            open.fence = FencingToken::new(u64::from_be_bytes(fence));
            return Ok(Begun::Execute(open));
        }
        b'b' | b'i' => {
            return Err(open
                .error(ErrorKind::InFlight)
                .detail("another claim of this key is open, in this transaction or in another one")
                .remedy("ask again, in a transaction of its own"));
        }
        _ => {}
    }
    let stored = match (rest.first_chunk::<4>(), rest.get(4..36), rest.get(36..)) {
        (Some(version), Some(digest), Some(result)) => {
            u16::try_from(u32::from_be_bytes(*version)).ok().zip(digest.try_into().ok()).zip(Some(result))
        }
        _ => None,
    };
    let Some(((version, digest), result)) = stored else {
        return Err(unreadable(&open, "the record was written by another version"));
    };
    let fingerprint = Fingerprint { version, digest };
    match fingerprints.matches(&fingerprint) {
        None => return Err(unreadable(&open, "the fingerprint was made by a rule that is not known")),
        Some(false) => {
            return Err(open
                .error(ErrorKind::KeyReused)
                .remedy("a key names one operation with its arguments"));
        }
        Some(true) => {}
    }
    match kind {
        b'c' => {
            let place = Place { key: open.record, fingerprint };
            match open.records.packing.unpack(place, Bytes::copy_from_slice(result)) {
                Ok(bytes) => Ok(Begun::Completed(Response {
                    bytes,
                    #[cfg(feature = "idempotent")]
                    key: open.key,
                })),
                Err(why) => Err(unreadable(&open, why)),
            }
        }
        b't' => {
            let reason = String::from_utf8_lossy(result).into_owned();
            Err(open.error(ErrorKind::ResultNotRetained).detail(reason))
        }
        b'u' => Err(open
            .error(ErrorKind::OutcomeUnknown)
            .detail("a transaction committed without settling its claim")
            .remedy("find out what it did, then Records::resolve with TransactionalRecords::record(key)")),
        _ => Err(unreadable(&open, "the record was written by another version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> OpenClaim {
        let key = LockKey::new("k").unwrap();
        let record = super::super::record_of(&key);
        OpenClaim::new(
            TransactionalRecords::new(),
            key,
            record,
            OwnerToken::random().unwrap(),
            Fingerprint { version: 1, digest: [7; 32] },
            Duration::from_secs(60),
        )
    }

    fn read(bytes: &[u8]) -> Result<Begun, LockError> {
        answer(open(), &Fingerprint { version: 1, digest: [7; 32] }.into(), bytes.to_vec())
    }

    fn stored(state: u8, version: u32, digit: u8, result: &[u8]) -> Vec<u8> {
        [&[state], &version.to_be_bytes()[..], &[digit; 32], result].concat()
    }

    #[test]
    fn answers_are_told_apart() {
        let Ok(Begun::Execute(claim)) = read(b"n\0\0\0\0\0\0\x01\x02") else { panic!("new") };
        assert_eq!(claim.fence().get(), 258);
        let Ok(Begun::Completed(response)) = read(&stored(b'c', 1, 7, b"paid")) else { panic!("done") };
        assert_eq!(response.bytes(), "paid");
        for (bytes, kind) in [
            (&b"b"[..], ErrorKind::InFlight),
            (&stored(b'i', 1, 7, b""), ErrorKind::InFlight),
            (&stored(b'c', 1, 8, b"paid"), ErrorKind::KeyReused),
            (&stored(b'u', 1, 8, b""), ErrorKind::KeyReused),
            (&stored(b'u', 1, 7, b""), ErrorKind::OutcomeUnknown),
            (&stored(b't', 1, 7, b"too long"), ErrorKind::ResultNotRetained),
            (&stored(b'c', 2, 7, b"paid"), ErrorKind::RecordUnreadable),
            (&stored(b'c', 70_000, 7, b"paid"), ErrorKind::RecordUnreadable),
            (&stored(b'z', 1, 7, b""), ErrorKind::RecordUnreadable),
            (b"c", ErrorKind::RecordUnreadable),
            (b"n1", ErrorKind::RecordUnreadable),
            (b"", ErrorKind::RecordUnreadable),
        ] {
            assert_eq!(read(bytes).unwrap_err().kind(), kind, "{bytes:?}");
        }
    }

    #[test]
    fn a_completion_that_is_not_confirmed_is_an_error() {
        assert!(open().confirm(b"y").is_ok());
        for answer in [&b"n"[..], b"", b"yes"] {
            assert_eq!(open().confirm(answer).unwrap_err().kind(), ErrorKind::Superseded);
        }
    }

    #[test]
    fn nothing_of_a_response_shows_in_debug() {
        let statement = open().completion("secret").unwrap();
        assert!(!format!("{statement:?} {:?}", statement.values().collect::<Vec<_>>()).contains("secret"));
    }
}
