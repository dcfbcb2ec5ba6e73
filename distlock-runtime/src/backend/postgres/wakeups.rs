//! Who in this process waits to be told something by the store.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::backend::RecordKey;
use crate::token::OwnerToken;

/// Waiters ask at least this often, however long they have waited.
const SLOWEST: Duration = Duration::from_secs(1);
/// The first pause of a waiter that can be told.
const TOLD: Duration = Duration::from_millis(250);
/// First and last pause of a waiter that can't be told.
const UNTOLD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

/// The waiters of one manager, for locks and for what has a record's name.
#[derive(Debug, Default)]
pub(super) struct Wakeups {
    /// Whether messages arrive at present.
    listening: AtomicBool,
    owners: Mutex<HashMap<OwnerToken, Arc<Waiter>>>,
    records: Mutex<HashMap<RecordKey, Watched>>,
}

/// One waiting owner. A message before it waits isn't lost.
#[derive(Debug, Default)]
struct Waiter {
    told: Notify,
    asked: AtomicU32,
}

#[derive(Debug, Default)]
struct Watched {
    told: Arc<Notify>,
    watchers: usize,
}

impl Wakeups {
    /// Whether messages arrive at present.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Acquire)
    }

    /// Says whether messages arrive from now on. Those of the time before were lost, so everybody asks once.
    pub(super) fn set_listening(&self, listening: bool) {
        self.listening.store(listening, Ordering::Release);
        if listening {
            self.owners().values().for_each(|waiter| waiter.told.notify_one());
            self.records().values().for_each(|watched| watched.told.notify_waiters());
        }
    }

    /// Enters an owner; `true` if it is new.
    pub(super) fn enter(&self, owner: OwnerToken) -> bool {
        match self.owners().entry(owner) {
            Entry::Vacant(place) => {
                place.insert(Arc::default());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// The owner waits no longer.
    pub(super) fn leave(&self, owner: OwnerToken) {
        self.owners().remove(&owner);
    }

    /// Waits until the owner is told, or until it should ask by itself: when the holder's lease has run out, or after a
    /// pause that grows with each time.
    pub(super) async fn turn(&self, owner: OwnerToken, remaining: Option<Duration>) {
        let waiter = self.owners().get(&owner).map(Arc::clone);
        let asked = waiter.as_ref().map_or(0, |waiter| waiter.asked.fetch_add(1, Ordering::Relaxed));
        let pause = jittered(pause(asked, self.is_listening()));
        // Just after the expiry.
        let limit = remaining.map_or(pause, |remaining| pause.min(remaining + Duration::from_millis(2)));
        match waiter {
            // Told or not, it asks again.
            Some(waiter) => drop(tokio::time::timeout(limit, waiter.told.notified()).await),
            None => tokio::time::sleep(limit).await,
        }
    }

    /// Watches a name for as long as the result lives.
    pub(super) fn watch(&self, key: RecordKey) -> Watch<'_> {
        let mut records = self.records();
        let watched = records.entry(key).or_default();
        watched.watchers += 1;
        Watch { wakeups: self, key, told: Arc::clone(&watched.told) }
    }

    /// A message: an owner's token, or `r` and a record's name.
    pub(super) fn deliver(&self, message: &str) {
        if let Some(key) = message.strip_prefix('r').and_then(RecordKey::from_hex) {
            if let Some(watched) = self.records().get(&key) {
                watched.told.notify_waiters();
            }
        } else if let Some(owner) = OwnerToken::from_hex(message)
            && let Some(waiter) = self.owners().get(&owner)
        {
            tracing::trace!(?owner, "told that it is its turn");
            waiter.told.notify_one();
        }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<OwnerToken, Arc<Waiter>>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> MutexGuard<'_, HashMap<RecordKey, Watched>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Interest in one name.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    wakeups: &'a Wakeups,
    key: RecordKey,
    told: Arc<Notify>,
}

impl Watch<'_> {
    /// Wakes at the next message; register it (`enable`) before looking at what it is about.
    pub(super) fn told(&self) -> tokio::sync::futures::Notified<'_> {
        self.told.notified()
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut records = self.wakeups.records();
        if let Entry::Occupied(mut place) = records.entry(self.key) {
            place.get_mut().watchers -= 1;
            if place.get().watchers == 0 {
                place.remove();
            }
        }
    }
}

/// How long to wait before the question number `asked` (from 0).
pub(super) fn pause(asked: u32, listening: bool) -> Duration {
    let (first, longest) = if listening { (TOLD, SLOWEST) } else { UNTOLD };
    first.saturating_mul(1 << asked.min(8)).min(longest)
}

/// Up to a fifth shorter, so that processes don't ask in step.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 - fastrand::f64() / 5.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> OwnerToken {
        OwnerToken::random().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_before_the_wait_is_not_lost() {
        let (wakeups, owner) = (Wakeups::default(), owner());
        wakeups.set_listening(true);
        assert!(wakeups.enter(owner));
        assert!(!wakeups.enter(owner), "a repeat keeps its entry");
        wakeups.deliver(&owner.to_hex());
        let start = tokio::time::Instant::now();
        wakeups.turn(owner, None).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        // Only once: the next wait lasts.
        wakeups.turn(owner, None).await;
        assert!(start.elapsed() >= Duration::from_millis(200));
        wakeups.leave(owner);
        assert!(wakeups.enter(owner), "it had left");
    }

    #[tokio::test(start_paused = true)]
    async fn waits_end_with_the_holder_or_with_the_pause() {
        let (wakeups, owner) = (Wakeups::default(), owner());
        wakeups.set_listening(true);
        wakeups.enter(owner);
        let start = tokio::time::Instant::now();
        wakeups.turn(owner, Some(Duration::from_millis(20))).await;
        assert_eq!(start.elapsed(), Duration::from_millis(22));
        for _ in 0..5 {
            let start = tokio::time::Instant::now();
            wakeups.turn(owner, Some(Duration::from_secs(3600))).await;
            assert!(start.elapsed() <= SLOWEST, "{:?}", start.elapsed());
        }
        let pauses = |listening| [0, 1, 2, 9, u32::MAX].map(|asked| pause(asked, listening).as_millis());
        assert_eq!(pauses(true), [250, 500, 1000, 1000, 1000]);
        assert_eq!(pauses(false), [50, 100, 200, 250, 250]);
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_told_apart_and_everybody_asks_when_listening_begins() {
        let (wakeups, owner) = (Wakeups::default(), owner());
        let (one, other) = (RecordKey::derive("d", &[b"1"]), RecordKey::derive("d", &[b"2"]));
        let (first, second) = (wakeups.watch(one), wakeups.watch(other));
        let (mut told, mut silent) = (Box::pin(first.told()), Box::pin(second.told()));
        told.as_mut().enable();
        silent.as_mut().enable();
        wakeups.deliver(&format!("r{}", one.to_hex()));
        for nonsense in ["", "r", "rxyz", "é", &"g".repeat(32)] {
            wakeups.deliver(nonsense);
        }
        told.await;
        assert!(!silent.as_mut().enable(), "the other one wasn't meant");
        wakeups.enter(owner);
        let start = tokio::time::Instant::now();
        wakeups.set_listening(true);
        silent.await;
        wakeups.turn(owner, None).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        drop((first, second));
        assert!(wakeups.records().is_empty());
    }
}
