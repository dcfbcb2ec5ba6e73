//! Which representation a stored response is: one that was negotiated for another client's taste must not be told to this one.
//!
//! What a response depends on is in its own headers: `Vary`, and the coding that it has. The values that these request headers had are
//! kept beside the response as a digest, and compared with those of a repeat.

use std::fmt::Write as _;

use http::header::{self, HeaderName};
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

/// Where the digest is kept, among the stored headers.
pub(crate) const VARIANT: HeaderName = HeaderName::from_static("distlock-variant");

const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const GRPC_ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");

/// What `Vary: *` stands for here.
const NEGOTIATION: [HeaderName; 3] = [header::ACCEPT, header::ACCEPT_CHARSET, header::ACCEPT_LANGUAGE];

/// Named by layers in front of the handler, or bound to the caller, whose identity is in the key's scope.
const NOT_NEGOTIATED: &[&str] = &["accept-encoding", "authorization", "cookie", "idempotency-key", "origin"];

/// The digest to keep, if the response depends on anything.
pub(crate) fn of(response: &HeaderMap, request: &HeaderMap) -> Option<HeaderValue> {
    let names = negotiated(response);
    if names.is_empty() {
        return None;
    }
    let mut text = String::new();
    for name in names {
        let separator = if text.is_empty() { "" } else { "," };
        write!(text, "{separator}{name}={}", digest(request, &name)).expect("writing to a String can't fail");
    }
    HeaderValue::try_from(text).ok()
}

/// Whether a stored response can be told to a request with these headers.
pub(crate) fn suits(stored: &HeaderMap, request: &HeaderMap) -> bool {
    let Some(variant) = stored.get(VARIANT) else { return true };
    let Ok(variant) = variant.to_str() else { return false };
    variant.split(',').all(|part| {
        let Some((name, kept)) = part.split_once('=') else { return false };
        let Ok(name) = HeaderName::try_from(name) else { return false };
        digest(request, &name) == kept || is_acceptable(stored, request, &name)
    })
}

/// The request headers that this response depends on.
fn negotiated(response: &HeaderMap) -> Vec<HeaderName> {
    let mut names = Vec::new();
    for name in listed(response, &header::VARY) {
        if name == "*" {
            names.extend(NEGOTIATION);
        } else if !NOT_NEGOTIATED.contains(&name.as_str())
            && !name.starts_with("access-control-")
            && let Ok(name) = HeaderName::try_from(name)
        {
            names.push(name);
        }
    }
    if codings(response, &header::CONTENT_ENCODING).next().is_some() {
        names.push(header::ACCEPT_ENCODING);
    }
    if codings(response, &GRPC_ENCODING).next().is_some() {
        names.push(GRPC_ACCEPT_ENCODING);
    }
    names.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    names.dedup();
    names
}

/// A coding may be told to whoever says that they can read it, however they say it.
fn is_acceptable(stored: &HeaderMap, request: &HeaderMap, name: &HeaderName) -> bool {
    let has = if *name == header::ACCEPT_ENCODING {
        &header::CONTENT_ENCODING
    } else if *name == GRPC_ACCEPT_ENCODING {
        &GRPC_ENCODING
    } else {
        return false;
    };
    codings(stored, has).all(|coding| {
        listed(request, name).any(|accepted| {
            let (accepted, weight) = accepted.split_once(';').unwrap_or((&accepted, ""));
            accepted.trim_end() == coding && !is_zero(weight)
        })
    })
}

/// `q=0`, `q=0.0` and so on: expressly not.
fn is_zero(weight: &str) -> bool {
    weight
        .trim()
        .strip_prefix("q=")
        .is_some_and(|weight| weight.bytes().all(|digit| digit == b'0' || digit == b'.'))
}

/// What a body was encoded by, beyond nothing.
fn codings(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    listed(headers, name).filter(|coding| coding != "identity")
}

/// The elements of a comma-separated header, in lower case.
fn listed(headers: &HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> {
    headers
        .get_all(name)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .map(|part| String::from_utf8_lossy(part.trim_ascii()).to_ascii_lowercase())
        .filter(|part| !part.is_empty())
}

fn digest(request: &HeaderMap, name: &HeaderName) -> String {
    let mut hash = Sha256::new();
    for value in request.get_all(name) {
        hash.update(u64::try_from(value.len()).expect("a length fits in 64 bits").to_be_bytes());
        hash.update(value.as_bytes());
    }
    hash.finalize()[..8].iter().fold(String::with_capacity(16), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String can't fail");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        list.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    /// Whether a response to `first` suits `again`.
    fn told(
        response: &[(&'static str, &'static str)],
        first: &[(&'static str, &'static str)],
        again: &[(&'static str, &'static str)],
    ) -> bool {
        let mut stored = headers(response);
        if let Some(variant) = of(&stored, &headers(first)) {
            stored.insert(VARIANT, variant);
        }
        suits(&stored, &headers(again))
    }

    #[test]
    fn what_the_response_varies_by_must_be_the_same() {
        let vary = [("vary", "Accept, Origin")];
        assert!(told(&vary, &[("accept", "a/b")], &[("accept", "a/b")]));
        assert!(!told(&vary, &[("accept", "a/b")], &[("accept", "c/d")]));
        assert!(!told(&vary, &[("accept", "a/b")], &[]));
        assert!(told(&vary, &[("origin", "https://a")], &[("origin", "https://b")]));
        assert!(!told(&[("vary", "*")], &[("accept-language", "de")], &[("accept-language", "en")]));
        assert!(told(&[], &[("accept", "a/b")], &[("accept", "c/d")]));
    }

    #[test]
    fn an_encoded_body_is_told_to_those_who_can_read_it() {
        let gzip = [("content-encoding", "gzip"), ("vary", "accept-encoding")];
        let first = [("accept-encoding", "gzip, br")];
        assert!(told(&gzip, &first, &[("accept-encoding", "br;q=0.5, GZIP;q=0.8")]));
        for cannot in ["br", "gzip;q=0", "gzip; q=0.0", "identity"] {
            assert!(!told(&gzip, &first, &[("accept-encoding", cannot)]), "{cannot}");
        }
        assert!(!told(&gzip, &first, &[]));
        // Whoever never asked and got it all the same gets it again.
        assert!(told(&gzip, &[], &[]));
        // A plain body suits everybody.
        assert!(told(&[("vary", "accept-encoding")], &first, &[]));
    }

    #[test]
    fn a_compressed_message_is_told_to_those_who_can_read_it() {
        let gzip = [("grpc-encoding", "gzip")];
        let first = [("grpc-accept-encoding", "identity,gzip")];
        assert!(told(&gzip, &first, &[("grpc-accept-encoding", "gzip,deflate")]));
        assert!(!told(&gzip, &first, &[("grpc-accept-encoding", "identity")]));
    }
}
