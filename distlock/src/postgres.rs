//! Records that commit with your own transaction in Postgres: exactly once with what it writes.
//!
//! [`TransactionalRecords`] has the whole of it; the [guide](crate::guide::idempotency#in-a-transaction-of-your-own) says when to use them
//! instead of the layer or beside it.

#[doc(inline)]
pub use distlock_runtime::postgres::{
    Begun, OpenClaim, PreparedClaim, Response, SqlTransaction, SqlValue, Statement, TransactionClaim,
    TransactionalRecords,
};
