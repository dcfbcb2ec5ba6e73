//! Names in the store. `docs/wire.md` has the whole list.

use std::fmt::Write as _;

use crate::backend::{RecordKey, RecordScope};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// What all names of one set of managers start with.
#[derive(Clone, Debug)]
pub(super) struct Names {
    namespace: String,
}

impl Names {
    /// `namespace` is checked before.
    pub(super) fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned() }
    }

    /// What the names of all who hold a lock or wait for it start with. A raw name has the layout of etcd's own lock recipe.
    pub(super) fn line(&self, key: &LockKey) -> String {
        match key.is_raw() {
            true => format!("{}/", key.as_str()),
            false => format!("{}/lock/{}/", self.namespace, escaped(key.as_str())),
        }
    }

    /// The place of one acquisition in the line.
    pub(super) fn place(&self, key: &LockKey, owner: OwnerToken) -> String {
        self.line(key) + &owner.to_hex()
    }

    /// What the lines of all locks start with whose names start so.
    pub(super) fn lines(&self, prefix: &str) -> String {
        format!("{}/lock/{}", self.namespace, escaped(prefix))
    }

    /// The lock whose line this name is in, and what stands behind the line's name.
    pub(super) fn lock_of<'a>(&self, name: &'a [u8]) -> Option<(LockKey, &'a str)> {
        let name = std::str::from_utf8(name).ok()?;
        let behind = name.strip_prefix(&self.namespace)?.strip_prefix("/lock/")?;
        let (key, place) = behind.split_once('/')?;
        Some((LockKey::new(unescaped(key)?).ok()?, place))
    }

    /// Says that an acquisition was cancelled.
    pub(super) fn tombstone(&self, owner: OwnerToken) -> String {
        format!("{}/gone/{}", self.namespace, owner.to_hex())
    }

    /// Nothing's name: whoever may use the namespace may ask for it.
    pub(super) fn probe(&self) -> String {
        format!("{}/probe", self.namespace)
    }

    /// What the names of all records start with.
    pub(super) fn records(&self) -> String {
        format!("{}/record/", self.namespace)
    }

    /// What is known of a record, without its result.
    pub(super) fn record(&self, key: &RecordKey) -> String {
        self.records() + &key.to_hex()
    }

    /// The record of this name.
    pub(super) fn record_of(&self, name: &[u8]) -> Option<RecordKey> {
        let digits = std::str::from_utf8(name).ok()?.strip_prefix(&self.records())?;
        RecordKey::from_hex(digits)
    }

    /// A record's result.
    pub(super) fn result(&self, key: &RecordKey) -> String {
        format!("{}/result/{}", self.namespace, key.to_hex())
    }

    /// What the names of all claims of a record start with.
    pub(super) fn claims(&self, key: &RecordKey) -> String {
        format!("{}/claim/{}/", self.namespace, key.to_hex())
    }

    /// Says that somebody is at a record.
    pub(super) fn claim(&self, key: &RecordKey, owner: OwnerToken) -> String {
        self.claims(key) + &owner.to_hex()
    }

    /// What the names of all places of a scope start with.
    pub(super) fn places(&self, scope: &RecordScope) -> String {
        format!("{}/place/{}/", self.namespace, scope.to_hex())
    }

    /// A record's place in the quota of its scope.
    pub(super) fn place_of(&self, scope: &RecordScope, key: &RecordKey) -> String {
        self.places(scope) + &key.to_hex()
    }
}

/// Without the one character that ends a lock's name. Two texts where one begins with the other do so afterwards too.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '/' | '%' | '\0' => {
                write!(escaped, "%{:02X}", u32::from(c)).expect("writing to a String can't fail");
            }
            _ => escaped.push(c),
        }
        escaped
    })
}

fn unescaped(text: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// The end of the range of all names that start so.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Everything behind.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let names = Names::new("n");
        let owner = OwnerToken::from_hex("000102030405060708090a0b0c0d0e0f").unwrap();
        for text in ["a", "a/b", "a%2Fb", "100%", "é ß", "/", "{x}*"] {
            let key = LockKey::new(text).unwrap();
            let place = names.place(&key, owner);
            assert_eq!(place.matches('/').count(), 3, "{place}");
            assert_eq!(names.lock_of(place.as_bytes()), Some((key.clone(), &*owner.to_hex())));
            assert!(
                place
                    .starts_with(&names.lines(&text[..text.len() - text.chars().last().unwrap().len_utf8()]))
            );
        }
        assert_eq!(names.lock_of(b"n/gone/x"), None);
        assert_eq!(names.line(&LockKey::raw("a/b").unwrap()), "a/b/");
    }

    #[test]
    fn a_range_ends_behind_its_last_name() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), [0]);
    }
}
