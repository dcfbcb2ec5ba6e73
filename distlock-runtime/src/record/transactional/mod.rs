//! Records that commit with an application's own transaction in Postgres: exactly once with what it writes there.

mod claim;
mod open;
mod refusal;
mod statement;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::fmt;

pub use self::claim::{PreparedClaim, TransactionClaim};
pub use self::open::{Begun, OpenClaim, Response};
pub use self::statement::{SqlTransaction, SqlValue, Statement};
use crate::backend::RecordKey;
use crate::backend::postgres::{PostgresOptions, check_schema};
use crate::error::LockError;
use crate::key::LockKey;
use crate::record::Packing;

/// Names the layout of these records: another layout must never meet them.
const DOMAIN: &str = "distlock.transaction.1";

/// Idempotency records inside of your own transactions in Postgres: where the tables are, and whose records these are. Cheap to clone; make
/// one and keep it.
///
/// A claim is one statement at the beginning of a transaction of yours, the response another one at its end. They commit with what you write
/// in between or not at all, so each key takes effect **exactly once**: a process that dies before the commit leaves nothing and the next one
/// runs, one that dies after it has left its response with its effect.
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::LockError;
/// use distlock::postgres::{Begun, SqlTransaction, TransactionalRecords};
///
/// # trait Execute { async fn execute(&mut self, sql: &str) -> Result<u64, LockError>; async fn commit(self) -> Result<(), LockError>; }
/// # async fn pay(mut tx: impl SqlTransaction + Execute) -> Result<String, LockError> {
/// let records = TransactionalRecords::new();
/// // `tx` is a transaction of your client
/// let receipt = match records.claim("payment:42").begin(&mut tx).await? {
///     Begun::Completed(response) => response.into_bytes(), // it was done before
///     Begun::Execute(claim) => {
///         tx.execute("insert into payment values (42, 1250)").await?; // an error drops `tx`: nothing of it is left
///         claim.complete(&mut tx, "paid").await?;
///         "paid".into()
///     }
/// };
/// tx.commit().await?;
/// # Ok(String::from_utf8_lossy(&receipt).into_owned())
/// # }
/// ```
///
/// With the feature `tokio-postgres` its transactions are [`SqlTransaction`]s. For any other client it takes a dozen lines: see there. The
/// client may talk to a pooler in transaction mode.
///
/// # What it promises
/// * Of transactions with the same key at the same time one executes; the others wait for it ([`wait`](TransactionClaim::wait)), or are told
///   `IN_FLIGHT` at once. Their transaction is still good then.
/// * A rollback, and a connection that breaks, leave nothing: the next transaction executes.
/// * A transaction that commits without having settled its claim has run something that nobody knows of: whoever asks again gets
///   `OUTCOME_UNKNOWN`, and nothing runs.
/// * Effects outside of the database are not part of it. Where there are some, write them into a table of things to be done (an outbox) in
///   the same transaction.
///
/// The isolation level is yours. Under `REPEATABLE READ` and `SERIALIZABLE` a claim that meets one committed after the transaction began
/// is refused with SQLSTATE 40001, as any write is there: roll back and run the transaction again.
#[derive(Clone)]
pub struct TransactionalRecords {
    schema: String,
    namespace: String,
    packing: Packing,
}

impl TransactionalRecords {
    /// In the schema `distlock` and the namespace `distlock`, as stores have them unless their URL says otherwise.
    #[must_use]
    pub fn new() -> Self {
        Self { schema: "distlock".to_owned(), namespace: "distlock".to_owned(), packing: Packing::new() }
    }

    /// In the schema and the namespace of a store's options: `PostgresOptions::from_url(url)?`.
    ///
    /// # Errors
    /// `CONFIG` for names that can't be.
    pub fn with_options(options: &PostgresOptions) -> Result<Self, LockError> {
        let (schema, namespace) = options.names().map_err(|error| error.into_lock_error("claim", None))?;
        Ok(Self::new().schema(schema).namespace(namespace))
    }

    /// The schema that the tables are in.
    #[must_use]
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// What distinguishes the records of one application.
    #[must_use]
    pub fn namespace(mut self, name: impl Into<String>) -> Self {
        self.namespace = name.into();
        self
    }

    /// How responses are written: compressed, sealed.
    #[must_use]
    pub fn packing(mut self, packing: Packing) -> Self {
        self.packing = packing;
        self
    }

    /// A claim for this key: text, or a [`LockKey`] built with `KeyWriter`. A key that can't be is reported when the claim begins.
    pub fn claim<K>(&self, key: K) -> TransactionClaim
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        TransactionClaim::new(self.clone(), key.try_into().map_err(Into::into))
    }

    /// The name of a key's record, for those who look at records.
    ///
    /// # Errors
    /// `CONFIG` for a key that can't be.
    pub fn record<K>(&self, key: K) -> Result<RecordKey, LockError>
    where
        K: TryInto<LockKey>,
        K::Error: Into<LockError>,
    {
        Ok(record_of(&key.try_into().map_err(Into::into)?))
    }

    /// The schema as it may stand in a statement.
    fn checked_schema(&self) -> Result<&str, LockError> {
        check_schema(&self.schema).map_err(|error| error.into_lock_error("claim", None))
    }
}

impl Default for TransactionalRecords {
    fn default() -> Self {
        Self::new()
    }
}

fn record_of(key: &LockKey) -> RecordKey {
    RecordKey::derive(DOMAIN, &[key.as_str().as_bytes()])
}

impl fmt::Debug for TransactionalRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionalRecords")
            .field("schema", &self.schema)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}
