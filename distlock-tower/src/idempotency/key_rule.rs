//! What a service asks of keys beyond their syntax: a key that another client can guess, or comes upon by chance, is none.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::key::IdempotencyKey;

/// A rule that keys must keep; those that don't are refused with 400.
///
/// ```
/// # mod distlock { pub use distlock_tower as tower; }
/// use distlock::tower::KeyRule;
/// let uuids_only = KeyRule::custom(|key| match key.len() {
///     36 => Ok(()),
///     _ => Err("the key must be a UUID".into()),
/// });
/// ```
#[derive(Clone)]
pub struct KeyRule(Kind);

type Check = dyn Fn(&str) -> Result<(), Cow<'static, str>> + Send + Sync;

#[derive(Clone)]
enum Kind {
    MinChars(usize),
    MinEntropy(u32),
    Custom(Arc<Check>),
}

impl KeyRule {
    /// At least so many characters. A UUID has 36, a ULID 26.
    #[must_use]
    pub fn min_chars(chars: usize) -> Self {
        Self(Kind::MinChars(chars))
    }

    /// At least so many bits by the frequencies of the key's own characters. That is an estimate from above: it refuses `1`, `order-17`
    /// and `aaaaaaaaaaaaaaaaaaaa`, and can't know that a long text is somebody's name. Random UUIDs and ULIDs have 80 and more.
    #[must_use]
    pub fn min_entropy(bits: u32) -> Self {
        Self(Kind::MinEntropy(bits))
    }

    /// Whatever this closure says; its text is told to the client.
    #[must_use]
    pub fn custom(rule: impl Fn(&str) -> Result<(), Cow<'static, str>> + Send + Sync + 'static) -> Self {
        Self(Kind::Custom(Arc::new(rule)))
    }

    pub(crate) fn check(&self, key: &IdempotencyKey) -> Result<(), Cow<'static, str>> {
        let key = key.as_str();
        match &self.0 {
            Kind::MinChars(chars) if key.len() < *chars => {
                Err(format!("the key must have {chars} characters at least").into())
            }
            Kind::MinEntropy(bits) if entropy(key) < f64::from(*bits) => {
                Err("the key is too easy to guess; send a random one, such as a UUID".into())
            }
            Kind::MinChars(_) | Kind::MinEntropy(_) => Ok(()),
            Kind::Custom(rule) => rule(key),
        }
    }
}

impl fmt::Debug for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::MinChars(chars) => f.debug_tuple("MinChars").field(chars).finish(),
            Kind::MinEntropy(bits) => f.debug_tuple("MinEntropy").field(bits).finish(),
            Kind::Custom(_) => f.write_str("Custom"),
        }
    }
}

/// Shannon's, over the characters of the text itself, in bits.
fn entropy(text: &str) -> f64 {
    let mut counts = [0_u32; 256];
    text.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let length = f64::from(u32::try_from(text.len()).unwrap_or(u32::MAX));
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) * (length / f64::from(*count)).log2())
        .sum()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::idempotency::key::KeySyntax;

    fn passes(rule: &KeyRule, text: &'static str) -> bool {
        let name = HeaderName::from_static("k");
        let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(text))]);
        rule.check(&KeySyntax::Lenient.find(&headers, &name).unwrap().unwrap()).is_ok()
    }

    #[test]
    fn what_can_be_guessed_is_no_key() {
        let rule = KeyRule::min_entropy(80);
        for text in
            ["8e03978e-40d5-43dd-bc93-6894a57f9324", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "V1StGXR8_Z5jdHi6B-myT"]
        {
            assert!(passes(&rule, text), "{text}");
        }
        for text in ["1", "order-17", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "2026-11-30"] {
            assert!(!passes(&rule, text), "{text}");
        }
    }

    #[test]
    fn short_keys_are_refused_where_that_is_the_rule() {
        let rule = KeyRule::min_chars(20);
        assert!(passes(&rule, "01234567890123456789"));
        assert!(!passes(&rule, "0123456789012345678"));
    }

    #[test]
    fn a_rule_of_ones_own_tells_why() {
        let rule =
            KeyRule::custom(|key| if key.contains('-') { Ok(()) } else { Err("a dash is missing".into()) });
        assert!(passes(&rule, "a-b") && !passes(&rule, "ab"));
    }
}
