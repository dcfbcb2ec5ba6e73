//! From the client library's errors to classes.

use std::error::Error as StdError;

use etcd_client::Error;

use crate::backend::{Applied, BackendError, BackendErrorKind};

/// What a call failed with.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The lease that it was about has lapsed.
    NoLease,
    /// No connection: the call was certainly not sent, and another member may take it.
    NotSent(BackendError),
    /// This member can't answer now, another one may: the outcome is open.
    Lost(BackendError),
    /// An answer.
    Refused(BackendError),
}

impl Failure {
    /// The same, with the member that there is no connection to.
    pub(super) fn at(self, member: &str) -> Self {
        match self {
            Self::NotSent(error) => {
                Self::NotSent(BackendError::refused(error.kind(), format!("{error}, at {member}")))
            }
            other => other,
        }
    }

    /// Whether the call certainly did nothing.
    pub(super) fn is_definite(&self) -> bool {
        match self {
            Self::NoLease => false,
            Self::NotSent(error) | Self::Lost(error) | Self::Refused(error) => error.applied() == Applied::No,
        }
    }

    /// What to say where a lease couldn't lapse, or it makes no difference.
    pub(super) fn into_error(self) -> BackendError {
        match self {
            Self::NoLease => BackendError::unknown("the lease in etcd lapsed meanwhile"),
            Self::NotSent(error) | Self::Lost(error) | Self::Refused(error) => error,
        }
    }
}

/// Codes of gRPC, which the client library passes on in a type that it doesn't export.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i32 = 8;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const UNAVAILABLE: i32 = 14;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

pub(super) fn classify(error: Error) -> Failure {
    let refused = |kind, text: String| Failure::Refused(BackendError::refused(kind, text));
    let status = match error {
        Error::GRpcStatus(status) => status,
        Error::LeaseKeepAliveError(text) if text.contains("not found") => return Failure::NoLease,
        Error::InvalidArgs(_) | Error::InvalidUri(_) => {
            return refused(BackendErrorKind::Config, format!("etcd: {error}"));
        }
        error => return Failure::Lost(BackendError::unknown(format!("no answer from etcd: {error}"))),
    };
    let text = status.message().trim_start_matches("etcdserver: ");
    match i32::from(status.code()) {
        code::NOT_FOUND if text.contains("lease not found") => Failure::NoLease,
        code::UNAVAILABLE if never_connected(&status) => Failure::NotSent(BackendError::refused(
            BackendErrorKind::Unavailable,
            format!("can't connect to etcd: {}", deepest(&status)),
        )),
        code::RESOURCE_EXHAUSTED if text.contains("space exceeded") => refused(
            BackendErrorKind::OutOfMemory,
            "etcd is out of space (alarm NOSPACE): compact and defragment it, then disarm the alarm"
                .to_owned(),
        ),
        code::RESOURCE_EXHAUSTED if text.contains("too many requests") => {
            refused(BackendErrorKind::Unavailable, "etcd has too many requests under way".to_owned())
        }
        code::RESOURCE_EXHAUSTED | code::INVALID_ARGUMENT
            if text.contains("larger") || text.contains("too large") =>
        {
            refused(BackendErrorKind::Unsupported, format!("etcd doesn't take values of this size: {text}"))
        }
        code::INVALID_ARGUMENT if text.contains("auth") || text.contains("user") => {
            refused(BackendErrorKind::Permission, format!("etcd: {text}"))
        }
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => {
            refused(BackendErrorKind::Permission, format!("etcd: {text}"))
        }
        code::FAILED_PRECONDITION if text.contains("authentication is not enabled") => refused(
            BackendErrorKind::Permission,
            "etcd has no authentication switched on, and a user is given".to_owned(),
        ),
        code::INVALID_ARGUMENT | code::FAILED_PRECONDITION | code::NOT_FOUND => {
            refused(BackendErrorKind::Script, format!("etcd refuses: {text}"))
        }
        _ => Failure::Lost(BackendError::unknown(format!("no answer from etcd: {text}"))),
    }
}

/// Whether there was no connection to send anything on. The library's own type for that is private, so it is known by its name.
fn never_connected(status: &(dyn StdError + 'static)) -> bool {
    causes(status).any(|cause| format!("{cause:?}").contains("ConnectError"))
}

/// The text that says most: the innermost.
fn deepest(status: &(dyn StdError + 'static)) -> String {
    causes(status).last().map_or_else(|| status.to_string(), ToString::to_string)
}

fn causes<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}
