//! From SQLSTATEs and lost connections to error classes.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::connection::Failure;
use crate::backend::{Applied, BackendError, BackendErrorKind};

/// What the functions of the migration raise: the settings of the session don't fit.
const WRONG_ISOLATION: &str = "DL001";

/// Whether the statement may succeed if it is sent again at once: it lost against another one.
pub(super) fn is_conflict(failure: &Error) -> bool {
    let conflicts = [&SqlState::T_R_SERIALIZATION_FAILURE, &SqlState::T_R_DEADLOCK_DETECTED];
    failure.code().is_some_and(|code| conflicts.contains(&code))
}

/// A table, function or schema of the migration isn't there.
pub(super) fn is_missing(failure: &Error) -> bool {
    let missing = [
        &SqlState::UNDEFINED_TABLE,
        &SqlState::UNDEFINED_FUNCTION,
        &SqlState::UNDEFINED_COLUMN,
        &SqlState::INVALID_SCHEMA_NAME,
    ];
    failure.code().is_some_and(|code| missing.contains(&code))
}

/// Whether the statement has certainly had no effect.
pub(super) fn is_refusal(failure: &Error) -> bool {
    statement("", "", failure).applied() == Applied::No
}

/// What a statement's failure means.
pub(super) fn statement(operation: &str, address: &str, failure: &Error) -> BackendError {
    match failure.as_db_error() {
        Some(said) => replied(operation, address, said),
        None if failure.is_closed() || is_io(failure) => BackendError::unknown(format!(
            "postgres at {address} closed the connection during \"{operation}\""
        )),
        None => BackendError::unknown(format!(
            "no proper reply from postgres at {address} to \"{operation}\": {failure}"
        )),
    }
}

/// The same, of a connection that may have gone before.
pub(super) fn of_lane(operation: &str, address: &str, failure: Failure) -> BackendError {
    match failure {
        Failure::Failed(failure) => statement(operation, address, &failure),
        Failure::NotSent => BackendError::refused(
            BackendErrorKind::Unavailable,
            format!("the connection to postgres at {address} has gone"),
        ),
    }
}

/// Why there is no connection. Nothing was applied.
pub(super) fn connecting(address: &str, failure: &Error) -> BackendError {
    if let Some(said) = failure.as_db_error() {
        if said.code() == &SqlState::PROTOCOL_VIOLATION && is_about_credentials(said.message()) {
            return BackendError::refused(
                BackendErrorKind::Permission,
                format!(
                    "the pooler of postgres at {address} refused \"connect\": {} (wrong user or password)",
                    said.message()
                ),
            );
        }
        let error = replied("connect", address, said);
        return BackendError::refused(error.kind(), error.to_string());
    }
    let mut text = format!("can't connect to postgres at {address}: {failure}");
    let mut below = failure.source();
    while let Some(error) = below {
        // The client library mostly repeats what is below, but not always.
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        below = error.source();
    }
    let kind = if text.contains("invalid password") || text.contains("password missing") {
        BackendErrorKind::Permission
    } else if text.contains("server does not support TLS") || text.contains("certificate") {
        BackendErrorKind::Config
    } else {
        BackendErrorKind::Unavailable
    };
    BackendError::refused(kind, text)
}

/// PgBouncer has one code for all that it says itself.
fn is_about_credentials(message: &str) -> bool {
    ["authentication failed", "no such user", "login rejected"].iter().any(|words| message.contains(words))
}

/// The server takes connections and says nothing on them.
pub(super) fn connect_silent(address: &str, limit: std::time::Duration) -> BackendError {
    BackendError::refused(
        BackendErrorKind::Unavailable,
        format!("can't open a session of postgres at {address}: no answer within {} ms", limit.as_millis()),
    )
}

/// The statement was sent, and no reply came in time.
pub(super) fn silent(operation: &str, address: &str) -> BackendError {
    BackendError::unknown(format!("no answer from postgres at {address} to \"{operation}\""))
}

/// The server answered something that no version of the migration answers.
pub(super) fn unexpected(operation: &str, what: &str) -> BackendError {
    BackendError::refused(
        BackendErrorKind::Script,
        format!("an unexpected answer of postgres to \"{operation}\": {what}"),
    )
    .with_open_outcome()
}

pub(super) fn missing(schema: &str) -> BackendError {
    BackendError::refused(
        BackendErrorKind::Config,
        format!(
            "the tables of distlock are missing in the schema \"{schema}\", or some of them: run the SQL that \
             PostgresOptions::migration gives, or allow it at start with migrate=on"
        ),
    )
}

fn is_io(failure: &Error) -> bool {
    failure.source().is_some_and(|below| below.is::<std::io::Error>())
}

fn replied(operation: &str, address: &str, said: &DbError) -> BackendError {
    let severity = said.parsed_severity();
    let ends = matches!(severity, Some(Severity::Fatal | Severity::Panic));
    classed(operation, address, said.code().code(), said.message(), ends)
}

/// What a code means. If it ends the session, the statement may have been applied: also a pooler says so, which lost the reply.
fn classed(operation: &str, address: &str, code: &str, message: &str, ends: bool) -> BackendError {
    let said = of_code(operation, address, code, message);
    match ends {
        true if said.kind() == BackendErrorKind::Script => BackendError::unknown(said.to_string()),
        true => said.with_open_outcome(),
        false => said,
    }
}

fn of_code(operation: &str, address: &str, code: &str, message: &str) -> BackendError {
    let text = |remedy: &str| {
        let hint = if remedy.is_empty() { String::new() } else { format!(" ({remedy})") };
        format!("postgres at {address} refused \"{operation}\": {message} [{code}]{hint}")
    };
    let refused = |kind, remedy: &str| BackendError::refused(kind, text(remedy));
    use BackendErrorKind::{Config, OutOfMemory, Permission, Script, Unavailable};
    match code {
        // The session ends, perhaps while a commit waited for a replica.
        "57P01" | "57P02" | "57P05" => BackendError::unknown(text("")),
        "57P03" => refused(Unavailable, "it is starting or stopping"),
        "57014" => refused(Unavailable, "a statement_timeout of the role is too short for locks"),
        "53300" => refused(
            Unavailable,
            "raise max_connections, or put a pooler in front: each manager takes a connection or two",
        ),
        "53100" | "53200" => refused(OutOfMemory, ""),
        "55P03" => {
            refused(Unavailable, "another transaction blocks it for long: pg_blocking_pids says which")
        }
        "40001" | "40P01" | "55006" => refused(Unavailable, ""),
        "25006" => {
            refused(Unavailable, "a standby, or default_transaction_read_only: locks need the primary")
        }
        "42501" => refused(Permission, "the operator guide has the rights that the role needs"),
        "28P01" => refused(Permission, "wrong user or password"),
        "28000" => refused(
            Permission,
            "pg_hba.conf doesn't let this user in from here, or not without TLS: sslmode=verify-full",
        ),
        "3D000" => refused(Config, "the database doesn't exist"),
        "42P01" | "42883" | "42703" | "3F000" => refused(
            Config,
            "the tables of distlock are missing or old: run the SQL that PostgresOptions::migration gives",
        ),
        WRONG_ISOLATION => {
            refused(Config, "alter role … set default_transaction_isolation = 'read committed'")
        }
        "22021" | "22P05" => refused(Config, "the database's encoding can't hold this name: use one in UTF8"),
        // So says a pooler that can't reach the server, and one that lost it while the statement was under way.
        "08P01" => BackendError::unknown(text("a pooler in front lost the server, or refuses a setting")),
        other if other.starts_with("08") || other.starts_with("58") => BackendError::unknown(text("")),
        other if other.starts_with("53") || other.starts_with("57") => refused(Unavailable, ""),
        // Something went wrong in the server, or in a pooler.
        other if other.starts_with("XX") => refused(Script, "").with_open_outcome(),
        _ => refused(Script, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As pgcat says that it lost the server (58000), Supavisor (XX000), and PgBouncer (08P01): what was under way may have been applied.
    #[test]
    fn what_ends_a_session_or_its_server_leaves_the_outcome_open() {
        use BackendErrorKind::{Permission, Script, Unavailable};
        for (code, ends, kind, applied) in [
            ("58000", true, Unavailable, Applied::Unknown),
            ("58000", false, Unavailable, Applied::Unknown),
            ("XX000", true, Unavailable, Applied::Unknown),
            ("XX000", false, Script, Applied::Unknown),
            ("08P01", true, Unavailable, Applied::Unknown),
            ("57P01", true, Unavailable, Applied::Unknown),
            ("57014", true, Unavailable, Applied::Unknown),
            ("P0001", true, Unavailable, Applied::Unknown),
            // Said when a session begins, which is made a refusal there.
            ("28P01", true, Permission, Applied::Unknown),
            ("57014", false, Unavailable, Applied::No),
            ("42501", false, Permission, Applied::No),
            ("P0001", false, Script, Applied::No),
        ] {
            let error = classed("acquire", "here", code, "said", ends);
            assert_eq!((error.kind(), error.applied()), (kind, applied), "{code}, {ends}");
            assert!(error.to_string().contains(code), "{error}");
        }
    }
}
