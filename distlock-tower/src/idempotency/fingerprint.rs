//! What a request looks like: the same key with another request is a client's mistake, not a replay.

use bytes::Bytes;
use distlock_runtime::Fingerprint;
use http::Uri;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use sha2::{Digest, Sha256};

/// The algorithm that new records get. Older ones stay here for as long as records of theirs may live, so that a
/// rolling deploy compares with the algorithm that the record was made by.
const CURRENT: u16 = 1;

/// The fingerprint for new records: method, original path and query, content type and body.
pub(crate) fn current(parts: &Parts, body: &Bytes) -> Fingerprint {
    Fingerprint { version: CURRENT, digest: version_1(parts, body) }
}

/// Whether a record with this fingerprint is about this request; `None` if the fingerprint's version is unknown here.
pub(crate) fn matches(stored: &Fingerprint, request: &Fingerprint) -> Option<bool> {
    (stored.version == request.version).then(|| stored.digest == request.digest)
}

fn version_1(parts: &Parts, body: &Bytes) -> [u8; 32] {
    let uri = original_uri(parts);
    let content_type = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let mut hash = Sha256::new();
    for part in [
        parts.method.as_str().as_bytes(),
        uri.path().as_bytes(),
        uri.query().unwrap_or("").as_bytes(),
        content_type,
        body,
    ] {
        hash.update(u64::try_from(part.len()).expect("a length fits in 64 bits").to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Nested axum routers strip their prefix from the request's URI and leave the whole one in an extension.
fn original_uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(original) = parts.extensions.get::<axum::extract::OriginalUri>() {
        return &original.0;
    }
    &parts.uri
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn of(request: Request<&'static str>) -> Fingerprint {
        let (parts, body) = request.into_parts();
        current(&parts, &Bytes::from(body))
    }

    fn post(uri: &str, content_type: &str, body: &'static str) -> Fingerprint {
        of(Request::post(uri).header(CONTENT_TYPE, content_type).body(body).unwrap())
    }

    #[test]
    fn every_part_counts_and_parts_do_not_run_together() {
        let base = post("/pay?a=1", "text/plain", "x");
        assert_eq!(base, post("/pay?a=1", "text/plain", "x"));
        assert_ne!(base, post("/pay?a=2", "text/plain", "x"));
        assert_ne!(base, post("/pay", "text/plain", "x"));
        assert_ne!(base, post("/pay?a=1", "text/html", "x"));
        assert_ne!(base, post("/pay?a=1", "text/plain", "y"));
        assert_ne!(post("/p", "t", "xy"), post("/p", "tx", "y"));
        let patch = Request::patch("/pay?a=1").header(CONTENT_TYPE, "text/plain").body("x").unwrap();
        assert_ne!(base, of(patch));
    }

    #[test]
    fn other_headers_do_not_count() {
        let traced = Request::post("/pay?a=1").header(CONTENT_TYPE, "text/plain").header("traceparent", "1");
        assert_eq!(post("/pay?a=1", "text/plain", "x"), of(traced.body("x").unwrap()));
    }

    #[test]
    fn an_unknown_version_is_neither_match_nor_mismatch() {
        let request = post("/pay", "t", "x");
        let newer = Fingerprint { version: CURRENT + 1, ..request };
        assert_eq!(matches(&newer, &request), None);
        assert_eq!(matches(&request, &request), Some(true));
    }

    #[cfg(feature = "axum")]
    #[test]
    fn a_nested_router_counts_with_its_prefix() {
        let nested = |prefix: &str| {
            let original = axum::extract::OriginalUri(format!("{prefix}/pay").parse().unwrap());
            of(Request::post("/pay").extension(original).body("x").unwrap())
        };
        assert_ne!(nested("/v1"), nested("/v2"));
        assert_eq!(nested(""), of(Request::post("/pay").body("x").unwrap()));
    }
}
