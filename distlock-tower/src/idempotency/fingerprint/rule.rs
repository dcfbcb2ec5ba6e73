//! Which parts of a request make its fingerprint.

use std::fmt;
use std::sync::Arc;

use distlock_runtime::Fingerprint;
use http::HeaderName;
use sha2::{Digest, Sha256};

use super::json;
use crate::idempotency::subject::Subject;

/// The versions of the rules without parameters. They stay what they are for as long as records of theirs may live.
const BYTES: u16 = 1;
const CANONICAL_JSON: u16 = 2;
/// The versions of all other rules begin here, and are derived from what they say.
const DERIVED: u16 = 1 << 15;

/// Which parts of a request must be the same under one key. Method, original path, query and content type always count.
///
/// ```
/// # mod distlock { pub use distlock_tower as tower; }
/// use distlock::tower::FingerprintRule;
/// use http::header::ACCEPT_LANGUAGE;
/// // the order of members and the client's own time stamp don't matter, the language does
/// let rule = FingerprintRule::json_fields(["/amount", "/currency"]).and_headers([ACCEPT_LANGUAGE]);
/// ```
///
/// Whoever changes the rule of a running service gives the old one to
/// [`former_fingerprint`](crate::idempotency::IdempotencyBuilder::former_fingerprint) until its records have gone: a record of a rule that isn't
/// known is refused (`record-unreadable`), since nobody can tell whether it is about this request. `bytes` and `canonical_json`
/// without headers are always known.
#[derive(Clone)]
pub struct FingerprintRule {
    kind: Kind,
    headers: Vec<HeaderName>,
    version: u16,
}

type Extract = dyn Fn(&Subject) -> Vec<u8> + Send + Sync;

#[derive(Clone)]
enum Kind {
    Bytes,
    CanonicalJson,
    JsonFields(Vec<String>),
    Custom(&'static str, Arc<Extract>),
}

impl FingerprintRule {
    /// The body as it came, byte for byte: the default.
    #[must_use]
    pub fn bytes() -> Self {
        Self::new(Kind::Bytes)
    }

    /// The body as JSON: white space and the order of members don't matter. Numbers count as they are written (`1.0` isn't `1`). A
    /// body that isn't JSON, has a member twice, or is nested deeper than 128 levels, counts byte for byte.
    #[must_use]
    pub fn canonical_json() -> Self {
        Self::new(Kind::CanonicalJson)
    }

    /// Only these members of a JSON body, named by JSON pointers (RFC 6901, `/order/amount`), each in canonical form. A body that
    /// isn't JSON, or where one of them is nested deeper than 128 levels, counts byte for byte.
    ///
    /// All that isn't named may differ between a request and its retry. Name whatever changes the effect.
    #[must_use]
    pub fn json_fields<T: Into<String>>(pointers: impl IntoIterator<Item = T>) -> Self {
        Self::new(Kind::JsonFields(pointers.into_iter().map(Into::into).collect()))
    }

    /// In place of the body: what this closure makes of the request. `name` names the rule in stored records; a change of what
    /// the closure does takes another name.
    #[must_use]
    pub fn custom(name: &'static str, rule: impl Fn(&Subject) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::new(Kind::Custom(name, Arc::new(rule)))
    }

    /// These request headers count too, such as `Accept-Language` where it decides what a request does.
    #[must_use]
    pub fn and_headers(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.headers.extend(names);
        self.version = self.versioned();
        self
    }

    fn new(kind: Kind) -> Self {
        let mut rule = Self { kind, headers: Vec::new(), version: 0 };
        rule.version = rule.versioned();
        rule
    }

    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    pub(crate) fn fingerprint(&self, subject: &Subject) -> Fingerprint {
        let mut hash = Framed::default();
        hash.part(subject.method().as_str());
        hash.part(subject.uri().path());
        hash.part(subject.uri().query().unwrap_or(""));
        hash.part(subject.content_type());
        match &self.kind {
            Kind::Bytes => hash.part(subject.body()),
            Kind::CanonicalJson => match json::canonical(subject.body()) {
                Some(canonical) => hash.part(canonical),
                None => hash.part(subject.body()),
            },
            Kind::JsonFields(pointers) => match json::fields(subject.body(), pointers) {
                Some(fields) => fields.iter().for_each(|field| match field {
                    Some(field) => hash.part(field),
                    None => hash.absent(),
                }),
                None => hash.part(subject.body()),
            },
            Kind::Custom(_, rule) => hash.part(rule(subject)),
        }
        for name in &self.headers {
            let values = subject.headers().get_all(name);
            hash.count(values.iter().count());
            values.iter().for_each(|value| hash.part(value));
        }
        Fingerprint { version: self.version, digest: hash.finish() }
    }

    fn versioned(&self) -> u16 {
        let mut hash = Framed::default();
        match &self.kind {
            Kind::Bytes if self.headers.is_empty() => return BYTES,
            Kind::CanonicalJson if self.headers.is_empty() => return CANONICAL_JSON,
            Kind::Bytes => hash.part("bytes"),
            Kind::CanonicalJson => hash.part("canonical-json"),
            Kind::JsonFields(pointers) => {
                hash.part("json-fields");
                hash.count(pointers.len());
                pointers.iter().for_each(|pointer| hash.part(pointer));
            }
            Kind::Custom(name, _) => {
                hash.part("custom");
                hash.part(name);
            }
        }
        self.headers.iter().for_each(|name| hash.part(name.as_str()));
        let digest = hash.finish();
        DERIVED | u16::from_be_bytes([digest[0], digest[1]])
    }
}

impl Default for FingerprintRule {
    fn default() -> Self {
        Self::bytes()
    }
}

impl fmt::Debug for FingerprintRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            Kind::Bytes => "bytes",
            Kind::CanonicalJson => "canonical json",
            Kind::JsonFields(_) => "json fields",
            Kind::Custom(name, _) => name,
        };
        f.debug_struct("FingerprintRule")
            .field("kind", &kind)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

/// Parts kept apart by their lengths.
#[derive(Default)]
struct Framed(Sha256);

impl Framed {
    fn part(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.count(part.len());
        self.0.update(part);
    }

    fn count(&mut self, count: usize) {
        self.0.update(u64::try_from(count).expect("a length fits in 64 bits").to_be_bytes());
    }

    /// No part has this length.
    fn absent(&mut self) {
        self.0.update(u64::MAX.to_be_bytes());
    }

    fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;

    use super::*;

    fn of(rule: &FingerprintRule, body: &'static str) -> Fingerprint {
        let parts = Request::post("/pay").body(()).unwrap().into_parts().0;
        rule.fingerprint(&Subject::new(&parts, Bytes::from(body)))
    }

    #[test]
    fn json_that_is_written_another_way_is_the_same_request() {
        let (first, again) =
            (r#"{"a": 1, "b": {"x": [1, 2], "y": "\u00e9"}}"#, r#"{"b":{"y":"é","x":[1,2]},"a":1}"#);
        assert_ne!(of(&FingerprintRule::bytes(), first), of(&FingerprintRule::bytes(), again));
        let json = FingerprintRule::canonical_json();
        assert_eq!(of(&json, first), of(&json, again));
        for other in [r#"{"a":2,"b":{"x":[1,2],"y":"é"}}"#, r#"{"a":1,"b":{"x":[2,1],"y":"é"}}"#, "not json"]
        {
            assert_ne!(of(&json, first), of(&json, other), "{other}");
        }
    }

    #[test]
    fn only_the_fields_that_are_named_count() {
        let rule = FingerprintRule::json_fields(["/amount", "/to/0"]);
        let first = of(&rule, r#"{"amount":5,"to":["ann","bob"],"sent":1}"#);
        assert_eq!(first, of(&rule, r#"{"sent":2,"to":["ann"],"amount":5}"#));
        assert_ne!(first, of(&rule, r#"{"amount":6,"to":["ann"]}"#));
        assert_ne!(of(&rule, r#"{"amount":5}"#), of(&rule, r#"{"amount":5,"to":[null]}"#));
    }

    #[test]
    fn rules_that_differ_have_versions_of_their_own() {
        let rules = [
            FingerprintRule::bytes(),
            FingerprintRule::canonical_json(),
            FingerprintRule::json_fields(["/a"]),
            FingerprintRule::json_fields(["/b"]),
            FingerprintRule::json_fields(["/a", "/b"]),
            FingerprintRule::custom("one", |_| Vec::new()),
            FingerprintRule::custom("two", |_| Vec::new()),
        ];
        let versions: std::collections::BTreeSet<_> = rules.iter().map(FingerprintRule::version).collect();
        assert_eq!(versions.len(), rules.len());
        assert_eq!((rules[0].version(), rules[1].version()), (1, 2), "in stored records");
    }
}
