//! What stands in front of a URL's first colon.

use std::borrow::Cow;

/// The same URL with its scheme in small letters: schemes are the same in any (RFC 3986, 3.1), and the rest isn't.
pub(crate) fn in_small_letters(url: &str) -> Cow<'_, str> {
    match url.split_once(':') {
        Some((scheme, rest)) if scheme.bytes().any(|byte| byte.is_ascii_uppercase()) => {
            Cow::Owned(format!("{}:{rest}", scheme.to_ascii_lowercase()))
        }
        _ => Cow::Borrowed(url),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_scheme_changes() {
        for (url, expected) in [
            ("REDIS://Us:Pw@Host/0?Label=A", "redis://Us:Pw@Host/0?Label=A"),
            ("Redis+Sentinel://A,B/Name", "redis+sentinel://A,B/Name"),
            ("redlock://A,B,C", "redlock://A,B,C"),
            ("MEMORY:", "memory:"),
            ("Nothing", "Nothing"),
        ] {
            assert_eq!(in_small_letters(url), expected);
        }
    }
}
