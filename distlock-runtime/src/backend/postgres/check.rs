//! The look at the server's settings at start.

use super::answer;
use super::connection::Connections;
use crate::backend::{BackendError, BackendErrorKind, Warning};

/// Older servers lack functions that the migration uses.
const OLDEST: i32 = 110_000;

/// One row of what every role may read.
const LOOK: &str = "select current_setting('server_version_num')::int4, current_setting('server_encoding'), \
    current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery(), \
    current_setting('transaction_read_only'), current_setting('default_transaction_isolation'), \
    current_setting('synchronous_standby_names'), \
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
        standbys: answer::column(row, 8)?,
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
        ] {
            let warnings = warnings(&found);
            assert_eq!(warnings.len(), 1, "{code}");
            assert_eq!((warnings[0].code, warnings[0].severe), (code, severe));
        }
        let kept = Settings { standbys: 1, synchronous_standbys: "*", ..GOOD };
        assert!(warnings(&kept).is_empty());
    }
}
