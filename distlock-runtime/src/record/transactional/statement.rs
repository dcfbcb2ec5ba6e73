//! What goes to the database, for any client.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// A statement for your client: its text with `$1`, `$2`, …, and a value for each.
///
/// It gives one row with one column, a `bytea`.
#[derive(Clone, PartialEq, Eq)]
pub struct Statement {
    pub(super) sql: String,
    pub(super) values: Vec<OwnedValue>,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum OwnedValue {
    Bytes(Vec<u8>),
    Text(String),
    Int(i64),
}

/// The value of a parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SqlValue<'a> {
    /// A `bytea`.
    Bytes(&'a [u8]),
    /// A `text`.
    Text(&'a str),
    /// A `bigint`.
    Int(i64),
}

impl Statement {
    /// Its text.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }

    /// The values of `$1`, `$2`, … in this order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = SqlValue<'_>> {
        self.values.iter().map(|value| match value {
            OwnedValue::Bytes(bytes) => SqlValue::Bytes(bytes),
            OwnedValue::Text(text) => SqlValue::Text(text),
            OwnedValue::Int(number) => SqlValue::Int(*number),
        })
    }
}

/// A transaction of your own client, as far as records need it.
///
/// With the feature `tokio-postgres` there is one for `tokio_postgres::Transaction`. With sqlx it is:
///
/// ```ignore
/// struct Tx<'a>(sqlx::Transaction<'a, sqlx::Postgres>);
///
/// impl SqlTransaction for Tx<'_> {
///     type Error = sqlx::Error;
///
///     async fn fetch(&mut self, statement: &Statement) -> Result<Vec<u8>, sqlx::Error> {
///         let mut query = sqlx::query_scalar(statement.sql());
///         for value in statement.values() {
///             query = match value {
///                 SqlValue::Bytes(bytes) => query.bind(bytes),
///                 SqlValue::Text(text) => query.bind(text),
///                 SqlValue::Int(number) => query.bind(number),
///                 _ => unreachable!("there are no others in this version"),
///             };
///         }
///         query.fetch_one(&mut *self.0).await
///     }
///
///     fn sqlstate(error: &sqlx::Error) -> Option<std::borrow::Cow<'_, str>> {
///         error.as_database_error()?.code()
///     }
/// }
/// ```
///
/// A client that isn't async (diesel, `postgres`) takes the statements by themselves:
/// [`TransactionClaim::prepare`](super::TransactionClaim::prepare).
pub trait SqlTransaction {
    /// The client's error.
    type Error: Error + Send + Sync + 'static;

    /// Runs the statement in this transaction, and gives the one value of its one row.
    fn fetch(&mut self, statement: &Statement) -> impl Future<Output = Result<Vec<u8>, Self::Error>> + Send;

    /// The SQLSTATE of an error that the server gave, from which its kind is told.
    fn sqlstate(error: &Self::Error) -> Option<Cow<'_, str>> {
        let _ = error;
        None
    }
}

impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement").field("sql", &self.sql).finish_non_exhaustive()
    }
}

/// Values may be somebody's response: only their kind and length is shown.
impl fmt::Debug for SqlValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Int(number) => write!(f, "Int({number})"),
        }
    }
}
