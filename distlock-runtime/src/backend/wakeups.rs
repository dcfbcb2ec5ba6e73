//! Who in this process waits to be told something by the store. How its messages get here is the store's own.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{BackendError, LatchSpec, RecordKey};
use crate::token::OwnerToken;

/// Waiters ask at least this often, however long they have waited.
const SLOWEST: Duration = Duration::from_secs(1);
/// The first pause of a waiter that can be told.
const TOLD: Duration = Duration::from_millis(250);
/// First and last pause of a waiter that can't be told.
const UNTOLD: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(250));

/// The waiters of one manager, for locks and for what has a record's name.
#[derive(Debug)]
pub(super) struct Wakeups {
    /// Whether messages arrive at present.
    listening: AtomicBool,
    /// How long after a lease's end the store doesn't know it any more.
    after_end: Duration,
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
    /// `after_end`: how long after a lease's end the store doesn't know it any more.
    pub(super) fn new(after_end: Duration) -> Self {
        Self {
            listening: AtomicBool::new(false),
            after_end,
            owners: Mutex::default(),
            records: Mutex::default(),
        }
    }

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

    /// Whether this owner may stand in a queue.
    #[cfg(feature = "redis")]
    pub(super) fn contains(&self, owner: OwnerToken) -> bool {
        self.owners().contains_key(&owner)
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
        let limit = remaining.map_or(pause, |remaining| pause.min(remaining + self.after_end));
        match waiter {
            // Told or not, it asks again.
            Some(waiter) => drop(tokio::time::timeout(limit, waiter.told.notified()).await),
            None => tokio::time::sleep(limit).await,
        }
    }

    /// Waits until a record isn't in flight any more or its lease has lapsed. `look` finds out how long that still runs, if it does, and
    /// has the store tell of its end.
    pub(super) async fn settled_or_lapsed<L>(&self, key: RecordKey, look: impl Fn() -> L)
    where
        L: Future<Output = Result<Option<Duration>, BackendError>>,
    {
        let watch = self.watch(key);
        for asked in 0.. {
            // Before the look: an end after it isn't missed.
            let mut told = pin!(watch.told());
            told.as_mut().enable();
            let fallback = jittered(pause(asked, self.is_listening()));
            let limit = match look().await {
                Ok(Some(remaining)) if remaining.is_zero() => return,
                Ok(Some(remaining)) => fallback.min(remaining + self.after_end),
                Ok(None) => return,
                Err(failure) => {
                    tracing::debug!(%failure, "a record can't be watched now");
                    fallback
                }
            };
            if tokio::time::timeout(limit, told).await.is_ok() {
                return;
            }
        }
    }

    /// Waits until a latch is open. `look` finds out how many counts are left and has the store tell of its opening by this name.
    ///
    /// # Errors
    /// The first look that fails.
    pub(super) async fn opened<L>(
        &self,
        bell: RecordKey,
        latch: &LatchSpec,
        left: &AtomicU32,
        look: impl Fn() -> L,
    ) -> Result<(), BackendError>
    where
        L: Future<Output = Result<u32, BackendError>>,
    {
        let watch = self.watch(bell);
        let mut times = 0;
        loop {
            // Before the look: an opening after it isn't missed.
            let mut told = pin!(watch.told());
            told.as_mut().enable();
            let now = look().await?;
            left.store(now, Ordering::Release);
            if now == 0 {
                return Ok(());
            }
            // Asked again in any case before it would be forgotten.
            let limit = jittered(pause(times, self.is_listening())).min(latch.retain.as_duration() / 2);
            times = times.saturating_add(1);
            let _ = tokio::time::timeout(limit, told).await;
        }
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

    /// Watches a name for as long as the result lives.
    fn watch(&self, key: RecordKey) -> Watch<'_> {
        let mut records = self.records();
        let watched = records.entry(key).or_default();
        watched.watchers += 1;
        Watch { wakeups: self, key, told: Arc::clone(&watched.told) }
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
struct Watch<'a> {
    wakeups: &'a Wakeups,
    key: RecordKey,
    told: Arc<Notify>,
}

impl Watch<'_> {
    /// Wakes at the next message; register it (`enable`) before looking at what it is about.
    fn told(&self) -> tokio::sync::futures::Notified<'_> {
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
fn pause(asked: u32, listening: bool) -> Duration {
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

    fn wakeups() -> Wakeups {
        Wakeups::new(Duration::from_millis(5))
    }

    fn owner() -> OwnerToken {
        OwnerToken::random().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_before_the_wait_is_not_lost() {
        let (wakeups, owner) = (wakeups(), owner());
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
        let (wakeups, owner) = (wakeups(), owner());
        wakeups.set_listening(true);
        wakeups.enter(owner);
        let start = tokio::time::Instant::now();
        wakeups.turn(owner, Some(Duration::from_millis(20))).await;
        assert_eq!(start.elapsed(), Duration::from_millis(25));
        for _ in 0..5 {
            let start = tokio::time::Instant::now();
            wakeups.turn(owner, Some(Duration::from_secs(3600))).await;
            assert!(start.elapsed() <= SLOWEST, "{:?}", start.elapsed());
        }
    }

    #[test]
    fn pauses_grow_and_are_shorter_without_messages() {
        let pauses = |listening| [0, 1, 2, 9, u32::MAX].map(|asked| pause(asked, listening).as_millis());
        assert_eq!(pauses(true), [250, 500, 1000, 1000, 1000]);
        assert_eq!(pauses(false), [50, 100, 200, 250, 250]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_subscription_wakes_everybody() {
        let (wakeups, owner) = (wakeups(), owner());
        wakeups.enter(owner);
        let watch = wakeups.watch(RecordKey::derive("d", &[b"k"]));
        let told = watch.told();
        let mut told = std::pin::pin!(told);
        told.as_mut().enable();
        wakeups.set_listening(true);
        let start = tokio::time::Instant::now();
        wakeups.turn(owner, None).await;
        told.await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn record_messages_reach_their_watchers_only() {
        let wakeups = wakeups();
        let (one, other) = (RecordKey::derive("d", &[b"1"]), RecordKey::derive("d", &[b"2"]));
        let (first, second) = (wakeups.watch(one), wakeups.watch(other));
        let (mut told, mut silent) = (Box::pin(first.told()), Box::pin(second.told()));
        told.as_mut().enable();
        silent.as_mut().enable();
        wakeups.deliver(&format!("r{}", one.to_hex()));
        told.await;
        assert!(!silent.as_mut().enable(), "the other record didn't change");
        drop(silent);
        drop((first, second));
        assert!(wakeups.records().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_looked_at_when_told_and_when_its_lease_ends() {
        let wakeups = wakeups();
        wakeups.set_listening(true);
        let key = RecordKey::derive("d", &[b"1"]);
        let start = tokio::time::Instant::now();
        wakeups.settled_or_lapsed(key, async || Ok(None)).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        let told = wakeups.settled_or_lapsed(key, async || {
            wakeups.deliver(&format!("r{}", key.to_hex()));
            Ok(Some(Duration::from_secs(9)))
        });
        told.await;
        assert_eq!(start.elapsed(), Duration::ZERO, "a message during the look isn't lost");
        let looks = AtomicU32::new(0);
        let lapsed = wakeups.settled_or_lapsed(key, async || match looks.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Some(Duration::from_millis(20))),
            _ => Ok(Some(Duration::ZERO)),
        });
        lapsed.await;
        assert_eq!(start.elapsed(), Duration::from_millis(25));
    }

    #[tokio::test(start_paused = true)]
    async fn a_latch_is_looked_at_until_it_is_open() {
        let (wakeups, left) = (wakeups(), AtomicU32::new(9));
        let retain = crate::ttl::Ttl::new(Duration::from_millis(100)).unwrap();
        let latch = LatchSpec { key: crate::key::LockKey::new("l").unwrap(), count: 2, retain };
        let bell = RecordKey::derive("d", &[b"1"]);
        let start = tokio::time::Instant::now();
        let open = wakeups.opened(bell, &latch, &left, async || Ok(0));
        open.await.unwrap();
        assert_eq!((left.load(Ordering::Relaxed), start.elapsed()), (0, Duration::ZERO));
        let looks = AtomicU32::new(2);
        let open = wakeups.opened(bell, &latch, &left, async || Ok(looks.fetch_sub(1, Ordering::Relaxed)));
        open.await.unwrap();
        assert!(start.elapsed() <= retain.as_duration(), "it would be forgotten meanwhile");
        let gone = || async { Err(BackendError::key_in_use()) };
        assert!(wakeups.opened(bell, &latch, &left, gone).await.is_err());
        assert!(wakeups.records().is_empty());
    }

    #[test]
    fn nonsense_is_ignored() {
        let wakeups = wakeups();
        for payload in ["", "r", "rxyz", "é", &"g".repeat(32)] {
            wakeups.deliver(payload);
        }
    }
}
