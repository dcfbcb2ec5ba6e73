//! Problems as `application/problem+json` (RFC 9457).

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response};

use super::{Problem, Responder};

/// The default [`Responder`]: `application/problem+json` with `type`, `title`, `status` and `detail`, plus `Retry-After`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ProblemJson;

impl ProblemJson {
    /// The responder.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Responder for ProblemJson {
    fn respond(&self, problem: &Problem) -> Response<Bytes> {
        let mut document = serde_json::json!({
            "type": problem.kind().type_uri(),
            "title": problem.kind().title(),
            "status": problem.status_code().as_u16(),
        });
        if !problem.detail_text().is_empty() {
            document["detail"] = problem.detail_text().into();
        }
        let mut response = Response::new(Bytes::from(document.to_string()));
        *response.status_mut() = problem.status_code();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = problem.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::problem::ProblemKind;

    #[test]
    fn document_has_the_standard_members() {
        let problem = Problem::new(ProblemKind::InFlight)
            .detail("say \"when\"")
            .retry_after(Duration::from_millis(1500));
        let response = ProblemJson::new().respond(&problem);
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "2");
        let document: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!(document["type"], "urn:distlock:problem:in-flight");
        assert_eq!(document["status"], 409);
        assert_eq!(document["detail"], "say \"when\"");
    }
}
