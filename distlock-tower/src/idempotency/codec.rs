//! Stored responses as bytes: small, length-framed, versioned.
//!
//! ```text
//! version  u8 = 1
//! status   u16
//! flags    u8       bit 0: trailers follow, bit 1: the response carried a Content-Length, bit 2: its body's length was known
//! headers  u16 count, then for each: u16 length + name, u32 length + value
//! body     u32 length + bytes
//! trailers as headers, only with flag bit 0
//! ```
//! Numbers are big-endian and nothing may be left over. A version or a form that isn't known is an error, never a miss:
//! a record that can't be read means "was executed".

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

const VERSION: u8 = 1;
const HAS_TRAILERS: u8 = 1;
const HAD_LENGTH: u8 = 1 << 1;
const KNEW_LENGTH: u8 = 1 << 2;

/// A response as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The response carried a Content-Length; a replay gets one again, computed from the body.
    pub(crate) had_length: bool,
    /// The body's length was known from the start. If it wasn't, a replay is sent as a stream again.
    pub(crate) knew_length: bool,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

/// Why stored bytes are no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    Malformed,
    UnknownVersion(u8),
}

/// A response beyond what the format can count; it is treated as too large to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl StoredResponse {
    pub(crate) fn encode(&self) -> Result<Bytes, TooLarge> {
        let mut out = BytesMut::with_capacity(self.body.len() + 64 * self.headers.len() + 16);
        out.put_u8(VERSION);
        out.put_u16(self.status.as_u16());
        let trailers = if self.trailers.is_some() { HAS_TRAILERS } else { 0 };
        let had_length = if self.had_length { HAD_LENGTH } else { 0 };
        let knew_length = if self.knew_length { KNEW_LENGTH } else { 0 };
        out.put_u8(trailers | had_length | knew_length);
        put_headers(&mut out, &self.headers)?;
        out.put_u32(u32::try_from(self.body.len()).map_err(|_| TooLarge)?);
        out.put_slice(&self.body);
        if let Some(trailers) = &self.trailers {
            put_headers(&mut out, trailers)?;
        }
        Ok(out.freeze())
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Input(bytes);
        match input.u8()? {
            VERSION => {}
            other => return Err(DecodeError::UnknownVersion(other)),
        }
        let status = StatusCode::from_u16(input.u16()?).map_err(|_| DecodeError::Malformed)?;
        let flags = input.u8()?;
        if flags & !(HAS_TRAILERS | HAD_LENGTH | KNEW_LENGTH) != 0 {
            return Err(DecodeError::Malformed);
        }
        let headers = input.headers()?;
        let length = input.u32()?;
        let body = input.take(length as usize)?;
        let trailers = if flags & HAS_TRAILERS == 0 { None } else { Some(input.headers()?) };
        if input.0.has_remaining() {
            return Err(DecodeError::Malformed);
        }
        let has = |flag| flags & flag != 0;
        Ok(Self {
            status,
            headers,
            had_length: has(HAD_LENGTH),
            knew_length: has(KNEW_LENGTH),
            body,
            trailers,
        })
    }
}

fn put_headers(out: &mut BytesMut, headers: &HeaderMap) -> Result<(), TooLarge> {
    out.put_u16(u16::try_from(headers.len()).map_err(|_| TooLarge)?);
    for (name, value) in headers {
        out.put_u16(u16::try_from(name.as_str().len()).map_err(|_| TooLarge)?);
        out.put_slice(name.as_str().as_bytes());
        out.put_u32(u32::try_from(value.len()).map_err(|_| TooLarge)?);
        out.put_slice(value.as_bytes());
    }
    Ok(())
}

/// Bounds-checked reading; slices share the record's memory.
struct Input(Bytes);

impl Input {
    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.0.try_get_u8().map_err(|_| DecodeError::Malformed)
    }

    fn u16(&mut self) -> Result<u16, DecodeError> {
        self.0.try_get_u16().map_err(|_| DecodeError::Malformed)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.0.try_get_u32().map_err(|_| DecodeError::Malformed)
    }

    fn take(&mut self, length: usize) -> Result<Bytes, DecodeError> {
        if length > self.0.remaining() {
            return Err(DecodeError::Malformed);
        }
        Ok(self.0.split_to(length))
    }

    fn headers(&mut self) -> Result<HeaderMap, DecodeError> {
        let count = self.u16()?;
        let mut headers = HeaderMap::new();
        for _ in 0..count {
            let length = self.u16()?;
            let name = self.take(length.into())?;
            let name = HeaderName::from_bytes(&name).map_err(|_| DecodeError::Malformed)?;
            let length = self.u32()?;
            let value = self.take(length as usize)?;
            let value = HeaderValue::from_maybe_shared(value).map_err(|_| DecodeError::Malformed)?;
            headers.try_append(name, value).map_err(|_| DecodeError::Malformed)?;
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> StoredResponse {
        let mut headers = HeaderMap::new();
        headers.append("x-many", HeaderValue::from_static("one"));
        headers.append("content-type", HeaderValue::from_static("application/json"));
        headers.append("x-many", HeaderValue::from_static("two"));
        headers.append("x-bytes", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        let trailers =
            HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
        StoredResponse {
            status: StatusCode::CREATED,
            headers,
            had_length: true,
            knew_length: true,
            body: Bytes::from_static(b"{\"ok\":true}\x00\xff"),
            trailers: Some(trailers),
        }
    }

    #[test]
    fn round_trips() {
        let with_trailers = sample();
        let bare = StoredResponse {
            status: StatusCode::NO_CONTENT,
            headers: HeaderMap::new(),
            had_length: false,
            knew_length: false,
            body: Bytes::new(),
            trailers: None,
        };
        for response in [with_trailers, bare] {
            assert_eq!(StoredResponse::decode(response.encode().unwrap()), Ok(response));
        }
    }

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let response = StoredResponse {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(HeaderName::from_static("a"), HeaderValue::from_static("b"))]),
            had_length: true,
            knew_length: true,
            body: Bytes::from_static(b"hi"),
            trailers: None,
        };
        let expected = b"\x01\x00\xc8\x06\x00\x01\x00\x01a\x00\x00\x00\x01b\x00\x00\x00\x02hi";
        assert_eq!(&response.encode().unwrap()[..], expected);
    }

    #[test]
    fn every_truncation_and_any_excess_is_an_error() {
        let whole = sample().encode().unwrap();
        for length in 0..whole.len() {
            assert_eq!(
                StoredResponse::decode(whole.slice(..length)),
                Err(DecodeError::Malformed),
                "{length}"
            );
        }
        let longer = Bytes::from([&whole[..], b"x"].concat());
        assert_eq!(StoredResponse::decode(longer), Err(DecodeError::Malformed));
    }

    #[test]
    fn an_unknown_version_is_named() {
        let mut bytes = sample().encode().unwrap().to_vec();
        bytes[0] = 2;
        assert_eq!(StoredResponse::decode(bytes.into()), Err(DecodeError::UnknownVersion(2)));
    }
}
