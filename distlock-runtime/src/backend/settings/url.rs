//! Decoding a URL, and its parameters.

use std::borrow::Cow;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::config;
use crate::backend::BackendError;

/// What a word of the parameters is called in errors.
const TEXT: &str = "text of the parameters";

/// Reads the URLs of one store, which is named in the errors. A URL may hold a password: of its text nothing but names and values of
/// parameters is quoted.
#[derive(Clone, Copy, Debug)]
pub(in crate::backend) struct UrlReader {
    store: &'static str,
    plus: &'static str,
}

/// A parameter's name and its value.
pub(in crate::backend) type Parameter<'a> = (&'static str, Cow<'a, str>);

impl UrlReader {
    /// In parameters a `+` is a blank, as forms have it.
    pub(in crate::backend) const fn new(store: &'static str) -> Self {
        Self { store, plus: " " }
    }

    /// In parameters a `+` is a plus.
    pub(in crate::backend) const fn with_plain_plus(self) -> Self {
        Self { plus: "+", ..self }
    }

    /// Whether an `@` stands behind what is taken for the hosts. Then a part of the password may stand there too.
    pub(in crate::backend) fn ends_early(self, text: &str) -> bool {
        let behind = text.split_once("://").map_or("", |(_, behind)| behind);
        behind.find(['/', '?', '#']).is_some_and(|end| behind[end..].contains('@'))
    }

    /// What to say then; `hosts` is what the `@` stands behind.
    pub(in crate::backend) fn early(self, hosts: &str) -> BackendError {
        config(format!(
            "the {} URL can't be read, and an '@' stands behind its {hosts}: '/', '?' and '#' in user and password are written %2F, %3F \
             and %23",
            self.store
        ))
    }

    /// A part without its escapes; `what` it is stands in the error.
    pub(in crate::backend) fn decoded<'a>(
        self,
        what: &str,
        text: &'a str,
    ) -> Result<Cow<'a, str>, BackendError> {
        self.check_escapes(what, text)?;
        percent_decode_str(text)
            .decode_utf8()
            .map_err(|_| config(format!("the {what} of the {} URL is not UTF-8 once decoded", self.store)))
    }

    /// The parameters, in their order: each is one of `known`, and none stands twice. `elsewhere`: those that the caller reads itself, for
    /// the list of all that are known.
    pub(in crate::backend) fn parameters<'a>(
        self,
        query: &'a str,
        known: &[&'static str],
        elsewhere: &[&'static str],
    ) -> Result<Vec<Parameter<'a>>, BackendError> {
        self.check_escapes("parameters", query)?;
        let mut found: Vec<Parameter<'a>> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = self.word(name)?;
            let Some(name) = known.iter().find(|known| **known == name) else {
                return Err(self.unknown(&name, value, [known, elsewhere].concat()));
            };
            if found.iter().any(|(before, _)| before == name) {
                return Err(self.twice(name));
            }
            found.push((*name, self.word(value)?));
        }
        Ok(found)
    }

    /// The error for a parameter that there isn't. Without a value it may be what stands behind an unescaped `&` of a password.
    pub(in crate::backend) fn unknown(
        self,
        name: &str,
        value: &str,
        mut known: Vec<&'static str>,
    ) -> BackendError {
        known.sort_unstable();
        let (store, known) = (self.store, known.join(", "));
        let name = match value {
            "" => "without a value (not shown, since an '&' in a password is written %26)".to_owned(),
            _ => format!("{name:?}"),
        };
        config(format!("unknown parameter {name} in the {store} URL; known: {known}"))
    }

    /// The error for a parameter that was given before.
    pub(in crate::backend) fn twice(self, name: &str) -> BackendError {
        config(format!("the parameter \"{name}\" stands twice in the {} URL", self.store))
    }

    fn word<'a>(self, text: &'a str) -> Result<Cow<'a, str>, BackendError> {
        if !text.contains('+') {
            return self.decoded(TEXT, text);
        }
        let text = text.replace('+', self.plus);
        Ok(Cow::Owned(self.decoded(TEXT, &text)?.into_owned()))
    }

    /// Decoding would take a `%` that begins no escape as it is, and a password would be another than was meant.
    fn check_escapes(self, what: &str, text: &str) -> Result<(), BackendError> {
        let is_escape =
            |behind: &str| behind.len() >= 2 && behind.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
        if text.split('%').skip(1).all(is_escape) {
            return Ok(());
        }
        Err(config(format!(
            "a '%' in the {what} of the {} URL begins no escape such as %2F; a plain '%' is written %25",
            self.store
        )))
    }
}

/// A time that is a parameter's value.
pub(in crate::backend) fn time(name: &str, value: &str) -> Result<Duration, BackendError> {
    match humantime::parse_duration(value) {
        Ok(limit) if !limit.is_zero() => Ok(limit),
        _ => Err(config(format!("{name}={value} is not a time such as 5s or 500ms"))),
    }
}

/// The values of two parameters that belong together.
pub(in crate::backend) fn both<T>(
    [one, other]: [&str; 2],
    values: (Option<T>, Option<T>),
) -> Result<Option<(T, T)>, BackendError> {
    match values {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        _ => Err(config(format!("{one} and {other} belong together: give both, or none"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: UrlReader = UrlReader::new("test");

    #[test]
    fn parameters_are_decoded_and_checked() {
        let read = |query| URL.parameters(query, &["label", "ca"], &["tls"]);
        let found = read("ca=%2Fa%26b&&label=a+b%2B").unwrap();
        assert_eq!(found, [("ca", "/a&b".into()), ("label", "a b+".into())]);
        assert_eq!(read("label").unwrap(), [("label", "".into())]);
        let plain = URL.with_plain_plus().parameters("label=a+b", &["label"], &[]).unwrap();
        assert_eq!(plain, [("label", "a+b".into())]);
        for (query, expected) in [
            ("ttl=3", "unknown parameter \"ttl\" in the test URL; known: ca, label, tls"),
            ("label=a&label=b", "the parameter \"label\" stands twice in the test URL"),
            ("label=%FF", "the text of the parameters of the test URL is not UTF-8 once decoded"),
            ("label=100%", "a '%' in the parameters of the test URL begins no escape"),
            ("label=x&hunter2", "without a value (not shown"),
            ("label=x&hunter2=", "without a value (not shown"),
        ] {
            let error = read(query).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter2"), "{query}: {error}");
        }
    }

    #[test]
    fn what_may_be_a_password_is_noticed() {
        assert!(URL.ends_early("test://u:12/3@h") && URL.ends_early("test://u:1?2@h"));
        assert!(!URL.ends_early("test://u:p@h/x?y=z") && !URL.ends_early("u:p@h"));
        assert!(URL.decoded("password", "p%ZZ").is_err() && URL.decoded("password", "p%E").is_err());
        assert_eq!(URL.decoded("password", "p%3Aq+").unwrap(), "p:q+");
    }

    #[test]
    fn values_are_read() {
        assert_eq!(time("t", "250ms").unwrap(), Duration::from_millis(250));
        assert!(time("t", "0s").unwrap_err().to_string().contains("t=0s is not a time"));
        assert_eq!(both(["a", "b"], (Some(1), Some(2))).unwrap(), Some((1, 2)));
        assert_eq!(both::<u8>(["a", "b"], (None, None)).unwrap(), None);
        assert!(
            both(["a", "b"], (Some(1), None)).unwrap_err().to_string().contains("a and b belong together")
        );
    }
}
