//! A claim that is about to begin.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::open::{Begun, OpenClaim, answer};
use super::statement::{OwnedValue, SqlTransaction, Statement};
use super::{TransactionalRecords, record_of, refusal};
use crate::backend::{Fingerprint, RecordNote, RecordScope};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::record::Fingerprints;
use crate::token::OwnerToken;

/// Longer ones are for ever: a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
/// A shorter retention would end before anybody can ask again.
const SHORTEST_RETENTION: Duration = Duration::from_secs(1);

/// A claim in a transaction, made by [`TransactionalRecords::claim`].
#[derive(Clone, Debug)]
#[must_use = "nothing is claimed before begin() or run()"]
pub struct TransactionClaim {
    records: TransactionalRecords,
    key: Result<LockKey, LockError>,
    fingerprints: Result<Fingerprints, LockError>,
    note: RecordNote,
    retain: Duration,
    wait: Duration,
}

/// A claim as a statement, for clients that run it themselves.
#[derive(Clone, Debug)]
#[must_use = "run the statement, then give its answer to `read`"]
pub struct PreparedClaim {
    statement: Statement,
    open: OpenClaim,
    fingerprints: Fingerprints,
}

impl TransactionClaim {
    pub(super) fn new(records: TransactionalRecords, key: Result<LockKey, LockError>) -> Self {
        // That of a call without arguments.
        let nothing = Fingerprint { version: 1, digest: Sha256::digest(b"n").into() };
        Self {
            records,
            key,
            fingerprints: Ok(nothing.into()),
            note: RecordNote::new(),
            retain: Duration::from_secs(24 * 60 * 60),
            wait: Duration::from_secs(10),
        }
    }

    /// What the work is about, so that the same key with something else is `KEY_REUSED` instead of the wrong response. As with
    /// [`Idempotent::fingerprint`](crate::Idempotent::fingerprint); without it the key says all.
    #[cfg(feature = "idempotent")]
    pub fn fingerprint(mut self, about: &(impl serde::Serialize + ?Sized)) -> Self {
        self.fingerprints = crate::record::fingerprint_of(about);
        self
    }

    /// The same for digests of your own.
    pub fn fingerprints(mut self, fingerprints: impl Into<Fingerprints>) -> Self {
        self.fingerprints = Ok(fingerprints.into());
        self
    }

    /// How long the record is kept, from its settlement (24 h).
    pub fn retain(mut self, length: Duration) -> Self {
        self.retain = length;
        self
    }

    /// How long to wait for another transaction with this key (10 s), before `IN_FLIGHT`; zero doesn't wait. The wait takes the
    /// transaction's connection. Two transactions that wait for each other are seen by the database, which ends one of them.
    pub fn wait(mut self, length: Duration) -> Self {
        self.wait = length;
        self
    }

    /// Whose the record is, so that operators can list and purge it. It doesn't make another key: put the tenant into the key too.
    pub fn scope(mut self, scope: RecordScope) -> Self {
        self.note = self.note.with_scope(scope);
        self
    }

    /// The trace that the work is part of: a W3C `traceparent`, kept in the record for people.
    pub fn trace(mut self, traceparent: &str) -> Self {
        self.note = self.note.with_trace(traceparent);
        self
    }

    /// Claims the key for the rest of the transaction, or gives the response that is there.
    ///
    /// # Errors
    /// `IN_FLIGHT`, `KEY_REUSED`, `OUTCOME_UNKNOWN`, `RESULT_NOT_RETAINED`, `RECORD_UNREADABLE`, and `CONFIG` for a key, a schema or a
    /// retention that can't be: nothing was claimed, the transaction is still good. Every other one, also `CONFIG`, has the client's error
    /// as its [source](std::error::Error::source): the transaction has failed, roll it back.
    ///
    /// # Cancel safety
    /// Dropped, it may have claimed: roll back.
    pub async fn begin<X: SqlTransaction>(self, transaction: &mut X) -> Result<Begun, LockError> {
        let prepared = self.prepare()?;
        let answer = refusal::fetch(transaction, &prepared.statement, "claim").await?;
        prepared.read(answer)
    }

    /// The claim as a statement, for a client that is no [`SqlTransaction`]: run it, and give its answer to
    /// [`read`](PreparedClaim::read).
    ///
    /// # Errors
    /// `CONFIG` for a key, a schema or a retention that can't be.
    pub fn prepare(self) -> Result<PreparedClaim, LockError> {
        let key = self.key?;
        let fingerprints = self.fingerprints.map_err(|error| error.for_key(&key))?;
        if self.retain < SHORTEST_RETENTION {
            return Err(LockError::new(ErrorKind::Config, "claim")
                .for_key(&key)
                .detail(format!("a retention of {:?} ends before anybody can ask again", self.retain))
                .remedy("choose hours; it counts from the completion"));
        }
        let schema = self.records.checked_schema().map_err(|error| error.for_key(&key))?;
        let owner = OwnerToken::random()?;
        let record = record_of(&key);
        let fingerprint = fingerprints.current();
        // Who seals responses doesn't want their keys to be read either.
        let note =
            if self.records.packing.is_sealed() { self.note } else { self.note.with_label(key.as_str()) };
        let statement = Statement {
            sql: format!("select \"{schema}\".tx_claim($1, $2, $3, $4, $5, $6, $7, $8, $9)"),
            values: vec![
                OwnedValue::Text(self.records.namespace.clone()),
                OwnedValue::Bytes(record.to_bytes().to_vec()),
                OwnedValue::Text(owner.to_hex()),
                OwnedValue::Int(fingerprint.version.into()),
                OwnedValue::Bytes(fingerprint.digest.to_vec()),
                OwnedValue::Int(milliseconds(self.wait)),
                OwnedValue::Int(milliseconds(self.retain)),
                OwnedValue::Bytes(note.scope().map(RecordScope::to_bytes).unwrap_or_default().to_vec()),
                OwnedValue::Text(note.to_text()),
            ],
        };
        let open = OpenClaim::new(self.records, key, record, owner, fingerprint, self.retain);
        Ok(PreparedClaim { statement, open, fingerprints })
    }
}

impl PreparedClaim {
    /// What to run.
    #[must_use]
    pub fn statement(&self) -> &Statement {
        &self.statement
    }

    /// What the answer says.
    ///
    /// # Errors
    /// As [`TransactionClaim::begin`], without the client's.
    pub fn read(self, answer_of_statement: impl Into<Vec<u8>>) -> Result<Begun, LockError> {
        answer(self.open, &self.fingerprints, answer_of_statement.into())
    }
}

pub(super) fn milliseconds(span: Duration) -> i64 {
    i64::try_from(span.min(FOR_EVER).as_nanos().div_ceil(1_000_000)).expect("a hundred years fit")
}
