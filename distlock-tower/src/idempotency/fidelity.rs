//! Which headers of a response are the result, and which belong to one exchange and must not be told again.

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::codec::StoredResponse;
use super::subject::Subject;
use super::trace::{OriginalTrace, TRACE};
use super::variant::{self, VARIANT};

/// Marks a replayed response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Says what the layer did not do, such as `unprotected`.
pub(crate) const STATUS: HeaderName = HeaderName::from_static("idempotency-status");

/// Hop-by-hop, made by servers and proxies for each message, or bound to one client's session.
const EXCHANGE_ONLY: &[&str] = &[
    "age",
    "alt-svc",
    "authentication-info",
    "clear-site-data",
    "connection",
    "content-length",
    "date",
    "distlock-trace",
    "distlock-variant",
    "idempotency-status",
    "idempotent-replayed",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "server",
    "server-timing",
    "set-cookie",
    "set-cookie2",
    "te",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "upgrade",
    "via",
    "www-authenticate",
    "x-correlation-id",
    "x-request-id",
    "x-trace-id",
];

const EXCHANGE_ONLY_PREFIXES: &[&str] = &["access-control-", "ratelimit", "x-b3-", "x-ratelimit-"];

/// The headers to keep: repeated ones, their order and their bytes stay.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let nominated: Vec<&[u8]> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .collect();
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !is_exchange_only(name)
            && !nominated.iter().any(|other| other.eq_ignore_ascii_case(name.as_str().as_bytes()))
        {
            kept.append(name, value.clone());
        }
    }
    kept
}

/// The headers to keep of a response to this request, with what this layer has to know at a replay.
pub(crate) fn annotated(headers: &HeaderMap, request: &Subject) -> HeaderMap {
    let mut kept = kept(headers);
    if let Some(variant) = variant::of(headers, request.headers()) {
        kept.insert(VARIANT, variant);
    }
    if let Some(trace) = OriginalTrace::of_request(request.headers()) {
        kept.insert(TRACE, trace);
    }
    kept
}

fn is_exchange_only(name: &HeaderName) -> bool {
    let name = name.as_str();
    EXCHANGE_ONLY.binary_search(&name).is_ok()
        || EXCHANGE_ONLY_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The headers of a replay: those kept, the length computed anew where there was one, and the marker.
pub(crate) fn replayed(stored: &StoredResponse) -> HeaderMap {
    let mut headers = stored.headers.clone();
    // Kept for this layer, not for clients.
    headers.remove(VARIANT);
    headers.remove(TRACE);
    let bodiless = matches!(
        stored.status,
        StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED
    );
    if stored.had_length && stored.trailers.is_none() && !bodiless {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(stored.body.len()));
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    headers
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_list_is_sorted_for_its_search() {
        assert!(EXCHANGE_ONLY.is_sorted());
    }

    #[test]
    fn results_stay_and_exchange_headers_go() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("location", "/orders/1"),
            ("set-cookie", "a=1"),
            ("x-many", "1"),
            ("date", "now"),
            ("connection", "close, X-Hop"),
            ("x-hop", "1"),
            ("x-many", "2"),
            ("access-control-allow-origin", "*"),
            ("ratelimit-remaining", "3"),
            ("x-request-id", "7"),
            ("content-length", "3"),
            ("etag", "\"v1\""),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let kept = kept(&headers);
        let mut names: Vec<_> = kept.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["etag", "location", "x-many"]);
        assert_eq!(kept.get_all("x-many").iter().collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn every_header_of_one_exchange_goes() {
        let goes = "age alt-svc authentication-info clear-site-data connection content-length date keep-alive \
                    proxy-authenticate proxy-authentication-info proxy-authorization proxy-connection server server-timing \
                    set-cookie te transfer-encoding upgrade via www-authenticate x-request-id x-correlation-id x-trace-id \
                    traceparent tracestate x-b3-traceid ratelimit ratelimit-policy x-ratelimit-reset \
                    access-control-allow-origin access-control-expose-headers idempotency-status idempotent-replayed";
        for name in goes.split_whitespace() {
            let headers =
                HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("1"))]);
            assert!(kept(&headers).is_empty(), "{name}");
        }
    }

    #[test]
    fn values_stay_what_they_are_in_order_and_bytes() {
        let values = [&b"b"[..], b"a", b"caf\xe9", b""].map(|value| HeaderValue::from_bytes(value).unwrap());
        let mut headers = HeaderMap::new();
        for value in &values {
            headers.append("x-many", value.clone());
        }
        assert!(kept(&headers).get_all("x-many").iter().eq(&values));
    }

    #[test]
    fn a_replay_has_its_own_length_and_the_marker() {
        let mut stored = StoredResponse {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            had_length: true,
            knew_length: true,
            body: Bytes::from_static(b"four"),
            trailers: None,
        };
        assert_eq!(replayed(&stored)[header::CONTENT_LENGTH], "4");
        assert_eq!(replayed(&stored)[REPLAYED], "true");
        stored.had_length = false;
        assert!(!replayed(&stored).contains_key(header::CONTENT_LENGTH));
    }
}
