//! One holds, another one comes.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use super::{LIMIT, PAUSE};
use crate::{
    contend::{Contender, Held},
    history::{History, Hold, Verdict, monotonic_ns},
    wait::Deadline,
};

/// One key, and who held it.
///
/// Whenever somebody enters, all who are inside are asked whether they are still valid: what they say then is what counts.
#[derive(Clone)]
pub struct Scene {
    key: String,
    ttl: Duration,
    inside: Arc<Mutex<Vec<Entry>>>,
}

struct Entry {
    hold: Hold,
    /// Whether its owner believes that it holds; false once it has given up.
    is_valid: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A hold in a [`Scene`].
pub struct Holder<H>(Arc<H>);

impl Scene {
    /// Nobody has entered yet.
    pub fn new(key: &str, ttl: Duration) -> Self {
        Self { key: key.to_owned(), ttl, inside: Arc::default() }
    }

    /// Waits for the lock, whatever the store says meanwhile.
    ///
    /// # Panics
    /// When it isn't had within 40 s.
    pub async fn enter<C: Contender>(&self, owner: &str, locks: &C) -> Holder<C::Hold> {
        self.try_enter(owner, locks, LIMIT).await.unwrap_or_else(|| panic!("{owner} never got {}", self.key))
    }

    /// Waits for the lock, for so long at most; `None` if it isn't had by then.
    pub async fn try_enter<C: Contender>(
        &self,
        owner: &str,
        locks: &C,
        patience: Duration,
    ) -> Option<Holder<C::Hold>> {
        let hold = timeout(patience, async {
            loop {
                match locks.acquire(&self.key, self.ttl).await {
                    // One that has lapsed by now is nobody's.
                    Ok(hold) if hold.is_valid() => return Arc::new(hold),
                    _ => tokio::time::sleep(PAUSE).await,
                }
            }
        });
        let hold = hold.await.ok()?;
        let now = monotonic_ns();
        let watched = Arc::downgrade(&hold);
        let mut inside = self.inside();
        look(&mut inside);
        inside.push(Entry {
            hold: Hold {
                owner: owner.to_owned(),
                key: self.key.clone(),
                token: hold.token(),
                start_ns: now,
                definite_end_ns: now,
            },
            is_valid: Box::new(move || watched.upgrade().is_some_and(|hold| hold.is_valid())),
        });
        Some(Holder(hold))
    }

    /// What the judge says of all that entered.
    pub fn verdict(&self) -> Verdict {
        let mut inside = self.inside();
        look(&mut inside);
        let mut history = History::new();
        inside.iter().for_each(|entry| history.add(entry.hold.clone()));
        history.check()
    }

    fn inside(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look(inside: &mut [Entry]) {
    for entry in inside {
        // Before the question, so that no pause between them counts.
        let now = monotonic_ns();
        if (entry.is_valid)() {
            entry.hold.definite_end_ns = now;
        }
    }
}

impl<H: Held> Holder<H> {
    /// What the owner has.
    pub fn held(&self) -> &H {
        &self.0
    }

    /// Gives it back. What the store says to it is for other tests.
    pub async fn release(self) {
        let hold = Arc::into_inner(self.0).expect("nobody else keeps it");
        let _ = timeout(LIMIT, hold.release()).await;
    }
}

/// One holds; something happens between [`begin`](Self::begin) and [`end`](Self::end).
pub struct Duel<H> {
    scene: Scene,
    first: Holder<H>,
}

impl<H: Held> Duel<H> {
    /// The first one takes the lock.
    pub async fn begin<C: Contender<Hold = H>>(locks: &C, key: &str, ttl: Duration) -> Self {
        let scene = Scene::new(key, ttl);
        let first = scene.enter("first", locks).await;
        Self { scene, first }
    }

    /// What the first one has.
    pub fn held(&self) -> &H {
        self.first.held()
    }

    /// The second one wants in for so long, and if it isn't let in, until the first one has given it back.
    pub async fn end<C: Contender>(self, other: &C, patience: Duration) -> Verdict {
        let Self { scene, first } = self;
        match scene.try_enter("second", other, patience).await {
            Some(_second) => scene.verdict(),
            None => {
                first.release().await;
                let _second = scene.enter("second", other).await;
                scene.verdict()
            }
        }
    }
}

/// A hold of the first one `ends` behind its back, the other one has the lock then, and the first one gives back what it has no longer.
/// The other one, again, wants in for so long: it must not get in while it holds. The judge hears of the other one's holds.
pub async fn stale_release<C: Contender>(
    first: &C,
    other: &C,
    key: &str,
    ttl: Duration,
    ends: impl AsyncFnOnce(),
    patience: Duration,
) -> Verdict {
    let scene = Scene::new(key, ttl);
    let stale = Scene::new(key, ttl).enter("first", first).await;
    ends().await;
    let second = scene.enter("second", other).await;
    stale.release().await;
    if scene.try_enter("third", other, patience).await.is_none() {
        second.release().await;
        scene.enter("third", other).await.release().await;
    }
    scene.verdict()
}

/// How long the lock of a holder that has died is waited for; `None` if it isn't had within the bound.
pub async fn regained<C: Contender>(
    locks: &C,
    key: &str,
    ttl: Duration,
    bound: Duration,
) -> Option<Duration> {
    let start = Instant::now();
    let deadline = Deadline::after(bound);
    while !deadline.is_past() {
        if let Ok(Ok(hold)) = timeout(deadline.remaining(), locks.acquire(key, ttl)).await {
            let took = start.elapsed();
            let _ = hold.release().await;
            return Some(took);
        }
    }
    None
}
