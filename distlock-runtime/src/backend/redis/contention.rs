//! A guess which keys are busy, so that a first try that would fail anyway is saved. A wrong guess costs one round trip.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::key::LockKey;

/// How many guesses; keys share them by chance.
const PLACES: usize = 1024;

/// The guesses.
#[derive(Debug)]
pub(super) struct Contention {
    busy: Box<[AtomicBool]>,
    hasher: RandomState,
}

impl Contention {
    pub(super) fn new() -> Self {
        Self {
            busy: std::iter::repeat_with(AtomicBool::default).take(PLACES).collect(),
            hasher: RandomState::new(),
        }
    }

    /// Whether the key was busy when last seen.
    pub(super) fn is_likely(&self, key: &LockKey) -> bool {
        self.place(key).load(Ordering::Relaxed)
    }

    /// What was seen.
    pub(super) fn note(&self, key: &LockKey, busy: bool) {
        self.place(key).store(busy, Ordering::Relaxed);
    }

    fn place(&self, key: &LockKey) -> &AtomicBool {
        let hash = self.hasher.hash_one(key);
        &self.busy[usize::try_from(hash % PLACES as u64).expect("less than 1024")]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_the_last_sight() {
        let (contention, key) = (Contention::new(), LockKey::new("k").unwrap());
        assert!(!contention.is_likely(&key));
        contention.note(&key, true);
        assert!(contention.is_likely(&key));
        contention.note(&key, false);
        assert!(!contention.is_likely(&key));
    }
}
