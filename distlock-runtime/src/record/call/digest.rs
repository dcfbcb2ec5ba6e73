//! A value's fingerprint: SHA-256 over a canonical form of its JSON.
//!
//! ```text
//! null n · true t · false f · number # + text · string " + text · array [ + count + items
//! object { + count + entries by key, each: text of the key + value
//! ```
//! A text is its length (8 bytes, big-endian) and its bytes, a count is 8 bytes.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::backend::Fingerprint;
use crate::error::{ErrorKind, LockError};
use crate::record::Fingerprints;

/// The algorithm that new records get. When it changes, the older one stays here for as long as records of its may live:
/// `Fingerprints::new(version_2).or(version_1)`.
const CURRENT: u16 = 1;

/// The fingerprints of a value.
pub(super) fn of(about: &(impl Serialize + ?Sized)) -> Result<Fingerprints, LockError> {
    value(about).map(|value| of_value(&value))
}

pub(super) fn of_value(value: &Value) -> Fingerprints {
    Fingerprints::new(Fingerprint { version: CURRENT, digest: version_1(value) })
}

pub(super) fn value(about: &(impl Serialize + ?Sized)) -> Result<Value, LockError> {
    serde_json::to_value(about).map_err(|error| {
        LockError::new(ErrorKind::Config, "claim")
            .detail("the fingerprint's value can't be written as JSON")
            .caused_by(error)
            .remedy("take the parts of it that can")
    })
}

fn version_1(value: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    put(&mut hash, value);
    hash.finalize().into()
}

fn put(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Number(number) => {
            hash.update(b"#");
            put_text(hash, &number.to_string());
        }
        Value::String(text) => {
            hash.update(b"\"");
            put_text(hash, text);
        }
        Value::Array(items) => {
            hash.update(b"[");
            put_count(hash, items.len());
            items.iter().for_each(|item| put(hash, item));
        }
        Value::Object(entries) => {
            hash.update(b"{");
            put_count(hash, entries.len());
            // The map keeps some order, which one is up to a feature that any crate may switch on.
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, value) in entries {
                put_text(hash, key);
                put(hash, value);
            }
        }
    }
}

fn put_text(hash: &mut Sha256, text: &str) {
    put_count(hash, text.len());
    hash.update(text);
}

fn put_count(hash: &mut Sha256, count: usize) {
    hash.update(u64::try_from(count).expect("a length fits in 64 bits").to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn the_order_of_a_maps_keys_does_not_count() {
        let one = HashMap::from([("a", 1), ("b", 2), ("c", 3)]);
        let other = HashMap::from([("c", 3), ("b", 2), ("a", 1)]);
        assert_eq!(of(&one).unwrap(), of(&other).unwrap());
    }

    #[test]
    fn different_values_differ() {
        let values = [
            of(&()),
            of(&0),
            of(&"0"),
            of(&false),
            of(&("ab", "c")),
            of(&("a", "bc")),
            of(&(("a",), "bc")),
            of(&[""; 0]),
            of(&HashMap::<u8, u8>::new()),
            of(&HashMap::from([("a", "b")])),
            of(&1.5),
        ];
        let digests: std::collections::HashSet<_> =
            values.into_iter().map(|value| value.unwrap().current().digest).collect();
        assert_eq!(digests.len(), 11);
    }

    #[test]
    fn version_1_stays_what_it_is() {
        let digest = of(&("card-7", 1250)).unwrap().current().digest;
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "06eeef5c6cceca6c4564fc6aa23b2e1e667376e41ab6a24431511323f7935cb6");
    }

    #[test]
    fn a_value_that_json_can_not_write_is_an_error() {
        let error = of(&HashMap::from([((1, 2), 3)])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
    }
}
