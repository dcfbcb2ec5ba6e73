//! One error type: opaque, cloneable, with a kind to match on and a stable code for logs.

mod kind;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use kind::ErrorKind;

use crate::key::LockKey;
use crate::token::OwnerToken;

/// Why a lock operation failed. Cheap to clone; match on [`kind`](Self::kind), log [`code`](Self::code).
///
/// The text names the operation, the key, what went wrong and how to mend it, in one line that is enough by itself; URLs in it are
/// redacted. [`source`](Error::source) gives only what the text doesn't have yet, so that a report which prints the whole chain says
/// nothing twice.
#[derive(Clone)]
pub struct LockError(Box<Shared>);

#[derive(Clone)]
struct Shared {
    kind: ErrorKind,
    operation: &'static str,
    key: Option<LockKey>,
    detail: Cow<'static, str>,
    remedy: Cow<'static, str>,
    holder: Option<Holder>,
    /// The holder is this very process.
    held_for: Option<Duration>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Who holds the lock that an acquire waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's label (by default `host:pid`), or `None` where another client wrote a value of its own.
    pub label: Option<String>,
    /// How long the holder's lease still runs unless renewed; `None` if it never expires or isn't known.
    pub remaining: Option<Duration>,
    /// For how long it has held the lock, where it is this process (and this manager).
    pub held_for: Option<Duration>,
    /// By which acquisition, where it is one of ours.
    pub(crate) owner: Option<OwnerToken>,
}

impl Holder {
    /// A holder as a store described it.
    #[must_use]
    pub fn new(label: Option<String>, remaining: Option<Duration>) -> Self {
        Self { label, remaining, held_for: None, owner: None }
    }

    /// The same, by this acquisition: so that a hold of the process that asks is known as one.
    #[must_use]
    pub fn by(mut self, owner: OwnerToken) -> Self {
        self.owner = Some(owner);
        self
    }
}

impl LockError {
    /// An error of this kind in this operation. For stores and integrations; users receive errors.
    #[must_use]
    pub fn new(kind: ErrorKind, operation: &'static str) -> Self {
        Self(Box::new(Shared {
            kind,
            operation,
            key: None,
            detail: Cow::Borrowed(""),
            remedy: Cow::Borrowed(""),
            holder: None,
            held_for: None,
            source: None,
        }))
    }

    /// What happened, in words.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.0.detail = detail.into();
        self
    }

    /// How to mend it, in words.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<Cow<'static, str>>) -> Self {
        self.0.remedy = remedy.into();
        self
    }

    /// The key it is about.
    #[must_use]
    pub fn for_key(mut self, key: &LockKey) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// The holder in whose way it was.
    #[must_use]
    pub fn held_by(mut self, holder: Holder) -> Self {
        self.0.holder = Some(holder);
        self
    }

    /// More of what happened, behind what is there.
    #[must_use]
    pub(crate) fn adding(self, more: &str) -> Self {
        let detail = format!("{}{more}", self.0.detail);
        self.detail(detail)
    }

    /// How long the lock had been held when it was lost or found gone.
    #[must_use]
    pub fn after(mut self, held_for: Duration) -> Self {
        self.0.held_for = Some(held_for);
        self
    }

    /// The error underneath. Its text becomes part of this one's; only what is below it is left as the source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    /// For what an earlier error about the same lock says already: its detail behind this one, and its remedy.
    #[must_use]
    pub(crate) fn for_the_reason(self, detail: &str, earlier: &Self) -> Self {
        let Shared { detail: reason, remedy, .. } = &*earlier.0;
        self.detail(format!("{detail}: {reason}")).remedy(remedy.clone())
    }

    /// What kind of failure it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The lock's key, where one is concerned.
    #[must_use]
    pub fn key(&self) -> Option<&LockKey> {
        self.0.key.as_ref()
    }

    /// The kind's stable code, such as `LOCK_TIMEOUT`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// Whether the same call may succeed later without a change of code, configuration or rights.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.kind.is_retryable()
    }

    /// Whether somebody else was simply at it (now, or for the whole wait budget): the lock was held, or an execution under the
    /// idempotency key in flight.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Busy | ErrorKind::InFlight | ErrorKind::Timeout)
    }

    /// Whether the work that the lock is for has certainly not begun: the error is from asking for the lock (or for an
    /// idempotency claim), not from holding or releasing it.
    #[must_use]
    pub fn is_before_work(&self) -> bool {
        let is_asking = matches!(self.0.operation, "claim" | "key" | "lock");
        is_asking
            && !matches!(
                self.0.kind,
                ErrorKind::ConcurrentModification
                    | ErrorKind::Lost
                    | ErrorKind::NotHeld
                    | ErrorKind::OutcomeUnknown
                    | ErrorKind::RecordUnreadable
                    | ErrorKind::ResultNotRetained
                    | ErrorKind::Superseded
            )
    }

    /// Who held the lock, for `BUSY` and `LOCK_TIMEOUT`, as far as the store could tell.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        self.0.holder.as_ref()
    }

    /// How long the lock was held, for `WATCHDOG_RENEWAL_FAILED` and `UNLOCK_FAILED`.
    #[must_use]
    pub fn held_for(&self) -> Option<Duration> {
        self.0.held_for
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = &self.0;
        write!(f, "{}: {}", error.operation, error.kind)?;
        if let Some(key) = &error.key {
            write!(f, " for key \"{key}\"")?;
        }
        if !error.detail.is_empty() {
            write!(f, ": {}", error.detail)?;
        }
        if let Some(holder) = &error.holder {
            match &holder.label {
                Some(label) if holder.held_for.is_some() => write!(f, ", held by this process ({label})")?,
                Some(label) => write!(f, ", held by {label}")?,
                None => f.write_str(", held by another client")?,
            }
            if let Some(held) = holder.held_for {
                write!(f, " for {} ms", held.as_millis())?;
            }
            if let Some(remaining) = holder.remaining {
                write!(f, ", whose lease runs {} ms more unless renewed", remaining.as_millis())?;
            }
        }
        if let Some(held) = error.held_for {
            write!(f, ", after {} ms", held.as_millis())?;
        }
        if let Some(source) = &error.source {
            write!(f, ": {source}")?;
        }
        if !error.remedy.is_empty() {
            write!(f, " ({})", error.remedy)?;
        }
        Ok(())
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockError({}: {self})", self.code())
    }
}

impl Error for LockError {
    /// What is below the error whose text is already in this one's.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_ref()?.source()
    }
}

impl From<std::convert::Infallible> for LockError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_operation_key_holder_and_remedy() {
        let key = LockKey::new("order:42").unwrap();
        let error = LockError::new(ErrorKind::Timeout, "lock")
            .for_key(&key)
            .held_by(Holder::new(Some("web-1:77".into()), Some(Duration::from_millis(1200))))
            .remedy("raise wait");
        assert_eq!(
            error.to_string(),
            "lock: wait budget used up for key \"order:42\", held by web-1:77, whose lease runs 1200 ms more unless renewed (raise wait)"
        );
        let mut here = error.holder().unwrap().clone();
        here.held_for = Some(Duration::from_millis(300));
        let error = error.held_by(here);
        let held =
            ", held by this process (web-1:77) for 300 ms, whose lease runs 1200 ms more unless renewed";
        assert!(error.to_string().contains(held), "{error}");
        assert_eq!(error.code(), "LOCK_TIMEOUT");
        assert!(error.is_busy() && error.is_retryable());
    }

    #[test]
    fn every_kind_has_its_own_code() {
        let codes: std::collections::HashSet<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }
}
