//! How many requests wait for one key: a storm of repeats must not pile up bodies and tasks.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::backend::RecordKey;

/// Places to wait, bounded for each key.
#[derive(Clone, Debug)]
pub struct Waiters {
    limit: usize,
    counts: Arc<Mutex<HashMap<RecordKey, usize>>>,
}

impl Waiters {
    /// So many places for each key.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, counts: Arc::default() }
    }

    /// A place to wait for this key; `None` if all are taken.
    #[must_use]
    pub fn enter(&self, key: RecordKey) -> Option<Waiting> {
        let mut counts = self.lock();
        let count = counts.entry(key).or_insert(0);
        if *count >= self.limit {
            if *count == 0 {
                counts.remove(&key);
            }
            return None;
        }
        *count += 1;
        Some(Waiting { waiters: self.clone(), key })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RecordKey, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A taken place.
#[derive(Debug)]
pub struct Waiting {
    waiters: Waiters,
    key: RecordKey,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.waiters.lock().entry(self.key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_per_key_and_leave_nothing_behind() {
        let (a, b) = (RecordKey::derive("t", &[b"a"]), RecordKey::derive("t", &[b"b"]));
        let waiters = Waiters::new(2);
        let first = waiters.enter(a).unwrap();
        let second = waiters.enter(a).unwrap();
        assert!(waiters.enter(a).is_none());
        let other = waiters.enter(b).unwrap();
        drop(first);
        drop(waiters.enter(a).unwrap());
        drop((second, other));
        assert!(waiters.lock().is_empty());
        assert!(Waiters::new(0).enter(a).is_none());
    }
}
