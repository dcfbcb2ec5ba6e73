//! gRPC as these layers need it: what is a call, which status it ended with, and when another try makes sense. On `http` types,
//! without a dependency on tonic.

mod code;
mod retry;
mod wire;

use http::HeaderMap;
use http::header::CONTENT_TYPE;

pub use self::code::Code;
pub(crate) use self::retry::{PushBack, push_back, retry_delay};

/// Whether these are the headers of a gRPC call. gRPC-Web isn't: a layer that translates it belongs outside of ours.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    const NAME: &[u8] = b"application/grpc";
    headers.get(CONTENT_TYPE).is_some_and(|value| {
        let value = value.as_bytes();
        value.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))
            && matches!(value.get(NAME.len()), None | Some(b'+' | b';' | b' '))
    })
}

/// The status in these headers or trailers; one that can't be read is `UNKNOWN`.
pub(crate) fn status_of(headers: &HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|value| Code::parse(value.as_bytes()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn grpc_is_told_by_its_content_type() {
        let is = |text| is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(text))]));
        for text in ["application/grpc", "application/grpc+proto", "Application/gRPC;charset=utf-8"] {
            assert!(is(text), "{text}");
        }
        for text in
            ["application/grpc-web", "application/grpc-web+proto", "application/json", "application/grp"]
        {
            assert!(!is(text), "{text}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
