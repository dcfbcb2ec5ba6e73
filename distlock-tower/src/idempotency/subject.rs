//! What a request is about, as it was before any handler touched it.

use std::fmt;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, Uri};

/// The request of an execution as its client sent it. Fingerprints are made of it, and what decides about an execution that
/// [died](super::Lapsed) gets it.
#[derive(Clone)]
pub struct Subject {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl Subject {
    pub(crate) fn new(parts: &Parts, body: Bytes) -> Self {
        Self {
            method: parts.method.clone(),
            uri: original_uri(parts).clone(),
            headers: parts.headers.clone(),
            body: Some(body),
        }
    }

    /// Its method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.method
    }

    /// Its URI, whole: in nested axum routers too (feature `axum`).
    #[must_use]
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Its headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Its body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.body.as_deref().unwrap_or_default()
    }

    pub(crate) fn content_type(&self) -> &[u8] {
        self.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes())
    }

    /// From here on nobody compares bodies: an execution shouldn't keep a second hold on its request's.
    pub(crate) fn forget_body(&mut self) {
        self.body = None;
    }

    pub(crate) fn has_body(&self) -> bool {
        self.body.is_some()
    }
}

impl fmt::Debug for Subject {
    /// Without what isn't for logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("method", &self.method)
            .field("path", &self.uri.path())
            .finish_non_exhaustive()
    }
}

/// Nested axum routers strip their prefix from the request's URI and leave the whole one in an extension.
pub(crate) fn original_uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}
