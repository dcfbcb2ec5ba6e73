//! What a request looks like: the same key with another request is a client's mistake, not a replay.
//!
//! A stored fingerprint says by its version how it was made, so that a rolling deploy compares with the rule of the record and
//! neither refuses nor repeats what it can't know.

mod json;
mod rule;

use distlock_runtime::Fingerprint;

pub use self::rule::FingerprintRule;
use super::subject::Subject;

/// The rules of a layer: the one for new records, and those that records of earlier deployments may have been made by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fingerprinting {
    pub(crate) rule: FingerprintRule,
    pub(crate) former: Vec<FingerprintRule>,
}

impl Fingerprinting {
    /// The fingerprint for new records.
    pub(crate) fn current(&self, subject: &Subject) -> Fingerprint {
        self.rule.fingerprint(subject)
    }

    /// Whether a record with this fingerprint is about this request; `None` if it can't be told, because the record was made by
    /// a rule that isn't known here.
    pub(crate) fn matches(
        &self,
        stored: &Fingerprint,
        request: &Fingerprint,
        subject: &Subject,
    ) -> Option<bool> {
        if stored.version == request.version {
            return Some(stored.digest == request.digest);
        }
        let known = [FingerprintRule::bytes(), FingerprintRule::canonical_json()];
        let rule = self.former.iter().chain(&known).find(|rule| rule.version() == stored.version)?;
        subject.has_body().then(|| rule.fingerprint(subject).digest == stored.digest)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::Request;
    use http::header::{ACCEPT, CONTENT_TYPE};

    use super::*;

    fn subject(request: Request<&'static str>) -> Subject {
        let (parts, body) = request.into_parts();
        Subject::new(&parts, Bytes::from(body))
    }

    fn post(uri: &str, content_type: &str, body: &'static str) -> Subject {
        subject(Request::post(uri).header(CONTENT_TYPE, content_type).body(body).unwrap())
    }

    fn bytes(subject: &Subject) -> Fingerprint {
        FingerprintRule::bytes().fingerprint(subject)
    }

    #[test]
    fn every_part_counts_and_parts_do_not_run_together() {
        let of = |uri, content_type, body| bytes(&post(uri, content_type, body));
        let base = of("/pay?a=1", "text/plain", "x");
        assert_eq!(base, of("/pay?a=1", "text/plain", "x"));
        assert_ne!(base, of("/pay?a=2", "text/plain", "x"));
        assert_ne!(base, of("/pay", "text/plain", "x"));
        assert_ne!(base, of("/pay?a=1", "text/html", "x"));
        assert_ne!(base, of("/pay?a=1", "text/plain", "y"));
        assert_ne!(of("/p", "t", "xy"), of("/p", "tx", "y"));
        let patch = Request::patch("/pay?a=1").header(CONTENT_TYPE, "text/plain").body("x").unwrap();
        assert_ne!(base, bytes(&subject(patch)));
    }

    #[test]
    fn other_headers_count_only_if_they_are_named() {
        let accepting =
            |accept: &'static str| subject(Request::post("/pay").header(ACCEPT, accept).body("x").unwrap());
        assert_eq!(bytes(&accepting("a/b")), bytes(&accepting("c/d")));
        let bound = FingerprintRule::bytes().and_headers([ACCEPT]);
        assert_eq!(bound.fingerprint(&accepting("a/b")), bound.fingerprint(&accepting("a/b")));
        assert_ne!(bound.fingerprint(&accepting("a/b")), bound.fingerprint(&accepting("c/d")));
        assert_ne!(bound.version(), FingerprintRule::bytes().version());
    }

    #[test]
    fn a_record_of_another_rule_is_compared_by_that_rule() {
        let (request, other) = (post("/pay", "t", r#"{"a":1}"#), post("/pay", "t", r#"{"a":2}"#));
        let fields = FingerprintRule::json_fields(["/a"]);
        let now = Fingerprinting { rule: FingerprintRule::canonical_json(), former: vec![fields.clone()] };
        for old in [FingerprintRule::bytes(), fields] {
            let stored = old.fingerprint(&request);
            assert_eq!(now.matches(&stored, &now.current(&request), &request), Some(true), "{old:?}");
            assert_eq!(now.matches(&stored, &now.current(&other), &other), Some(false), "{old:?}");
        }
    }

    #[test]
    fn a_rule_that_is_not_known_is_neither_match_nor_mismatch() {
        let request = post("/pay", "t", "x");
        let rules = Fingerprinting::default();
        let newer = Fingerprint { version: 7, ..rules.current(&request) };
        assert_eq!(rules.matches(&newer, &rules.current(&request), &request), None);
    }

    #[cfg(feature = "axum")]
    #[test]
    fn a_nested_router_counts_with_its_prefix() {
        let nested = |prefix: &str| {
            let original = axum::extract::OriginalUri(format!("{prefix}/pay").parse().unwrap());
            bytes(&subject(Request::post("/pay").extension(original).body("x").unwrap()))
        };
        assert_ne!(nested("/v1"), nested("/v2"));
        assert_eq!(nested(""), bytes(&subject(Request::post("/pay").body("x").unwrap())));
    }
}
