//! What is in a file: who holds which lock until when, and the last fencing token.

use std::{
    collections::BTreeMap,
    time::{SystemTime, UNIX_EPOCH},
};

use distlock::backend::{FencingToken, Holder, HolderState, LockKey, Moment, OwnerToken, Ttl};
use serde::{Deserialize, Serialize};

/// A key's name in the file. `LockKey::new("x")` and `LockKey::raw("x")` are two locks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn of(key: &LockKey) -> Self {
        Self(format!("{} {}", if key.is_raw() { "raw" } else { "key" }, key.as_str()))
    }

    /// The key, if it isn't a raw one.
    fn key(&self) -> Option<LockKey> {
        LockKey::new(self.0.strip_prefix("key ")?).ok()
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// Which boot of the machine the times belong to.
    boot: String,
    last_token: u64,
    locks: BTreeMap<Name, Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// Nobody, once it was released and stays taken for a while.
    owner: Option<String>,
    label: String,
    /// Nanoseconds of the clock that all processes of the host share.
    expires: u64,
}

impl Entry {
    pub(super) fn is_of(&self, owner: OwnerToken) -> bool {
        self.owner.as_deref() == Some(&*owner.to_hex())
    }

    pub(super) fn as_holder(&self, now: Moment) -> Holder {
        let holder = Holder::new(Some(self.label.clone()), Some(self.expires() - now));
        match self.owner() {
            Some(owner) => holder.by(owner),
            None => holder,
        }
    }

    pub(super) fn as_holder_state(&self, now: Moment) -> HolderState {
        HolderState::new(Some(self.label.clone()), Some(self.expires() - now), self.owner())
    }

    fn owner(&self) -> Option<OwnerToken> {
        OwnerToken::from_hex(self.owner.as_deref()?)
    }

    fn expires(&self) -> Moment {
        Moment::from_nanos(self.expires)
    }
}

impl State {
    /// One without locks. Its tokens begin above the time in microseconds * 1024, so that they go on growing where the last ones were
    /// lost with the power, or the files by hand: a grant takes longer than its block of tokens lasts.
    #[allow(clippy::disallowed_methods, reason = "a start for tokens; no lease is judged by it")]
    pub(super) fn new(boot: &str) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let last_token = u64::try_from(since.as_micros()).unwrap_or_default() << 10;
        Self { boot: boot.to_owned(), last_token, locks: BTreeMap::new() }
    }

    /// As it was written. Of an earlier boot only the token counts: its clock began anew, and all who held something are gone.
    pub(super) fn read(bytes: &[u8], boot: &str) -> serde_json::Result<Self> {
        let state: Self = serde_json::from_slice(bytes)?;
        if state.boot == boot {
            return Ok(state);
        }
        let fresh = Self::new(boot);
        Ok(Self { last_token: state.last_token.max(fresh.last_token), ..fresh })
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("names and numbers can be written as JSON")
    }

    /// Who has this lock, if its lease still runs.
    pub(super) fn held(&self, name: &Name, now: Moment) -> Option<&Entry> {
        self.locks.get(name).filter(|entry| entry.expires() > now)
    }

    /// The holders of locks whose name begins so, and isn't raw.
    pub(super) fn holders(&self, prefix: &str, now: Moment) -> impl Iterator<Item = (LockKey, HolderState)> {
        let live = self.locks.iter().filter(move |(_, entry)| entry.expires() > now);
        let named = live.filter_map(|(name, entry)| Some((name.key()?, entry)));
        named
            .filter(move |(key, _)| key.as_str().starts_with(prefix))
            .map(move |(key, entry)| (key, entry.as_holder_state(now)))
    }

    /// Makes this owner the holder, or gives it its full length again; never less than it has. The first of its new tokens.
    pub(super) fn grant(
        &mut self,
        name: Name,
        owner: OwnerToken,
        label: &str,
        now: Moment,
        ttl: Ttl,
        tokens: u32,
    ) -> FencingToken {
        // What has lapsed goes when somebody comes by.
        self.locks.retain(|_, entry| entry.expires() > now);
        if !self.lengthen(&name, owner, now, ttl) {
            let expires = (now + ttl.as_duration()).as_nanos();
            let entry = Entry { owner: Some(owner.to_hex()), label: label.to_owned(), expires };
            self.locks.insert(name, entry);
        }
        let first = self.last_token + 1;
        self.last_token += u64::from(tokens);
        FencingToken::new(first)
    }

    /// Gives the lease its full length again, if this owner has it.
    pub(super) fn lengthen(&mut self, name: &Name, owner: OwnerToken, now: Moment, ttl: Ttl) -> bool {
        match self.locks.get_mut(name).filter(|entry| entry.expires() > now && entry.is_of(owner)) {
            Some(entry) => {
                entry.expires = entry.expires.max((now + ttl.as_duration()).as_nanos());
                true
            }
            None => false,
        }
    }

    /// Leaves the lock taken until then, by nobody: nothing that its owner has under way finds it.
    pub(super) fn keep(&mut self, name: &Name, until: Moment) {
        if let Some(entry) = self.locks.get_mut(name) {
            (entry.owner, entry.expires) = (None, until.as_nanos());
        }
    }

    pub(super) fn free(&mut self, name: &Name) {
        self.locks.remove(name);
    }
}
