//! The client's key, parsed from its header.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use sfv::{BareItem, Item, Parser};

/// Longest key, in characters, after unquoting.
pub const MAX_KEY_CHARS: usize = 255;

/// The key of a request: 1 to 255 printable ASCII characters, unquoted. In the request's extensions of every execution,
/// inside [`Execution`](super::Execution).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// The key's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IdempotencyKey {
    type Err = InvalidKey;

    /// A key of your own, for a client: the text itself, without quotes around it.
    ///
    /// # Errors
    /// [`InvalidKey`] for anything but 1 to 255 printable ASCII characters, and for spaces alone.
    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(InvalidKey(KeyError::Malformed));
        }
        checked(text.to_owned()).map_err(InvalidKey)
    }
}

impl fmt::Debug for IdempotencyKey {
    /// The first characters only: a key may be all that stands between a stranger and a stored response.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({:?}…)", &self.0[..self.0.len().min(4)])
    }
}

/// Which spellings of a key are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeySyntax {
    /// The Structured Field String of the IETF draft (`"8e03…"`), or the bare text that most clients send (`8e03…`);
    /// both are the same key. Bare text is taken as it stands, parameters included: cutting it at a `;` would make
    /// one key of two.
    #[default]
    Lenient,
    /// The Structured Field String only.
    Strict,
}

/// Why a text is no [`IdempotencyKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKey(KeyError);

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            KeyError::Malformed => "the key must be printable ASCII characters",
            other => other.text(),
        })
    }
}

impl std::error::Error for InvalidKey {}

/// Why a header is no key. The text is for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    Empty,
    Malformed,
    NotAString,
    Repeated,
    TooLong,
}

impl KeyError {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Empty => "the key is empty",
            Self::Malformed => "the key must be a quoted string or printable ASCII characters without spaces",
            Self::NotAString => "the key must be a structured field string in double quotes",
            Self::Repeated => "there is more than one key",
            Self::TooLong => "the key has more than 255 characters",
        }
    }
}

impl KeySyntax {
    /// The key in this header; `None` if the header is absent.
    pub(crate) fn find(
        self,
        headers: &HeaderMap,
        name: &HeaderName,
    ) -> Option<Result<IdempotencyKey, KeyError>> {
        let mut values = headers.get_all(name).iter();
        let first = values.next()?;
        Some(if values.next().is_some() { Err(KeyError::Repeated) } else { self.parse(first.as_bytes()) })
    }

    fn parse(self, value: &[u8]) -> Result<IdempotencyKey, KeyError> {
        let value = value.trim_ascii();
        let text = match value.first() {
            None => return Err(KeyError::Empty),
            Some(b'"') => quoted(value)?,
            Some(_) if self == Self::Strict => return Err(KeyError::NotAString),
            Some(_) => bare(value)?,
        };
        checked(text)
    }
}

fn checked(text: String) -> Result<IdempotencyKey, KeyError> {
    if text.trim().is_empty() {
        return Err(KeyError::Empty);
    }
    if text.len() > MAX_KEY_CHARS {
        return Err(KeyError::TooLong);
    }
    Ok(IdempotencyKey(text.into()))
}

/// Parameters behind the string are allowed by the grammar and mean nothing here.
fn quoted(value: &[u8]) -> Result<String, KeyError> {
    match Parser::new(value).parse::<Item>().map(|item| item.bare_item) {
        Ok(BareItem::String(text)) => Ok(text.into()),
        _ => Err(KeyError::Malformed),
    }
}

fn bare(value: &[u8]) -> Result<String, KeyError> {
    match std::str::from_utf8(value) {
        Ok(text) if value.iter().all(u8::is_ascii_graphic) => Ok(text.to_owned()),
        _ => Err(KeyError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn lenient(value: &[u8]) -> Result<String, KeyError> {
        KeySyntax::Lenient.parse(value).map(|key| key.as_str().to_owned())
    }

    #[test]
    fn quoted_and_bare_spellings_are_one_key() {
        for spelling in [&b"abc"[..], b"\"abc\"", b" \"abc\" ", b"\"abc\";a=1", b"\"abc\";a=\"x;y\";b"] {
            assert_eq!(lenient(spelling).unwrap(), "abc", "{:?}", spelling.escape_ascii().to_string());
        }
        let uuid = "8e03978e-40d5-43dd-bc93-6894a57f9324";
        assert_eq!(lenient(uuid.as_bytes()).unwrap(), uuid);
        assert_eq!(lenient(format!("\"{uuid}\"").as_bytes()).unwrap(), uuid);
    }

    #[test]
    fn escapes_are_decoded() {
        assert_eq!(lenient(br#""a\"b\\c""#).unwrap(), r#"a"b\c"#);
        assert_eq!(lenient(br#""a\nb""#), Err(KeyError::Malformed));
    }

    #[test]
    fn bare_text_is_never_cut() {
        assert_eq!(lenient(b"order;1").unwrap(), "order;1");
        assert_ne!(lenient(b"order;1"), lenient(b"order;2"));
    }

    #[test]
    fn present_but_unusable_is_an_error_never_absent() {
        for empty in [&b""[..], b"   ", b"\"\"", b"\"  \""] {
            assert_eq!(lenient(empty), Err(KeyError::Empty));
        }
        for malformed in [
            &b"\"abc"[..],
            b"\"a\" \"b\"",
            b"a b",
            b"a\tb",
            b"caf\xc3\xa9",
            b"\"caf\xc3\xa9\"",
            b"\xff",
            b"a\x7f",
        ] {
            assert_eq!(
                lenient(malformed),
                Err(KeyError::Malformed),
                "{:?}",
                malformed.escape_ascii().to_string()
            );
        }
        assert_eq!(lenient("k".repeat(255).as_bytes()).unwrap().len(), 255);
        assert_eq!(lenient("k".repeat(256).as_bytes()), Err(KeyError::TooLong));
        assert_eq!(lenient(format!("\"{}\"", "k".repeat(256)).as_bytes()), Err(KeyError::TooLong));
    }

    #[test]
    fn strict_takes_the_quoted_form_only() {
        assert_eq!(KeySyntax::Strict.parse(b"abc"), Err(KeyError::NotAString));
        assert_eq!(KeySyntax::Strict.parse(b"\"abc\"").unwrap().as_str(), "abc");
    }

    #[test]
    fn two_headers_are_ambiguous() {
        let name = HeaderName::from_static("idempotency-key");
        let mut headers = HeaderMap::new();
        assert_eq!(KeySyntax::Lenient.find(&headers, &name), None);
        headers.append(&name, HeaderValue::from_static("a"));
        assert!(KeySyntax::Lenient.find(&headers, &name).unwrap().is_ok());
        headers.append(&name, HeaderValue::from_static("a"));
        assert_eq!(KeySyntax::Lenient.find(&headers, &name), Some(Err(KeyError::Repeated)));
    }

    #[test]
    fn debug_does_not_show_the_whole_key() {
        let key = KeySyntax::Lenient.parse(b"8e03978e-40d5").unwrap();
        assert_eq!(format!("{key:?}"), "IdempotencyKey(\"8e03\"…)");
    }

    #[test]
    fn a_text_is_a_key_as_it_stands() {
        let key = |text: &str| text.parse::<IdempotencyKey>();
        assert_eq!(key("order \"42\"").unwrap().as_str(), "order \"42\"");
        assert!(key("").is_err() && key(" ").is_err() && key(&"x".repeat(256)).is_err());
        assert_eq!(key("caf\u{e9}").unwrap_err().to_string(), "the key must be printable ASCII characters");
    }
}
