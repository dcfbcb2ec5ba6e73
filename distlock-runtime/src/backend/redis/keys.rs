//! The names of everything in the store (`docs/wire.md`).

use std::io::Write as _;

use redis::{Cmd, RedisWrite as _};

use super::slot;
use crate::backend::{RecordKey, RecordScope};
use crate::key::LockKey;

/// A manager's namespace: what its keys start with.
#[derive(Clone, Debug)]
pub(super) struct Namespace {
    name: String,
    /// `name:`, in front of every lock.
    prefix: String,
}

impl Namespace {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), prefix: format!("{name}:") }
    }

    /// What the names of namespaced locks start with.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The names of one lock's keys.
    pub(super) fn lock<'a>(&'a self, key: &'a LockKey) -> LockNames<'a> {
        let prefix = if key.is_raw() { "" } else { self.prefix.as_str() };
        let slot = slot::slot(prefix, key.as_str());
        LockNames { namespace: &self.name, prefix, key: key.as_str(), slot, tag: slot::tag(slot) }
    }

    /// The channel of a manager.
    pub(super) fn channel(&self, random: u64) -> String {
        format!("{}!c:{random:016x}", self.name)
    }

    /// The channel of a manager in a slot of a Cluster.
    pub(super) fn shard_channel(&self, slot: u16, random: u64) -> String {
        let tag = String::from_utf8_lossy(slot::tag(slot));
        format!("{}!{{{tag}}}!c:{random:016x}", self.name)
    }

    /// The hash of a record.
    pub(super) fn record(&self, key: &RecordKey) -> String {
        format!("{}!r:{}", self.name, key.to_hex())
    }

    /// What the names of records start with.
    pub(super) fn record_prefix(&self) -> String {
        format!("{}!r:", self.name)
    }

    /// The places that a scope's quota has given out, and the bytes they keep, in one slot.
    pub(super) fn places(&self, scope: &RecordScope) -> (String, String) {
        let scope = scope.to_hex();
        (self.beside(&scope, &format!("n:{scope}")), self.beside(&scope, &format!("z:{scope}")))
    }

    /// The token counter in the slot of a record.
    pub(super) fn record_counter(&self, record: &str) -> String {
        self.beside(record, "f")
    }

    /// The mark that an owner's claim of a record was withdrawn, in the record's slot.
    pub(super) fn record_withdrawal(&self, record: &str, owner: &str) -> String {
        self.beside(record, &format!("v:{owner}"))
    }

    fn beside(&self, record: &str, name: &str) -> String {
        let tag = String::from_utf8_lossy(slot::tag(slot::slot("", record)));
        format!("{}!{{{tag}}}!{name}", self.name)
    }
}

/// The keys of one lock, all in the slot of the first. Written straight into a command, without a string for each.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockNames<'a> {
    namespace: &'a str,
    prefix: &'a str,
    key: &'a str,
    slot: u16,
    tag: &'static [u8],
}

impl LockNames<'_> {
    /// The slot of all of them.
    pub(super) fn slot(&self) -> u16 {
        self.slot
    }

    /// The lock itself: a string, the holder's value; or a hash, if it is held in shares.
    pub(super) fn lock(&self, command: &mut Cmd) {
        parts(command, &[self.prefix.as_bytes(), self.key.as_bytes()]);
    }

    /// The counter of fencing tokens of this slot.
    pub(super) fn counter(&self, command: &mut Cmd) {
        parts(command, &[self.namespace.as_bytes(), b"!{", self.tag, b"}!f"]);
    }

    /// The owners whose acquisition was cancelled, by when that may be forgotten.
    pub(super) fn tombstones(&self, command: &mut Cmd) {
        self.auxiliary(command, b"}!x:");
    }

    /// The waiting owners in order of arrival.
    pub(super) fn queue(&self, command: &mut Cmd) {
        self.auxiliary(command, b"}!q:");
    }

    /// What is known of each waiting owner.
    pub(super) fn waiters(&self, command: &mut Cmd) {
        self.auxiliary(command, b"}!w:");
    }

    /// How many bytes the lock's name and the longest of the other names have, about.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let lock = self.prefix.len() + self.key.len();
        (lock, lock + self.namespace.len() + 10)
    }

    fn auxiliary(&self, command: &mut Cmd, kind: &[u8]) {
        let (prefix, key) = (self.prefix.as_bytes(), self.key.as_bytes());
        parts(command, &[self.namespace.as_bytes(), b"!{", self.tag, kind, prefix, key]);
    }

    /// The owners that hold a share, by when their leases end.
    pub(super) fn shares(&self, command: &mut Cmd) {
        self.auxiliary(command, b"}!s:");
    }

    /// What those who hold it wait for.
    pub(super) fn waits(&self, command: &mut Cmd) {
        self.auxiliary(command, b"}!h:");
    }

    /// A key that never exists. A slot that is on its way between two servers of a Cluster refuses a script that names a missing
    /// key beside others: such a script is either run with all keys in one place, or not at all.
    pub(super) fn never(&self, command: &mut Cmd) {
        parts(command, &[self.namespace.as_bytes(), b"!{", self.tag, b"}!-"]);
    }

    /// The lock's name as a string.
    #[cfg(test)]
    fn name(&self) -> String {
        format!("{}{}", self.prefix, self.key)
    }
}

/// One argument made of several pieces.
pub(super) fn parts(command: &mut Cmd, pieces: &[&[u8]]) {
    let mut argument = command.writer_for_next_arg();
    for piece in pieces {
        argument.write_all(piece).expect("a command grows in memory");
    }
}

/// `text` with the characters that have a meaning in a `MATCH` pattern escaped.
pub(super) fn glob_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '-' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Arg;

    fn names_of(names: LockNames<'_>) -> Vec<String> {
        let mut command = Cmd::new();
        names.lock(&mut command);
        names.counter(&mut command);
        names.tombstones(&mut command);
        names.queue(&mut command);
        names.waiters(&mut command);
        names.shares(&mut command);
        names.waits(&mut command);
        names.never(&mut command);
        command
            .args_iter()
            .map(|arg| match arg {
                Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                _ => panic!("no cursor here"),
            })
            .collect()
    }

    #[test]
    fn all_keys_of_a_lock_share_its_slot() {
        let namespace = Namespace::new("distlock");
        for text in ["order:42", "{user}:1", "{}x", "{", "}{", "é*?[", "distlock!{0}!f"] {
            for key in [LockKey::new(text).unwrap(), LockKey::raw(text).unwrap()] {
                let names = namespace.lock(&key);
                let lock = slot::slot("", &names.name());
                for name in names_of(names) {
                    assert_eq!(slot::slot("", &name), lock, "{name}");
                }
            }
        }
    }

    #[test]
    fn names_are_as_documented() {
        let namespace = Namespace::new("ns");
        let (key, raw) = (LockKey::new("a").unwrap(), LockKey::raw("ns:a").unwrap());
        let tag = std::str::from_utf8(slot::tag(slot::slot("", "ns:a"))).unwrap();
        let expected = [
            "ns:a".to_owned(),
            format!("ns!{{{tag}}}!f"),
            format!("ns!{{{tag}}}!x:ns:a"),
            format!("ns!{{{tag}}}!q:ns:a"),
            format!("ns!{{{tag}}}!w:ns:a"),
            format!("ns!{{{tag}}}!s:ns:a"),
            format!("ns!{{{tag}}}!h:ns:a"),
            format!("ns!{{{tag}}}!-"),
        ];
        assert_eq!(names_of(namespace.lock(&key)), expected);
        assert_eq!(names_of(namespace.lock(&raw)), expected, "one key in the store is one lock");
        assert_eq!(namespace.channel(255), "ns!c:00000000000000ff");
        assert_eq!(namespace.shard_channel(12_182, 255), "ns!{foo}!c:00000000000000ff");
    }

    #[test]
    fn patterns_are_taken_literally() {
        assert_eq!(glob_escaped("a*b[c]?\\-^é"), "a\\*b\\[c\\]\\?\\\\\\-\\^é");
    }
}
