//! What stands under a name in a lock's line: one word for each thing, the label last.

use crate::backend::Mode;
use crate::token::{OwnerId, OwnerToken};
use crate::ttl::Ttl;

/// Begins every value, so that those of others are known as such.
const VERSION: &str = "distlock1";

/// What an acquisition has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The lock, or its share of it.
    Held,
    /// A place in the queue.
    Waiting,
    /// Nothing any more: the lock stays taken for some time though nobody holds it.
    Kept,
}

/// The value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) state: State,
    pub(super) mode: Mode,
    /// Grows with each change of a semaphore's limit; that of the latest holds.
    pub(super) epoch: i64,
    /// The token that the holds of an explicit owner share, if it isn't this one's own.
    pub(super) shared: Option<u64>,
    pub(super) ttl: Ttl,
    pub(super) label: String,
}

impl Entry {
    pub(super) fn encode(&self) -> String {
        let state = match self.state {
            State::Held => "held",
            State::Waiting => "waits",
            State::Kept => "kept",
        };
        let mode = match self.mode {
            Mode::Exclusive => "exclusive".to_owned(),
            Mode::Read => "read".to_owned(),
            Mode::Write => "write".to_owned(),
            Mode::Owned { owner } => match self.shared {
                Some(token) => format!("owned:{}:{token}", owner.to_hex()),
                None => format!("owned:{}", owner.to_hex()),
            },
            Mode::Permits { limit, weight } => format!("permits:{weight}:{limit}:{}", self.epoch),
        };
        format!("{VERSION} {state} {mode} {} {}", self.ttl.as_millis(), self.label)
    }

    pub(super) fn decode(value: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(value).ok()?.splitn(5, ' ');
        if words.next()? != VERSION {
            return None;
        }
        let state = match words.next()? {
            "held" => State::Held,
            "waits" => State::Waiting,
            "kept" => State::Kept,
            _ => return None,
        };
        let mut parts = words.next()?.split(':');
        let (mut epoch, mut shared) = (0, None);
        let mode = match parts.next()? {
            "exclusive" => Mode::Exclusive,
            "read" => Mode::Read,
            "write" => Mode::Write,
            "owned" => {
                let owner = OwnerId::from_hex(parts.next()?)?;
                shared = parts.next().map(str::parse).transpose().ok()?;
                Mode::Owned { owner }
            }
            "permits" => {
                let mut number = || parts.next()?.parse::<i64>().ok();
                let (weight, limit) = (number()?, number()?);
                epoch = number()?;
                Mode::Permits { limit: limit.try_into().ok()?, weight: weight.try_into().ok()? }
            }
            _ => return None,
        };
        let ttl = Ttl::new(std::time::Duration::from_millis(words.next()?.parse().ok()?)).ok()?;
        Some(Self { state, mode, epoch, shared, ttl, label: words.next()?.to_owned() })
    }
}

/// Whose place this is, by the end of its name.
pub(super) fn owner_of(place: &str) -> Option<OwnerToken> {
    OwnerToken::from_hex(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back() {
        let owner = OwnerId::new("o").unwrap();
        let modes = [
            Mode::Exclusive,
            Mode::Read,
            Mode::Write,
            Mode::Owned { owner },
            Mode::Permits { limit: 7, weight: 3 },
        ];
        for (n, mode) in modes.into_iter().enumerate() {
            for state in [State::Held, State::Waiting, State::Kept] {
                let shared = (n == 3).then_some(17);
                let epoch = if n == 4 { 99 } else { 0 };
                let entry =
                    Entry { state, mode, epoch, shared, ttl: Ttl::DEFAULT, label: "host:1".to_owned() };
                assert_eq!(Entry::decode(entry.encode().as_bytes()), Some(entry));
            }
        }
    }

    #[test]
    fn what_others_wrote_is_not_an_entry() {
        for value in [
            "",
            "x",
            "distlock1",
            "distlock1 held exclusive",
            "distlock1 held other 1 l",
            "distlock2 held read 30000 l",
        ] {
            assert_eq!(Entry::decode(value.as_bytes()), None, "{value:?}");
        }
        assert_eq!(Entry::decode(&[0xff]), None);
    }
}
