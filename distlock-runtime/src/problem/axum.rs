//! Problems, lock errors and outcomes as parts of axum's responses. Here, since a foreign trait needs a type of this crate.

use std::convert::Infallible;

use axum_core::body::Body;
use axum_core::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};

use super::{Outcome, Problem, ProblemKind};
use crate::error::LockError;

impl IntoResponse for Problem {
    /// As [`Problem::to_response`] has it.
    fn into_response(self) -> Response {
        self.to_response().map(Body::from)
    }
}

/// With feature `axum`: what a client may know of the failure, as `application/problem+json`. A handler may return it as its
/// error. The text with hosts, keys and labels goes to the log, at `error` unless the lock was merely busy.
impl IntoResponse for LockError {
    fn into_response(self) -> Response {
        let problem = Problem::from(&self);
        if problem.kind() == ProblemKind::LockBusy {
            tracing::debug!(error = %self, "a request found its lock busy");
        } else {
            tracing::error!(error = %self, "a request failed for its lock");
        }
        problem.into_response()
    }
}

impl IntoResponseParts for Outcome {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_lock_error_answers_as_its_problem_does() {
        for kind in ErrorKind::ALL {
            let error = LockError::new(*kind, "lock").detail("redis at 10.0.0.7 refused");
            let response = error.clone().into_response();
            let problem = Problem::from(error).to_response();
            assert_eq!(response.status(), problem.status(), "{kind:?}");
            assert_eq!(response.headers(), problem.headers(), "{kind:?}");
            assert_eq!(response.headers()["content-type"], "application/problem+json");
            assert_eq!(response.extensions().get::<Outcome>(), problem.extensions().get(), "{kind:?}");
        }
    }

    #[test]
    fn an_outcome_beside_a_problem_overrules_it() {
        let busy = || Problem::new(ProblemKind::LockBusy);
        let told = |response: Response| response.extensions().get::<Outcome>().copied();
        assert_eq!(told(busy().into_response()), Some(Outcome::NotStarted));
        assert_eq!(told((Outcome::Unknown, busy()).into_response()), Some(Outcome::Unknown));
    }
}
