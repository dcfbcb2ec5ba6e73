//! Refusals: what a layer answers in place of the service.

mod json;
mod kind;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use distlock_runtime::{ErrorKind, LockError};
use http::{Response, StatusCode};

pub use self::json::ProblemJson;
pub use self::kind::ProblemKind;

/// Why a layer answered by itself, in the terms of RFC 9457. A [`Responder`] makes the response of it.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
}

impl Problem {
    /// A problem of this kind, with the kind's status.
    #[must_use]
    pub fn new(kind: ProblemKind) -> Self {
        Self { kind, status: kind.status(), detail: Cow::Borrowed(""), retry_after: None }
    }

    /// What happened this time, for the client's eyes: no internals.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// With another status than the kind's own.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// When another try makes sense; sent as whole seconds, at least 1.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The status to answer with.
    #[must_use]
    pub fn status_code(&self) -> StatusCode {
        self.status
    }

    /// What happened this time; may be empty.
    #[must_use]
    pub fn detail_text(&self) -> &str {
        &self.detail
    }

    /// The value for `Retry-After`: seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0)).map(|s| s.max(1))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.title())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, ": {}", self.detail) }
    }
}

impl std::error::Error for Problem {}

impl From<&LockError> for Problem {
    /// What a client may know of a lock's failure: whether it was busy, lost, or whether the store is away.
    fn from(error: &LockError) -> Self {
        let kind = match error.kind() {
            ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::TooManyWaiters | ErrorKind::Deadlock => {
                ProblemKind::LockBusy
            }
            ErrorKind::Lost | ErrorKind::NotHeld => ProblemKind::LockLost,
            _ => ProblemKind::StoreUnavailable,
        };
        let problem = Self::new(kind);
        if error.is_retryable() || kind == ProblemKind::LockLost {
            let after = error.holder().and_then(|holder| holder.remaining).unwrap_or(Duration::from_secs(1));
            return problem.retry_after(after.min(Duration::from_secs(5)));
        }
        problem
    }
}

impl From<LockError> for Problem {
    fn from(error: LockError) -> Self {
        Self::from(&error)
    }
}

#[cfg(feature = "axum")]
impl axum::response::IntoResponse for Problem {
    /// As [`ProblemJson`] answers it.
    fn into_response(self) -> axum::response::Response {
        ProblemJson::new().respond(&self).map(axum::body::Body::from)
    }
}

/// Turns problems into responses. The default is [`ProblemJson`].
///
/// ```
/// use bytes::Bytes;
/// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
/// use distlock::tower::{Problem, Responder};
///
/// struct Plain;
/// impl Responder for Plain {
///     fn respond(&self, problem: &Problem) -> http::Response<Bytes> {
///         let mut response = http::Response::new(Bytes::from(problem.to_string()));
///         *response.status_mut() = problem.status_code();
///         response
///     }
/// }
/// ```
pub trait Responder: Send + Sync + 'static {
    /// The response for this problem.
    fn respond(&self, problem: &Problem) -> Response<Bytes>;
}

impl<F> Responder for F
where
    F: Fn(&Problem) -> Response<Bytes> + Send + Sync + 'static,
{
    fn respond(&self, problem: &Problem) -> Response<Bytes> {
        self(problem)
    }
}

/// A responder that layers share.
#[derive(Clone)]
pub(crate) struct SharedResponder(Arc<dyn Responder>);

impl SharedResponder {
    pub(crate) fn new(responder: impl Responder) -> Self {
        Self(Arc::new(responder))
    }

    pub(crate) fn respond(&self, problem: &Problem) -> Response<Bytes> {
        self.0.respond(problem)
    }
}

impl Default for SharedResponder {
    fn default() -> Self {
        Self::new(ProblemJson::new())
    }
}

impl fmt::Debug for SharedResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_whole_seconds_rounded_up() {
        let problem = |after| Problem::new(ProblemKind::InFlight).retry_after(after).retry_after_seconds();
        assert_eq!(problem(Duration::ZERO), Some(1));
        assert_eq!(problem(Duration::from_millis(1001)), Some(2));
        assert_eq!(problem(Duration::from_secs(3)), Some(3));
    }

    #[test]
    fn store_errors_keep_their_internals_to_themselves() {
        let error = LockError::new(ErrorKind::Connection, "lock").detail("redis at 10.0.0.7 refused");
        let problem = Problem::from(&error);
        assert_eq!(problem.status_code(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(!problem.to_string().contains("10.0.0.7"));
    }
}
