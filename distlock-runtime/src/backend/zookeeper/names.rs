//! Paths and names of nodes, as `docs/wire.md` has them.

use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::backend::Mode;
use crate::key::LockKey;
use crate::token::{OwnerId, OwnerToken};

/// What can't stand in a node's name, or would be hard to read there.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'/').add(b'%').add(b' ');

/// Where the nodes of a manager are.
#[derive(Clone, Debug)]
pub(super) struct Names {
    chroot: String,
    root: String,
}

impl Names {
    pub(super) fn new(chroot: &str, namespace: &str) -> Self {
        Self { chroot: chroot.to_owned(), root: format!("{chroot}/{namespace}") }
    }

    /// The node above all locks of the namespace.
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// The node above the namespaces.
    pub(super) fn chroot(&self) -> &str {
        if self.chroot.is_empty() { "/" } else { &self.chroot }
    }

    /// The node of a lock, above those who hold it or wait.
    pub(super) fn lock(&self, key: &LockKey) -> String {
        match key.is_raw() {
            false => format!("{}/{}", self.root, encoded(key.as_str())),
            true => format!("{}/{}", self.chroot, raw(key.as_str())),
        }
    }

    /// The key whose node below the root has this name.
    pub(super) fn key(name: &str) -> Option<LockKey> {
        let text = percent_decode_str(name).decode_utf8().ok()?;
        LockKey::new(&*text).ok().filter(|key| key.as_str() == text)
    }
}

fn encoded(text: &str) -> String {
    match text {
        "." | ".." => text.replace('.', "%2E"),
        _ => utf8_percent_encode(text, ESCAPED).to_string(),
    }
}

/// A raw name may be a path.
fn raw(text: &str) -> String {
    let path = text.strip_prefix('/').unwrap_or(text);
    if path.split('/').any(str::is_empty) {
        return encoded(text);
    }
    path.split('/').map(encoded).collect::<Vec<_>>().join("/")
}

/// Who stands at a lock, as the name of a node says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) mode: Mode,
    pub(super) owner: OwnerToken,
    /// Given out by ZooKeeper in the order of arrival; wraps around after 2^32.
    pub(super) sequence: i32,
    /// Nobody's any more, and still in the way (`hold_at_least`).
    pub(super) kept: bool,
}

impl Place {
    /// Reads a node's name; `None` if it isn't one of ours.
    pub(super) fn read(name: &str) -> Option<Self> {
        let (kept, rest) = match name.strip_prefix("kept-") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let (mode, rest) = rest.split_once('-')?;
        let (owner, sequence) = rest.split_once('-')?;
        let digits = sequence.strip_prefix('-').unwrap_or(sequence);
        if digits.len() < 9 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            name: name.to_owned(),
            mode: read_mode(mode)?,
            owner: OwnerToken::from_hex(owner)?,
            sequence: sequence.parse().ok()?,
            kept,
        })
    }

    /// The same place, as what is kept after its holder has gone.
    pub(super) fn as_kept(&self) -> Self {
        let owner = self.owner.of_what_is_kept();
        Self {
            name: format!("kept-{}", name(self.mode, owner, self.sequence)),
            owner,
            kept: true,
            ..self.clone()
        }
    }

    /// The same place, held in another way.
    pub(super) fn converted(&self, mode: Mode) -> Self {
        Self { name: name(mode, self.owner, self.sequence), mode, ..self.clone() }
    }

    /// A place beside this one, held by another acquisition in the same way.
    pub(super) fn beside(&self, owner: OwnerToken) -> Self {
        Self { name: name(self.mode, owner, self.sequence), owner, ..self.clone() }
    }
}

/// What ZooKeeper puts the sequence behind.
pub(super) fn prefix(mode: Mode, owner: OwnerToken) -> String {
    format!("{}-{}-", written(mode), owner.to_hex())
}

fn name(mode: Mode, owner: OwnerToken, sequence: i32) -> String {
    format!("{}{sequence:010}", prefix(mode, owner))
}

fn written(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "x".to_owned(),
        Mode::Read => "r".to_owned(),
        Mode::Write => "w".to_owned(),
        Mode::Owned { owner } => format!("o{}", owner.to_hex()),
        Mode::Permits { limit, weight } => format!("p{weight}of{limit}"),
    }
}

fn read_mode(text: &str) -> Option<Mode> {
    match text {
        "x" => Some(Mode::Exclusive),
        "r" => Some(Mode::Read),
        "w" => Some(Mode::Write),
        _ => match text.split_at_checked(1)? {
            ("o", owner) => Some(Mode::Owned { owner: OwnerId::from_hex(owner)? }),
            ("p", permits) => {
                let (weight, limit) = permits.split_once("of")?;
                Some(Mode::Permits { limit: limit.parse().ok()?, weight: weight.parse().ok()? })
            }
            _ => None,
        },
    }
}

/// What stands in a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// The lease's length; of what is kept, for how long.
    pub(super) length: Duration,
    /// The token that the holds of an explicit owner share, or 0.
    pub(super) token: u64,
    /// Who it is, for people.
    pub(super) label: String,
}

impl Note {
    pub(super) fn written(&self) -> Vec<u8> {
        format!("{} {} {}", self.length.as_millis(), self.token, self.label).into_bytes()
    }

    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?;
        let (length, rest) = text.split_once(' ')?;
        let (token, label) = rest.split_once(' ')?;
        let length = Duration::from_millis(length.parse().ok()?);
        Some(Self { length, token: token.parse().ok()?, label: label.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let owner = OwnerToken::random().unwrap();
        let modes = [
            Mode::Exclusive,
            Mode::Read,
            Mode::Write,
            Mode::Owned { owner: OwnerId::new("x").unwrap() },
            Mode::Permits { limit: 7, weight: 3 },
        ];
        for mode in modes {
            for sequence in [0, 7, i32::MAX, i32::MIN] {
                let name = format!("{}{sequence:010}", prefix(mode, owner));
                let place = Place::read(&name).unwrap();
                assert_eq!(
                    (place.mode, place.owner, place.sequence, place.kept),
                    (mode, owner, sequence, false)
                );
                assert_eq!(Place::read(&place.as_kept().name).unwrap(), place.as_kept());
                assert!(place.as_kept().kept && place.as_kept().owner != owner);
            }
        }
        for foreign in
            ["", "x", "lock-0000000001", "x-abc-0000000001", "q-00000000000000000000000000000000-0000000001"]
        {
            assert_eq!(Place::read(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn keys_are_read_back_and_never_meet() {
        let names = Names::new("/apps", "n");
        let texts = ["a", "a/b", "a%2Fb", ".", "..", "%2E", "é", "e\u{301}", " ", "order:42", "~", "a b"];
        let mut seen = std::collections::HashSet::new();
        for text in texts {
            let key = LockKey::new(text).unwrap();
            let path = names.lock(&key);
            let name = path.strip_prefix("/apps/n/").unwrap();
            assert!(!name.contains('/') && name.is_ascii(), "{name}");
            assert_eq!(Names::key(name), Some(key));
            assert!(seen.insert(path));
        }
        assert_eq!(Names::key("%FF"), None);
        let raw = |text| names.lock(&LockKey::raw(text).unwrap());
        assert_eq!([raw("/a/b"), raw("a"), raw("a//b")], ["/apps/a/b", "/apps/a", "/apps/a%2F%2Fb"]);
    }

    #[test]
    fn notes_are_read_back() {
        let note = Note { length: Duration::from_millis(30_000), token: 7, label: "web-1:42".to_owned() };
        assert_eq!(Note::read(&note.written()), Some(note));
        assert_eq!(Note::read(b"10.0.0.1"), None);
        assert_eq!(Note::read(b"\xff"), None);
    }
}
