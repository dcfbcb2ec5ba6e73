//! The look at the server's settings at start.

use super::answer;
use super::connection::Connections;
use crate::backend::{BackendError, BackendErrorKind, Warning};

/// Older servers lack functions that the migration uses.
const OLDEST: i32 = 110_000;

/// In milliseconds: functions wait for others for up to 5 s, and say then for whom.
const SHORTEST_TIMEOUT: i64 = 5_000;

/// One row of what every role may read.
const LOOK: &str = "select current_setting('server_version_num')::int4, current_setting('server_encoding'), \
    current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery(), \
    current_setting('transaction_read_only'), current_setting('default_transaction_isolation'), \
    current_setting('synchronous_standby_names'), \
    (select s.setting::int8 from pg_catalog.pg_settings s where s.name = 'statement_timeout'), \
    (select s.setting::int8 from pg_catalog.pg_settings s where s.name = 'idle_session_timeout'), \
    (select count(*) from pg_stat_replication where application_name <> 'pg_basebackup')";

pub(super) async fn settings(connections: &Connections) -> Result<Vec<Warning>, BackendError> {
    let reply = match connections.run("check", LOOK, &[]).await {
        Ok(reply) => reply,
        Err(failure) if failure.kind() == BackendErrorKind::Permission => {
            tracing::debug!(%failure, "the settings of postgres can't be checked");
            return Ok(Vec::new());
        }
        Err(failure) => return Err(failure),
    };
    let row = answer::only("check", &reply)?;
    Ok(warnings(&Settings {
        version: answer::column(row, 0)?,
        encoding: answer::column(row, 1)?,
        synchronous_commit: answer::column(row, 2)?,
        fsync: answer::column(row, 3)?,
        is_standby: answer::column(row, 4)?,
        read_only: answer::column(row, 5)?,
        isolation: answer::column(row, 6)?,
        synchronous_standbys: answer::column(row, 7)?,
        statement_timeout: answer::column(row, 8)?,
        idle_session_timeout: answer::column(row, 9)?,
        standbys: answer::column(row, 10)?,
    }))
}

struct Settings<'a> {
    version: i32,
    encoding: &'a str,
    synchronous_commit: &'a str,
    fsync: &'a str,
    is_standby: bool,
    read_only: &'a str,
    isolation: &'a str,
    synchronous_standbys: &'a str,
    /// In milliseconds; zero is none. Servers before 14 have no other one for idle sessions.
    statement_timeout: i64,
    idle_session_timeout: Option<i64>,
    standbys: i64,
}

fn warnings(found: &Settings<'_>) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut warn = |code, severe, text: String| warnings.push(Warning::new(code, text, severe));
    if found.version < OLDEST {
        warn(
            "VERSION",
            true,
            format!("postgres {} is too old: 11 or newer is needed", found.version / 10_000),
        );
    }
    if found.is_standby || found.read_only == "on" {
        let text = "this server is a standby, or the role only reads (default_transaction_read_only): connect to the primary";
        warn("READONLY", true, text.to_owned());
    }
    if found.isolation != "read committed" {
        let text = format!(
            "default_transaction_isolation is \"{}\": locks refuse to work so; alter role … set \
             default_transaction_isolation = 'read committed'",
            found.isolation
        );
        warn("ISOLATION", true, text);
    }
    if found.synchronous_commit == "off" {
        let text = "synchronous_commit is off: a crash of the server takes back the last grants; alter role … set synchronous_commit = on";
        warn("DURABILITY", true, text.to_owned());
    }
    if found.fsync == "off" {
        let text = "fsync is off: a power loss takes back grants, or destroys the database";
        warn("DURABILITY", true, text.to_owned());
    }
    if found.standbys > 0 && (found.synchronous_standbys.is_empty() || found.synchronous_commit == "local") {
        let text = "the standbys get the writes later (synchronous_standby_names is empty): after a failover the last grants may be missing";
        warn("ASYNC_STANDBY", false, text.to_owned());
    }
    if (1..SHORTEST_TIMEOUT).contains(&found.statement_timeout) {
        let text = format!(
            "statement_timeout is {} ms: a statement that waits for another one is ended before its turn; alter role … set \
             statement_timeout = 0",
            found.statement_timeout
        );
        warn("TIMEOUT", false, text);
    }
    if found.idle_session_timeout.is_some_and(|timeout| timeout > 0) {
        let text = "idle_session_timeout ends the connection that waiters are told over; alter role … set idle_session_timeout = 0";
        warn("TIMEOUT", false, text.to_owned());
    }
    if found.encoding != "UTF8" {
        let text = format!(
            "the database's encoding is {}: lock names that it can't hold are refused",
            found.encoding
        );
        warn("ENCODING", false, text);
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Settings<'static> = Settings {
        version: 150_000,
        encoding: "UTF8",
        synchronous_commit: "on",
        fsync: "on",
        is_standby: false,
        read_only: "off",
        isolation: "read committed",
        synchronous_standbys: "",
        statement_timeout: 0,
        idle_session_timeout: Some(0),
        standbys: 0,
    };

    #[test]
    fn what_weakens_the_locks_is_reported() {
        assert!(warnings(&GOOD).is_empty());
        for (found, code, severe) in [
            (Settings { version: 100_023, ..GOOD }, "VERSION", true),
            (Settings { is_standby: true, ..GOOD }, "READONLY", true),
            (Settings { read_only: "on", ..GOOD }, "READONLY", true),
            (Settings { isolation: "serializable", ..GOOD }, "ISOLATION", true),
            (Settings { synchronous_commit: "off", ..GOOD }, "DURABILITY", true),
            (Settings { fsync: "off", ..GOOD }, "DURABILITY", true),
            (Settings { standbys: 1, ..GOOD }, "ASYNC_STANDBY", false),
            (Settings { encoding: "LATIN1", ..GOOD }, "ENCODING", false),
            (Settings { statement_timeout: 200, ..GOOD }, "TIMEOUT", false),
            (Settings { idle_session_timeout: Some(60_000), ..GOOD }, "TIMEOUT", false),
        ] {
            let warnings = warnings(&found);
            assert_eq!(warnings.len(), 1, "{code}");
            assert_eq!((warnings[0].code, warnings[0].severe), (code, severe));
        }
        let kept = Settings { standbys: 1, synchronous_standbys: "*", ..GOOD };
        assert!(warnings(&kept).is_empty());
        let old = Settings { statement_timeout: 60_000, idle_session_timeout: None, ..GOOD };
        assert!(warnings(&old).is_empty());
    }
}
