//! When another try makes sense: `grpc-retry-pushback-ms` of gRFC A6, and `google.rpc.RetryInfo`.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::HeaderMap;

use super::wire::{self, Value};

/// What a server says by `grpc-retry-pushback-ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PushBack {
    After(Duration),
    /// A negative number, or none at all: don't come again.
    Stop,
}

pub(crate) fn push_back(headers: &HeaderMap) -> Option<PushBack> {
    let value = headers.get("grpc-retry-pushback-ms")?;
    let milliseconds = value.to_str().ok().and_then(|text| text.parse().ok());
    Some(milliseconds.map_or(PushBack::Stop, |ms| PushBack::After(Duration::from_millis(ms))))
}

/// The delay of a `RetryInfo` among the status's details.
pub(crate) fn retry_delay(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-status-details-bin")?.as_bytes();
    // Senders may pad or not.
    let unpadded = text.iter().rposition(|byte| *byte != b'=').map_or(&text[..0], |last| &text[..=last]);
    let status = STANDARD_NO_PAD.decode(unpadded).ok()?;
    details(&status).find_map(|detail| {
        let url = bytes_at(detail, 1)?;
        url.ends_with(b"/google.rpc.RetryInfo").then(|| bytes_at(detail, 2).and_then(retry_info)).flatten()
    })
}

fn details(status: &[u8]) -> impl Iterator<Item = &[u8]> {
    wire::fields(status).map_while(|field| field).filter_map(|field| match field {
        (3, Value::Bytes(detail)) => Some(detail),
        _ => None,
    })
}

fn retry_info(message: &[u8]) -> Option<Duration> {
    let delay = bytes_at(message, 1)?;
    // A negative number would be one of 64 bits with the highest set.
    let seconds = i64::try_from(number_at(delay, 1)?).ok()?;
    let nanos = u32::try_from(number_at(delay, 2)?).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(Duration::new(seconds.unsigned_abs(), nanos))
}

/// The last field of this number, as protobuf has it; `None` if the message is malformed.
fn last_at(message: &[u8], number: u64) -> Option<Option<Value<'_>>> {
    let mut found = None;
    for field in wire::fields(message) {
        let (at, value) = field?;
        if at == number {
            found = Some(value);
        }
    }
    Some(found)
}

fn bytes_at(message: &[u8], number: u64) -> Option<&[u8]> {
    match last_at(message, number)?? {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// Zero if it is missing: that is how protobuf writes a zero.
fn number_at(message: &[u8], number: u64) -> Option<u64> {
    match last_at(message, number)? {
        None => Some(0),
        Some(Value::Number(number)) => Some(number),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(name: &'static str, value: &[u8]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_bytes(value).unwrap());
        headers
    }

    /// A status with another detail first, and a `RetryInfo` of 1.5 s.
    fn status() -> Vec<u8> {
        let delay = b"\x08\x01\x10\x80\xca\xb5\xee\x01";
        let info = [&[0x0a, delay.len() as u8], &delay[..]].concat();
        let url = b"type.googleapis.com/google.rpc.RetryInfo";
        let detail = [&[0x0a, url.len() as u8], &url[..], &[0x12, info.len() as u8], &info].concat();
        [b"\x08\x0e\x12\x04busy\x1a\x05\x0a\x03a/b\x1a".as_slice(), &[detail.len() as u8], &detail].concat()
    }

    #[test]
    fn retry_info_is_found_among_the_details_padded_or_not() {
        let text = STANDARD_NO_PAD.encode(status());
        for text in [text.clone(), format!("{text}=")] {
            let delay = retry_delay(&headers("grpc-status-details-bin", text.as_bytes()));
            assert_eq!(delay, Some(Duration::from_millis(1500)));
        }
    }

    #[test]
    fn details_that_are_cut_off_or_garbage_say_nothing() {
        let whole = status();
        for length in 0..whole.len() {
            let text = STANDARD_NO_PAD.encode(&whole[..length]);
            assert_eq!(retry_delay(&headers("grpc-status-details-bin", text.as_bytes())), None, "{length}");
        }
        assert_eq!(retry_delay(&headers("grpc-status-details-bin", b"???")), None);
        assert_eq!(retry_delay(&HeaderMap::new()), None);
    }

    #[test]
    fn a_push_back_that_is_no_time_means_stop() {
        let of = |text: &[u8]| push_back(&headers("grpc-retry-pushback-ms", text));
        assert_eq!(of(b"250"), Some(PushBack::After(Duration::from_millis(250))));
        assert_eq!(of(b"0"), Some(PushBack::After(Duration::ZERO)));
        for text in ["-1", "soon", "", "1.5"] {
            assert_eq!(of(text.as_bytes()), Some(PushBack::Stop), "{text}");
        }
        assert_eq!(push_back(&HeaderMap::new()), None);
    }
}
