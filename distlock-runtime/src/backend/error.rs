//! What can go wrong between us and a store.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;

/// Whether the command that failed may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The store refused it, or it was never sent.
    No,
    /// The reply is missing: it may have been applied, or may be later.
    Unknown,
}

/// The class of a store's failure; decides between retry, report and giving up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// Wrong address, parameter or feature.
    Config,
    /// The key holds a value of another kind; nothing was touched.
    KeyConflict,
    /// The semaphore has another limit, or the latch another number, than the request says; nothing was touched.
    LimitMismatch,
    /// Too few of the store's nodes agreed.
    NoQuorum,
    /// There is no such lease: it lapsed, was released or taken.
    NotHeld,
    /// Too few replicas confirmed a grant; it was given back.
    NotReplicated,
    /// The store is out of memory for writes.
    OutOfMemory,
    /// Wrong credentials or missing rights.
    Permission,
    /// A script failed in an unexpected way.
    Script,
    /// Not reachable, reply lost, or "not now" (loading, read-only, failing over).
    Unavailable,
    /// The store can't do what was asked.
    Unsupported,
}

/// A failure of a store, without any type of the store's client. As with [`LockError`], the text is enough by itself, and `source`
/// gives what it doesn't have yet.
#[derive(Clone)]
pub struct BackendError {
    kind: BackendErrorKind,
    applied: Applied,
    long_away: bool,
    detail: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl BackendError {
    /// A failure whose command was certainly not applied.
    #[must_use]
    pub fn refused(kind: BackendErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, applied: Applied::No, long_away: false, detail: detail.into(), source: None }
    }

    /// The name stands for another kind of lock, or for something of somebody else's; nothing was touched.
    pub(crate) fn key_in_use() -> Self {
        let text = "the key is in use as another kind of lock (or by another program)";
        Self::refused(BackendErrorKind::KeyConflict, text)
    }

    /// The acquisition was cancelled, and is asked for again: by a task that was overtaken and doesn't know it yet. It passes, since
    /// that task's next acquisition is another.
    #[must_use]
    pub fn cancelled() -> Self {
        let text = "this acquisition was cancelled before; acquire anew";
        Self::refused(BackendErrorKind::Unavailable, text)
    }

    /// A failure that leaves the outcome open.
    #[must_use]
    pub fn unknown(detail: impl Into<String>) -> Self {
        Self {
            kind: BackendErrorKind::Unavailable,
            applied: Applied::Unknown,
            long_away: false,
            detail: detail.into(),
            source: None,
        }
    }

    /// The same failure, of a call whose earlier commands have been applied: something of it may be left.
    #[must_use]
    pub fn with_open_outcome(mut self) -> Self {
        self.applied = Applied::Unknown;
        self
    }

    /// The same failure, told without asking: the store has been away for so long that nobody should wait for it who needn't.
    #[must_use]
    pub fn with_long_outage(mut self) -> Self {
        self.long_away = true;
        self
    }

    /// With the error underneath, whose text becomes part of this one's. It must not contain credentials.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Its class.
    #[must_use]
    pub fn kind(&self) -> BackendErrorKind {
        self.kind
    }

    /// Whether the command may have taken effect.
    #[must_use]
    pub fn applied(&self) -> Applied {
        self.applied
    }

    /// Whether trying again soon makes sense.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, BackendErrorKind::NoQuorum | BackendErrorKind::Unavailable)
    }

    /// Whether the store is known to have been away for some time, so that it makes sense only for who has a budget to wait.
    #[must_use]
    pub fn is_long_outage(&self) -> bool {
        self.long_away
    }

    /// The error that users see.
    #[must_use]
    pub fn into_lock_error(self, operation: &'static str, key: Option<&LockKey>) -> LockError {
        let (kind, remedy) = match self.kind {
            BackendErrorKind::Config => (ErrorKind::Config, ""),
            BackendErrorKind::KeyConflict => {
                (ErrorKind::KeyConflict, "use one kind of lock for this key, or another key or namespace")
            }
            BackendErrorKind::LimitMismatch => {
                (ErrorKind::LimitMismatch, "use one limit everywhere, or change it with resize()")
            }
            BackendErrorKind::NoQuorum => (
                ErrorKind::Quorum,
                "see which nodes are down; a majority must answer within the node's budget",
            ),
            BackendErrorKind::NotHeld => (ErrorKind::NotHeld, ""),
            BackendErrorKind::NotReplicated => (
                ErrorKind::NotReplicated,
                "see whether the replicas are connected and keep up; min_replicas says how many must",
            ),
            BackendErrorKind::OutOfMemory => (ErrorKind::OutOfMemory, "give the store memory, or free some"),
            BackendErrorKind::Permission => (
                ErrorKind::Permission,
                "check user and password; the operator guide has the rights that the user needs",
            ),
            BackendErrorKind::Script => (ErrorKind::Script, ""),
            BackendErrorKind::Unavailable if key.is_some() => (
                ErrorKind::Connection,
                "check that the store runs and is reachable; the lock's state is not known",
            ),
            BackendErrorKind::Unavailable => {
                (ErrorKind::Connection, "check that the store runs and is reachable")
            }
            BackendErrorKind::Unsupported => {
                (ErrorKind::Unsupported, "guarantees() says what the store can do")
            }
        };
        let mut error = LockError::new(kind, operation).remedy(remedy);
        if let Some(key) = key {
            error = error.for_key(key);
        }
        error.caused_by(self)
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BackendError({:?}, applied {:?}: {self})", self.kind, self.applied)
    }
}

impl Error for BackendError {
    /// What is below the error whose text is already in this one's.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref()?.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the socket broke")]
    struct Broken(#[source] Deeper);

    #[derive(Debug, thiserror::Error)]
    #[error("the cable is cut")]
    struct Deeper;

    /// What a report prints that follows the sources.
    fn whole_chain(error: &dyn Error) -> String {
        let next = error.source().map(whole_chain);
        next.map_or_else(|| error.to_string(), |next| format!("{error}: {next}"))
    }

    #[test]
    fn a_chain_of_sources_says_nothing_twice() {
        let below = BackendError::unknown("no answer from redis").with_source(Broken(Deeper));
        let error = below.clone().into_lock_error("lock", None);
        let plain = "lock: store not reachable: no answer from redis: the socket broke (check";
        assert!(error.to_string().starts_with(plain), "{error}");
        for error in [whole_chain(&below), whole_chain(&error)] {
            for said in ["no answer from redis", "the socket broke", "the cable is cut"] {
                assert_eq!(error.matches(said).count(), 1, "{said:?} in {error:?}");
            }
        }
        let twice = LockError::new(ErrorKind::NotHeld, "release").caused_by(error);
        assert_eq!(whole_chain(&twice).matches("the socket broke").count(), 1, "{twice}");
    }
}
