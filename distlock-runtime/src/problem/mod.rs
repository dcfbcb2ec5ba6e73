//! What a client may know of a failure, in the terms of RFC 9457. The layers answer with it, and `LockError` turns into it.

#[cfg(feature = "axum")]
mod axum;
mod kind;
mod outcome;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

pub use self::kind::ProblemKind;
pub use self::outcome::Outcome;

use crate::error::{ErrorKind, LockError};

/// Why a request was refused or failed, in the terms of RFC 9457.
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    status: StatusCode,
    detail: Cow<'static, str>,
    retry_after: Option<Duration>,
    outcome: Option<Outcome>,
}

impl Problem {
    /// A problem of this kind, with the kind's status and outcome.
    #[must_use]
    pub fn new(kind: ProblemKind) -> Self {
        Self {
            kind,
            status: kind.status(),
            detail: Cow::Borrowed(""),
            retry_after: None,
            outcome: kind.outcome(),
        }
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

    /// When another try makes sense. `Retry-After` is whole seconds, at least 1; what gRPC calls are told is exact to the millisecond.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// What an idempotency layer around it is told, in place of the kind's own outcome. Say `Unknown` of a lock that was
    /// asked for half-way through work that had effects already.
    #[must_use]
    pub fn outcome(mut self, outcome: Outcome) -> Self {
        self.outcome = Some(outcome);
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

    /// When another try makes sense.
    #[must_use]
    pub fn retry_delay(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The value for `Retry-After`: seconds, rounded up, at least 1.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let rounded = |after: Duration| after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0));
        self.retry_after.map(rounded).map(|seconds| seconds.max(1))
    }

    /// Whether something was executed, as far as it is known: what an idempotency layer around it is told.
    #[must_use]
    pub fn known_outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// The response: `application/problem+json` with `type`, `title`, `status` and `detail`, plus `Retry-After`, and the
    /// [`Outcome`] as an extension.
    #[must_use]
    pub fn to_response(&self) -> Response<Bytes> {
        let mut document = serde_json::json!({
            "type": self.kind.type_uri(),
            "title": self.kind.title(),
            "status": self.status.as_u16(),
        });
        if !self.detail.is_empty() {
            document["detail"] = self.detail.as_ref().into();
        }
        let mut response = Response::new(Bytes::from(document.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(outcome) = self.outcome {
            response.extensions_mut().insert(outcome);
        }
        response
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
    /// What a client may know of a lock's failure: whether it was busy, lost, or whether the store is away. The outcome is
    /// `NotStarted` if the work under the lock [has not begun](LockError::is_before_work), else `Unknown`.
    fn from(error: &LockError) -> Self {
        let kind = match error.kind() {
            ErrorKind::Busy | ErrorKind::Timeout | ErrorKind::TooManyWaiters | ErrorKind::Deadlock => {
                ProblemKind::LockBusy
            }
            ErrorKind::Lost | ErrorKind::NotHeld | ErrorKind::ConcurrentModification => ProblemKind::LockLost,
            ErrorKind::InFlight => ProblemKind::InFlight,
            ErrorKind::KeyReused => ProblemKind::KeyReused,
            ErrorKind::OutcomeUnknown => ProblemKind::OutcomeUnknown,
            ErrorKind::QuotaExceeded => ProblemKind::QuotaExceeded,
            ErrorKind::RecordUnreadable => ProblemKind::RecordUnreadable,
            ErrorKind::ResultNotRetained => ProblemKind::ResponseNotRetained,
            ErrorKind::Superseded => ProblemKind::Superseded,
            _ => ProblemKind::StoreUnavailable,
        };
        let outcome = if error.is_before_work() { Outcome::NotStarted } else { Outcome::Unknown };
        let problem = Self::new(kind).outcome(outcome);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_whole_seconds_rounded_up() {
        let problem = |after| Problem::new(ProblemKind::InFlight).retry_after(after).retry_after_seconds();
        assert_eq!(problem(Duration::ZERO), Some(1));
        assert_eq!(problem(Duration::from_millis(1001)), Some(2));
        assert_eq!(problem(Duration::from_secs(3)), Some(3));
        assert_eq!(problem(Duration::MAX), Some(u64::MAX));
    }

    #[test]
    fn store_errors_keep_their_internals_to_themselves() {
        let error = LockError::new(ErrorKind::Connection, "lock").detail("redis at 10.0.0.7 refused");
        let problem = Problem::from(&error);
        assert_eq!(problem.status_code(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(!problem.to_string().contains("10.0.0.7"));
    }

    #[test]
    fn document_has_the_standard_members() {
        let problem = Problem::new(ProblemKind::InFlight)
            .detail("say \"when\"")
            .retry_after(Duration::from_millis(1500));
        let response = problem.to_response();
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let document: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(document["type"], "urn:distlock:problem:in-flight");
        assert_eq!(document["status"], 409);
        assert_eq!(document["detail"], "say \"when\"");
    }

    #[test]
    fn an_error_says_whether_the_work_has_begun() {
        let told = |kind, operation| Problem::from(LockError::new(kind, operation)).known_outcome();
        for kind in [ErrorKind::Busy, ErrorKind::Timeout, ErrorKind::Connection, ErrorKind::Shutdown] {
            assert_eq!(told(kind, "lock"), Some(Outcome::NotStarted), "{kind:?}");
        }
        for kind in [ErrorKind::Lost, ErrorKind::NotHeld, ErrorKind::ConcurrentModification] {
            assert_eq!(told(kind, "lock"), Some(Outcome::Unknown), "{kind:?}");
        }
        // The store went away after the work.
        for operation in ["release", "extend", "settle", "set balance"] {
            assert_eq!(told(ErrorKind::Connection, operation), Some(Outcome::Unknown), "{operation}");
        }
    }

    #[test]
    fn the_response_carries_the_outcome() {
        let told = |problem: Problem| problem.to_response().extensions().get::<Outcome>().copied();
        assert_eq!(told(Problem::new(ProblemKind::LockBusy)), Some(Outcome::NotStarted));
        assert_eq!(told(Problem::new(ProblemKind::StoreUnavailable)), Some(Outcome::NotStarted));
        assert_eq!(told(Problem::new(ProblemKind::LockLost)), Some(Outcome::Unknown));
        assert_eq!(
            told(Problem::new(ProblemKind::LockBusy).outcome(Outcome::Unknown)),
            Some(Outcome::Unknown)
        );
        assert_eq!(told(Problem::new(ProblemKind::KeyReused)), None);
    }
}
