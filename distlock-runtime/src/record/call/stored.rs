//! Results as bytes.
//!
//! ```text
//! version  u8 = 1
//! kind     u8 = 'v' a value, 'e' an error
//! the rest is JSON
//! ```
//! JSON, as its reader takes what an older or newer version of the type wrote by names. What can't be read is an error, never
//! a miss: it means "was executed".

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

const VERSION: u8 = 1;
const VALUE: u8 = b'v';
const ERROR: u8 = b'e';

/// Why stored bytes are no result.
pub(in crate::record) type Unreadable = &'static str;

/// How a result `R` is kept, and whether: two functions, so that nobody but their maker needs to know what `R` is made of.
#[allow(missing_debug_implementations)] // Lives for one call.
pub struct Kept<R> {
    encode: fn(&R) -> Option<serde_json::Result<Bytes>>,
    decode: fn(&[u8]) -> Result<R, Unreadable>,
}

impl<T: Serialize + DeserializeOwned, E> Kept<Result<T, E>> {
    /// Keeps values, not errors.
    #[must_use]
    pub fn values() -> Self {
        Self {
            encode: |result| result.as_ref().ok().map(|value| written(VALUE, value)),
            decode: |bytes| match opened(bytes)? {
                (VALUE, json) => read(json).map(Ok),
                _ => Err("an error was stored, and this call doesn't keep errors"),
            },
        }
    }

    /// Keeps errors too.
    #[must_use]
    pub fn results() -> Self
    where
        E: Serialize + DeserializeOwned,
    {
        Self {
            encode: |result| {
                Some(match result {
                    Ok(value) => written(VALUE, value),
                    Err(error) => written(ERROR, error),
                })
            },
            decode: |bytes| match opened(bytes)? {
                (VALUE, json) => read(json).map(Ok),
                (ERROR, json) => read(json).map(Err),
                _ => Err("the stored result is of an unknown kind"),
            },
        }
    }
}

impl<R> Kept<R> {
    /// The bytes to keep; `None` for a result that isn't kept.
    pub(in crate::record) fn encode(&self, result: &R) -> Option<serde_json::Result<Bytes>> {
        (self.encode)(result)
    }

    /// The result that was kept.
    pub(in crate::record) fn decode(&self, bytes: &[u8]) -> Result<R, Unreadable> {
        (self.decode)(bytes)
    }
}

/// A value as it is kept.
pub(in crate::record) fn value(value: &(impl Serialize + ?Sized)) -> serde_json::Result<Bytes> {
    written(VALUE, value)
}

fn written(kind: u8, value: &(impl Serialize + ?Sized)) -> serde_json::Result<Bytes> {
    let mut bytes = vec![VERSION, kind];
    serde_json::to_writer(&mut bytes, value)?;
    Ok(bytes.into())
}

fn opened(bytes: &[u8]) -> Result<(u8, &[u8]), Unreadable> {
    match bytes {
        [VERSION, kind, json @ ..] => Ok((*kind, json)),
        [VERSION] | [] => Err("the stored result is malformed"),
        _ => Err("the stored result's version is not known"),
    }
}

fn read<T: DeserializeOwned>(json: &[u8]) -> Result<T, Unreadable> {
    serde_json::from_slice(json).map_err(|_| "the stored result is of another type")
}

#[cfg(test)]
mod tests {
    use super::*;

    type Sample = Result<(u64, String), String>;

    #[test]
    fn values_and_errors_round_trip() {
        for result in [Sample::Ok((1, "é".into())), Sample::Err("no".into())] {
            let bytes = Kept::results().encode(&result).unwrap().unwrap();
            assert_eq!(Kept::results().decode(&bytes), Ok(result));
        }
    }

    #[test]
    fn errors_are_kept_only_where_asked_for() {
        assert!(Kept::values().encode(&Sample::Err("no".into())).is_none());
        let kept = Kept::results().encode(&Sample::Err("no".into())).unwrap().unwrap();
        assert!(Kept::<Sample>::values().decode(&kept).is_err());
    }

    #[test]
    fn the_bytes_of_version_1_stay_what_they_are() {
        let bytes = Kept::values().encode(&Sample::Ok((1, "a".into()))).unwrap().unwrap();
        assert_eq!(&bytes[..], b"\x01v[1,\"a\"]");
    }

    #[test]
    fn what_is_not_a_result_is_unreadable() {
        for bytes in [&b""[..], b"\x01", b"\x02v1", b"\x01z1", b"\x01v", b"\x01v\"x\"", b"\x01v1 1"] {
            assert!(Kept::<Result<u8, String>>::results().decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
