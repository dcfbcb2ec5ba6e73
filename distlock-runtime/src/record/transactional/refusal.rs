//! What a database's error means for a transaction with a record in it.

use super::statement::{SqlTransaction, Statement};
use crate::error::{ErrorKind, LockError};

/// Runs a statement; an error says what it means.
pub(super) async fn fetch<X: SqlTransaction>(
    transaction: &mut X,
    statement: &Statement,
    operation: &'static str,
) -> Result<Vec<u8>, LockError> {
    transaction.fetch(statement).await.map_err(|error| {
        let state = X::sqlstate(&error).map(std::borrow::Cow::into_owned);
        refused(state.as_deref(), operation).caused_by(error)
    })
}

fn refused(state: Option<&str>, operation: &'static str) -> LockError {
    let error = |kind| LockError::new(kind, operation);
    match state {
        // A client that doesn't tell the state, or a connection that broke.
        None => error(ErrorKind::Connection)
            .detail("the statement failed, and with it the transaction")
            .remedy("roll back; whether to run the transaction again is said by the client's error"),
        Some("40001" | "40P01") => error(ErrorKind::Connection)
            .detail("the database ended the transaction in favour of another one")
            .remedy("roll back, and run the transaction again from its beginning"),
        Some("42883" | "42P01" | "3F000") => error(ErrorKind::Config)
            .detail("the schema has no tables of distlock's, or those of an older version")
            .remedy("connect a manager to this database once, or run the text of PostgresOptions::migration there"),
        Some("42501") => error(ErrorKind::Permission)
            .detail("the role may not use the tables of distlock's")
            .remedy("grant it what docs/operators.md lists"),
        Some("25006") => error(ErrorKind::Config)
            .detail("the transaction only reads, and a claim is written")
            .remedy("begin it as one that writes, on the primary"),
        Some("57014") => error(ErrorKind::Connection)
            .detail("the statement took longer than the role's statement_timeout")
            .remedy("roll back, and wait for others for a shorter time than that"),
        Some("53100" | "53200") => error(ErrorKind::OutOfMemory).remedy("give the database room"),
        Some(state) if state.starts_with("08") || state.starts_with("57P") || state == "53300" => {
            error(ErrorKind::Connection)
                .detail("the database is not there now")
                .remedy("roll back, and run the transaction again")
        }
        Some(_) => error(ErrorKind::Script)
            .detail("the statement failed, and with it the transaction")
            .remedy("roll back"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_told_apart() {
        for (state, kind) in [
            (None, ErrorKind::Connection),
            (Some("40001"), ErrorKind::Connection),
            (Some("57P01"), ErrorKind::Connection),
            (Some("08006"), ErrorKind::Connection),
            (Some("57014"), ErrorKind::Connection),
            (Some("42883"), ErrorKind::Config),
            (Some("25006"), ErrorKind::Config),
            (Some("42501"), ErrorKind::Permission),
            (Some("53100"), ErrorKind::OutOfMemory),
            (Some("25P02"), ErrorKind::Script),
        ] {
            assert_eq!(refused(state, "claim").kind(), kind, "{state:?}");
        }
    }
}
