//! Statements that the server knows by a name, so that it doesn't parse and plan them each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_postgres::Statement;
use tokio_postgres::error::SqlState;

use crate::token::OwnerToken;

/// How often a statement runs on a connection before it gets a name there.
const WORTH_IT: u32 = 3;

/// A statement that is run all the time. Its text ends with a condition of its own, which the last parameter fulfils: where a
/// session turns out to be shared, another client's statement may have the name that we use, and runs nothing.
#[derive(Debug)]
pub(in super::super) struct Hot {
    pub(super) sql: String,
    pub(super) mark: String,
}

impl Hot {
    /// From a text without a condition, with so many parameters.
    pub(in super::super) fn new(sql: String, parameters: usize) -> Self {
        // It needn't be secret: it has to be another one everywhere.
        let mark =
            OwnerToken::random().map_or_else(|_| format!("{:032x}", fastrand::u128(..)), OwnerToken::to_hex);
        Self { sql: format!("{sql} where ${} = '{mark}'", parameters + 1), mark }
    }
}

/// Those of one connection, by their marks.
#[derive(Debug, Default)]
pub(super) struct Named(Mutex<HashMap<String, Known>>);

#[derive(Debug)]
enum Known {
    Used(u32),
    BeingNamed,
    Named(Statement),
}

/// What is to be done with a statement now.
pub(super) enum Way {
    Named(Statement),
    Unnamed,
    /// As unnamed, and it is worth a name from now on.
    ToBeNamed,
}

impl Named {
    pub(super) fn way(&self, hot: &Hot) -> Way {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.get_mut(&hot.mark) {
            Some(Known::Named(statement)) => Way::Named(statement.clone()),
            Some(Known::BeingNamed) => Way::Unnamed,
            Some(Known::Used(times)) if *times < WORTH_IT => {
                *times += 1;
                Way::Unnamed
            }
            Some(used) => {
                *used = Known::BeingNamed;
                Way::ToBeNamed
            }
            None => {
                known.insert(hot.mark.clone(), Known::Used(1));
                Way::Unnamed
            }
        }
    }

    pub(super) fn set(&self, mark: String, statement: Statement) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(mark, Known::Named(statement));
    }
}

/// Whether the server doesn't know the statement by that name, or knows another one: nothing was run.
pub(super) fn is_unknown(failure: &tokio_postgres::Error) -> bool {
    let codes = [
        &SqlState::INVALID_SQL_STATEMENT_NAME,
        &SqlState::DUPLICATE_PSTATEMENT,
        &SqlState::FEATURE_NOT_SUPPORTED,
        &SqlState::PROTOCOL_VIOLATION,
    ];
    failure.code().is_some_and(|code| codes.contains(&code))
}
