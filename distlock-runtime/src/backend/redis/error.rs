//! From what Redis or its client says to what the floors above decide by.

use redis::{RedisError, ServerError};

use crate::backend::{BackendError, BackendErrorKind};

use BackendErrorKind::{
    Config, KeyConflict, LimitMismatch, NotHeld, OutOfMemory, Permission, Script, Unavailable, Unsupported,
};

/// Codes of error replies, `LIMITMISMATCH` and `NOTHELD` from scripts of ours. The client library types only some of them.
const CODES: &[(&str, BackendErrorKind)] = &[
    ("ASK", Unavailable),
    ("BUSY", Unavailable),
    ("CLUSTERDOWN", Unavailable),
    ("CROSSSLOT", Script),
    ("DENIED", Permission),
    ("LIMITMISMATCH", LimitMismatch),
    ("LOADING", Unavailable),
    ("MASTERDOWN", Unavailable),
    ("MISCONF", Unavailable),
    ("MOVED", Unavailable),
    ("NOAUTH", Permission),
    ("NOPERM", Permission),
    ("NOREPLICAS", Unavailable),
    ("NOSCRIPT", Script),
    ("NOTHELD", NotHeld),
    ("OOM", OutOfMemory),
    ("READONLY", Unavailable),
    ("TRYAGAIN", Unavailable),
    ("UNBLOCKED", Unavailable),
    ("UNKILLABLE", Unavailable),
    ("WRONGPASS", Permission),
    ("WRONGTYPE", KeyConflict),
];

/// What is told apart by its words, since the code is only `ERR`: other replies, and the codes above where a server before
/// 7.0 wraps what a script met.
const WORDS: &[(&str, BackendErrorKind)] = &[
    ("can't run this command or subcommand", Permission),
    ("can't access at least one of the keys", Permission),
    ("no permissions to", Permission),
    ("invalid password", Permission),
    ("without any password configured", Permission),
    // What is longer than a login is refused in these words instead of NOAUTH.
    ("unauthenticated multibulk length", Permission),
    ("unauthenticated bulk length", Permission),
    ("WRONGTYPE Operation", KeyConflict),
    ("OOM command not allowed", OutOfMemory),
    ("READONLY You can't write", Unavailable),
    ("MISCONF Redis is configured", Unavailable),
    ("NOREPLICAS Not enough", Unavailable),
    ("max number of clients reached", Unavailable),
    ("DB index is out of range", Config),
    ("cluster support disabled", Config),
    // A script that came to a key which had gone to another server of its Cluster.
    ("attempted to access a non local key", Unavailable),
    ("unknown command", Unsupported),
    ("Unknown Redis command called from script", Unsupported),
];

/// The class of an error reply; every one of them means that the command was not applied (scripts undo or order their
/// writes so that this holds for them too).
pub(super) fn of_reply(code: &str, detail: &str) -> BackendErrorKind {
    let by_code = CODES.iter().find(|(known, _)| *known == code);
    let by_words = || WORDS.iter().find(|(words, _)| detail.contains(words));
    by_code.or_else(by_words).map_or(Script, |(_, kind)| *kind)
}

/// An error reply to `operation`.
pub(super) fn reply(operation: &str, error: &ServerError) -> BackendError {
    let (code, detail) = (error.code(), error.details().unwrap_or_default());
    match of_reply(code, detail) {
        // The server's words are about its types, which say nothing to who uses a lock.
        KeyConflict => BackendError::key_in_use(),
        // A client of a Cluster would have followed it.
        kind if matches!(code, "ASK" | "MOVED") => BackendError::refused(
            kind,
            format!(
                "redis answered to {operation}: {code} {detail}: it belongs to a Cluster, so use redis+cluster://"
            ),
        ),
        kind => BackendError::refused(kind, format!("redis answered to {operation}: {code} {detail}")),
    }
}

/// Whether this reply means that the connection leads to a server that can't serve us, and another one might.
pub(super) fn wants_new_connection(error: &ServerError) -> bool {
    matches!(error.code(), "READONLY" | "MASTERDOWN" | "NOAUTH" | "UNBLOCKED")
}

/// A connection that couldn't be opened: nothing was sent. `address` must have no credentials in it.
pub(super) fn connecting(address: &str, error: &RedisError) -> BackendError {
    let text = error.to_string();
    let kind = match error.kind() {
        redis::ErrorKind::AuthenticationFailed => authentication(error, &text),
        redis::ErrorKind::InvalidClientConfig => Config,
        redis::ErrorKind::Io if is_tls_refusal(&text) => Config,
        redis::ErrorKind::Io => Unavailable,
        _ => of_reply(error.code().unwrap_or_default(), &text),
    };
    // The client names its own class of the error in the middle, which says nothing to a reader.
    let text = text.replace(&format!(" - {:?}", error.kind()), "");
    BackendError::refused(kind, format!("can't connect to redis at {address}: {text}"))
}

/// A Sentinel that couldn't be asked.
pub(super) fn asking_sentinel(address: &str, error: &RedisError) -> BackendError {
    let connecting = connecting(address, error);
    let text = connecting.to_string().replacen("connect to redis at", "ask the Sentinel at", 1);
    BackendError::refused(connecting.kind(), text)
}

/// A subscription that was refused, or whose connection broke before it was confirmed.
pub(super) fn subscribing(address: &str, error: &RedisError) -> BackendError {
    let kind = if error.is_io_error() {
        Unavailable
    } else {
        of_reply(error.code().unwrap_or_default(), &error.to_string())
    };
    BackendError::refused(kind, format!("can't subscribe at redis at {address}: {error}"))
}

/// A command whose reply never came.
pub(super) fn lost(operation: &str, address: &str, error: Option<&RedisError>) -> BackendError {
    let why = error.map_or_else(|| "the connection was closed".to_owned(), ToString::to_string);
    BackendError::unknown(format!("no answer to {operation} from redis at {address}: {why}"))
}

/// A reply that isn't of the form that the script promises.
pub(super) fn unexpected(operation: &str, reply: &redis::Value) -> BackendError {
    BackendError::refused(Script, format!("redis gave an unexpected reply to {operation}: {reply:?}"))
}

/// A handshake can fail for want of rights, and because the server isn't ready yet.
fn authentication(error: &RedisError, text: &str) -> BackendErrorKind {
    let starting = ["LOADING", "MASTERDOWN", "BUSY"].iter().any(|code| text.contains(code));
    match error.code() {
        _ if starting => Unavailable,
        Some(code) if CODES.iter().any(|(known, _)| *known == code) => of_reply(code, text),
        _ => Permission,
    }
}

/// A certificate doesn't get better by trying again.
fn is_tls_refusal(text: &str) -> bool {
    text.contains("invalid peer certificate") || text.contains("received fatal alert")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Applied;
    use redis::{Value, parse_redis_value};

    fn classified(reply_line: &str) -> BackendError {
        let line = format!("-{reply_line}\r\n");
        let Value::ServerError(error) = parse_redis_value(line.as_bytes()).unwrap() else {
            panic!("not an error reply: {reply_line}")
        };
        reply("acquire", &error)
    }

    #[test]
    fn every_reply_of_the_table_has_its_class() {
        // The exact texts of a 7.0 server, and those of 6.2 where a script wraps them.
        for (line, kind) in [
            ("NOSCRIPT No matching script. Please use EVAL.", Script),
            ("MOVED 3999 127.0.0.1:6381", Unavailable),
            ("ASK 3999 127.0.0.1:6381", Unavailable),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Unavailable),
            ("CROSSSLOT Keys in request don't hash to the same slot", Script),
            ("CLUSTERDOWN The cluster is down", Unavailable),
            ("LOADING Redis is loading the dataset in memory", Unavailable),
            (
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
                Unavailable,
            ),
            (
                "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
                Unavailable,
            ),
            ("UNKILLABLE Sorry the script already executed write commands", Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", Unavailable),
            ("READONLY You can't write against a read only replica.", Unavailable),
            ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", Unavailable),
            ("OOM command not allowed when used memory > 'maxmemory'.", OutOfMemory),
            ("MISCONF Redis is configured to save RDB snapshots, but it's unable to persist", Unavailable),
            ("NOAUTH Authentication required.", Permission),
            ("WRONGPASS invalid username-password pair or user is disabled.", Permission),
            ("ERR Protocol error: unauthenticated multibulk length", Permission),
            ("ERR Protocol error: unauthenticated bulk length", Permission),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Permission),
            ("ERR The user executing the script can't run this command or subcommand script: 5", Permission),
            ("ERR The user executing the script can't access at least one of the keys mentioned", Permission),
            ("WRONGTYPE Operation against a key holding the wrong kind of value", KeyConflict),
            ("ERR unknown command 'EVALSHA', with args beginning with: ", Unsupported),
            ("ERR max number of clients reached", Unavailable),
            (
                "ERR Error running script (call to f_0a): @user_script:9: WRONGTYPE Operation against a key",
                KeyConflict,
            ),
            (
                "ERR Error running script (call to f_0a): @user_script:9: OOM command not allowed when",
                OutOfMemory,
            ),
            ("ERR value is not an integer or out of range", Script),
        ] {
            let error = classified(line);
            assert_eq!(error.kind(), kind, "{line}");
            assert_eq!(error.applied(), Applied::No, "{line}");
            let code = line.split(' ').next().unwrap();
            let named = if kind == KeyConflict { "in use as another kind of lock" } else { code };
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn a_server_of_a_cluster_is_known_by_its_answer() {
        assert!(classified("MOVED 3999 127.0.0.1:6381").to_string().contains("use redis+cluster://"));
        assert!(!classified("CLUSTERDOWN The cluster is down").to_string().contains("://"));
    }

    #[test]
    fn a_missing_reply_leaves_the_outcome_open() {
        let closed = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        let error = lost("acquire", "localhost:6379", Some(&closed));
        assert_eq!((error.kind(), error.applied()), (Unavailable, Applied::Unknown));
    }

    #[test]
    fn a_failed_connect_sent_nothing() {
        let refused = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionRefused));
        let error = connecting("localhost:6379", &refused);
        assert_eq!((error.kind(), error.applied()), (Unavailable, Applied::No));
        let wrong =
            RedisError::from((redis::ErrorKind::AuthenticationFailed, "Password authentication failed"));
        let wrong = connecting("localhost:6379", &wrong);
        assert_eq!(wrong.kind(), Permission);
        assert_eq!(
            wrong.to_string(),
            "can't connect to redis at localhost:6379: Password authentication failed"
        );
        let tls = RedisError::from(std::io::Error::new(
            std::io::ErrorKind::InvalidData,
            "invalid peer certificate: UnknownIssuer",
        ));
        assert_eq!(connecting("localhost:6379", &tls).kind(), Config);
    }
}
