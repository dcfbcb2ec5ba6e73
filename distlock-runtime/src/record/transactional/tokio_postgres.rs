//! The transactions of the crate `tokio-postgres`.

use std::borrow::Cow;

use ::tokio_postgres::types::{ToSql, Type};
use ::tokio_postgres::{Error, Transaction};

use super::statement::{SqlTransaction, SqlValue, Statement};

impl SqlTransaction for Transaction<'_> {
    type Error = Error;

    async fn fetch(&mut self, statement: &Statement) -> Result<Vec<u8>, Error> {
        let values: Vec<SqlValue<'_>> = statement.values().collect();
        let values: Vec<(&(dyn ToSql + Sync), Type)> = values
            .iter()
            .map(|value| -> (&(dyn ToSql + Sync), Type) {
                match value {
                    SqlValue::Bytes(bytes) => (bytes, Type::BYTEA),
                    SqlValue::Text(text) => (text, Type::TEXT),
                    SqlValue::Int(number) => (number, Type::INT8),
                }
            })
            .collect();
        // One round trip, and no prepared statement that a pooler would have to know.
        self.query_typed_one(statement.sql(), &values).await?.try_get(0)
    }

    fn sqlstate(error: &Error) -> Option<Cow<'_, str>> {
        error.code().map(|code| code.code().into())
    }
}
