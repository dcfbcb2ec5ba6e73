//! Which trace a replayed response comes from.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Where it is kept, among the stored headers.
pub(crate) const TRACE: HeaderName = HeaderName::from_static("distlock-trace");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// A `traceparent` of version 00 has 55 characters; what is much longer isn't kept.
const LONGEST: usize = 128;

/// In the extensions of a replayed response: the W3C `traceparent` of the request that was executed. A tracing layer further out makes
/// a link of it, from the span of the repeat to the trace in which the work was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalTrace(HeaderValue);

impl OriginalTrace {
    /// The `traceparent`, as its client sent it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(crate) fn of_request(headers: &HeaderMap) -> Option<HeaderValue> {
        headers.get(TRACEPARENT).filter(|value| value.len() <= LONGEST && value.to_str().is_ok()).cloned()
    }

    pub(crate) fn read(stored: &HeaderMap) -> Option<Self> {
        stored.get(TRACE).cloned().map(Self)
    }
}
