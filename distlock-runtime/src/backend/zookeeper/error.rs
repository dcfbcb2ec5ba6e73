//! From what ZooKeeper or its client says to what the floors above decide by.

use zookeeper_client::Error;

use crate::backend::{BackendError, BackendErrorKind};

/// What became of `operation`.
pub(super) fn of(operation: &str, error: &Error) -> BackendError {
    let refused = |kind, text: &str| BackendError::refused(kind, format!("{text} ({operation})"));
    match error {
        Error::NoAuth => refused(
            BackendErrorKind::Permission,
            "ZooKeeper refuses this user: the nodes' ACL must give it create, read, write and delete",
        ),
        Error::AuthFailed => refused(BackendErrorKind::Permission, "ZooKeeper refuses the credentials"),
        Error::InvalidAcl => refused(
            BackendErrorKind::Permission,
            "ZooKeeper refuses the ACL of new nodes: acl=creator needs credentials that the servers know",
        ),
        Error::QuotaExceeded => refused(
            BackendErrorKind::OutOfMemory,
            "the ZooKeeper quota of the path is used up: raise it with setquota, or use another chroot",
        ),
        Error::NotReadOnly => refused(
            BackendErrorKind::Unavailable,
            "the ZooKeeper server has lost its majority and is read-only for now",
        ),
        Error::Throttled => refused(BackendErrorKind::Unavailable, "the ZooKeeper server is overloaded"),
        Error::Unimplemented => refused(
            BackendErrorKind::Unsupported,
            "the ZooKeeper server doesn't know this request: version 3.6 or later is needed",
        ),
        Error::BadArguments(_) | Error::MarshallingError => {
            refused(BackendErrorKind::Config, &format!("ZooKeeper can't take the request: {error}"))
        }
        Error::SessionExpired | Error::SessionMoved => {
            BackendError::unknown(format!("the ZooKeeper session has ended meanwhile ({operation})"))
        }
        Error::ClientClosed => {
            BackendError::unknown(format!("the connection to ZooKeeper was closed ({operation})"))
        }
        Error::NoNode | Error::NodeExists | Error::BadVersion | Error::NotEmpty => refused(
            BackendErrorKind::Unavailable,
            &format!("the nodes in ZooKeeper have changed under the request: {error}"),
        ),
        _ => BackendError::unknown(format!("no answer from ZooKeeper ({operation})"))
            .with_source(error.clone()),
    }
}

/// Whether the request may have been applied though its reply is missing.
pub(super) fn is_open(error: &Error) -> bool {
    of("", error).applied() == crate::backend::Applied::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Applied;

    #[test]
    fn a_missing_reply_is_never_definite() {
        for open in [
            Error::ConnectionLoss,
            Error::Timeout,
            Error::SessionExpired,
            Error::ClientClosed,
            Error::UnexpectedErrorCode(-1),
        ] {
            let error = of("create", &open);
            assert_eq!(
                (error.kind(), error.applied()),
                (BackendErrorKind::Unavailable, Applied::Unknown),
                "{error}"
            );
        }
        for (definite, kind) in [
            (Error::NoAuth, BackendErrorKind::Permission),
            (Error::AuthFailed, BackendErrorKind::Permission),
            (Error::QuotaExceeded, BackendErrorKind::OutOfMemory),
            (Error::NotReadOnly, BackendErrorKind::Unavailable),
            (Error::Unimplemented, BackendErrorKind::Unsupported),
        ] {
            let error = of("create", &definite);
            assert_eq!((error.kind(), error.applied()), (kind, Applied::No), "{error}");
        }
    }
}
