//! What one session holds, as its manager knows it: the server counts holds of a session, so whoever asks is judged here first.

use std::collections::HashMap;
use std::time::Duration;

use crate::backend::{Blocked, HolderState};
use crate::clock::Moment;
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::{FencingToken, OwnerToken};

/// How long a cancelled attempt may still be under way inside of this process.
const REMEMBERED: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
pub(super) struct Table {
    held: HashMap<LockKey, Held>,
    cancelled: HashMap<OwnerToken, Moment>,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) owner: OwnerToken,
    pub(super) token: FencingToken,
    pub(super) tokens: u32,
    pub(super) expires: Moment,
    /// Which of the manager's sessions holds it.
    pub(super) session: u64,
}

impl Held {
    pub(super) fn blocked(&self, label: &str, now: Moment) -> Blocked {
        let holder = Holder::new(Some(label.to_owned()), Some(self.expires.since(now)));
        Blocked { holder: Some(holder.by(self.owner)) }
    }

    pub(super) fn state(&self, label: &str, now: Moment) -> HolderState {
        HolderState::new(Some(label.to_owned()), Some(self.expires.since(now)), Some(self.owner))
    }
}

impl Table {
    /// Who holds it in this session. What an earlier session held is gone with it.
    pub(super) fn get(&self, key: &LockKey, session: u64) -> Option<&Held> {
        self.held.get(key).filter(|held| held.session == session)
    }

    pub(super) fn get_mut(&mut self, key: &LockKey, session: u64) -> Option<&mut Held> {
        self.held.get_mut(key).filter(|held| held.session == session)
    }

    pub(super) fn insert(&mut self, key: LockKey, held: Held) {
        self.held.insert(key, held);
    }

    pub(super) fn remove(&mut self, key: &LockKey) {
        self.held.remove(key);
    }

    /// Removes it if it is so; whether it was.
    pub(super) fn remove_if(&mut self, key: &LockKey, fits: impl Fn(&Held) -> bool) -> bool {
        let goes = self.held.get(key).is_some_and(fits);
        if goes {
            self.held.remove(key);
        }
        goes
    }

    pub(super) fn key_of(&self, owner: OwnerToken) -> Option<LockKey> {
        self.held.iter().find(|(_, held)| held.owner == owner).map(|(key, _)| key.clone())
    }

    /// When the next hold lapses unless it is renewed.
    pub(super) fn next(&self) -> Option<Moment> {
        self.held.values().map(|held| held.expires).min()
    }

    /// The keys of holds that lapsed.
    pub(super) fn lapsed(&self, now: Moment) -> Vec<LockKey> {
        self.held.iter().filter(|(_, held)| held.expires <= now).map(|(key, _)| key.clone()).collect()
    }

    /// Makes a late arrival of this owner's attempt harmless.
    pub(super) fn bury(&mut self, owner: OwnerToken, ttl: Duration, now: Moment) {
        self.cancelled.retain(|_, until| *until > now);
        self.cancelled.insert(owner, now + REMEMBERED + ttl);
    }

    pub(super) fn is_cancelled(&self, owner: OwnerToken) -> bool {
        self.cancelled.contains_key(&owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn holds_belong_to_their_session_and_lapse() {
        let (mut table, key) = (Table::default(), LockKey::new("k").unwrap());
        let owner = OwnerToken::random().unwrap();
        let held = Held { owner, token: FencingToken::new(1), tokens: 1, expires: at(10), session: 1 };
        table.insert(key.clone(), held);
        assert!(table.get(&key, 1).is_some() && table.get(&key, 2).is_none());
        assert_eq!(table.next(), Some(at(10)));
        assert!(table.lapsed(at(9)).is_empty());
        assert_eq!(table.lapsed(at(10)), std::slice::from_ref(&key));
        table.remove(&key);
        assert_eq!(table.next(), None);
    }

    #[test]
    fn cancelled_owners_are_remembered_for_a_time() {
        let mut table = Table::default();
        let (one, two) = (OwnerToken::random().unwrap(), OwnerToken::random().unwrap());
        table.bury(one, Duration::from_secs(30), at(0));
        table.bury(two, Duration::from_secs(30), at(149));
        assert!(table.is_cancelled(one) && table.is_cancelled(two));
        table.bury(two, Duration::from_secs(30), at(151));
        assert!(!table.is_cancelled(one) && table.is_cancelled(two));
    }
}
