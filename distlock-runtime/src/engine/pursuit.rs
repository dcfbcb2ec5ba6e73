//! Circles of waits over processes: each task that holds locks and has to wait publishes that beside the locks, and follows
//! "what does the holder wait for" from lock to lock. Back at a lock of its own, the wait can never end.
//!
//! The looks are not one look: what was seen at different times may never have been there at once. So a circle counts only
//! when it is seen a second time with the same waits and holders, and each of the others has been published anew in between. A wait or a
//! hold doesn't begin twice under one name, so every edge was there from its first sight to its last, all of them at the
//! moment in between; and whoever died in the meantime publishes nothing.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Engine, View};
use crate::backend::{BackendError, HolderWait, PublishedWait, WaitBoard};
use crate::error::LockError;
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How often a wait is published, and the circle looked for. Waits that are shorter cost nothing.
const TICK: Duration = Duration::from_millis(500);
/// How long one tick may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest circle that is looked for, and how many locks are looked at for it.
const LONGEST: usize = 16;
const LOOKS: usize = 64;

/// A wait that is published for as long as this lives.
struct Published {
    engine: Arc<Engine>,
    board: Arc<dyn WaitBoard>,
    wait: PublishedWait,
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.wait.beat > 0 {
            self.engine.withdraw_wait(self.wait.clone());
        }
    }
}

/// Resolves when the wait for `key` of a task that holds `under` is found in a circle and is the one of the circle to give up:
/// what it waits for is said in words.
pub(crate) async fn pursue(
    engine: Arc<Engine>,
    board: Arc<dyn WaitBoard>,
    key: LockKey,
    under: Vec<Arc<View>>,
) -> Result<String, LockError> {
    let who = format!("{}/{}", engine.label(), super::waits::task_name()).replace(char::is_whitespace, "-");
    let wait = PublishedWait { id: OwnerToken::random()?, beat: 0, key, under: Vec::new(), who };
    let mut published = Published { engine, board, wait };
    let mut suspicion = None;
    loop {
        // Not in step with the others.
        tokio::time::sleep(TICK.mul_f64(0.9 + fastrand::f64() / 5.0)).await;
        // What is over or lost meanwhile is another's by now, perhaps under the same lease.
        let held = under.iter().map(View::standing).filter(|view| view.is_valid());
        published.wait.under = held.filter_map(|view| Some(view.lease()?.handle())).collect();
        if published.wait.under.is_empty() {
            drop(published);
            return std::future::pending().await;
        }
        published.wait.beat += 1;
        let Published { board, wait, .. } = &published;
        let look = async {
            board.publish(wait).await?;
            circle(&**board, wait).await
        };
        match tokio::time::timeout(PATIENCE, look).await {
            Ok(Ok(seen)) => {
                if let Some(circle) = confirm(&mut suspicion, seen)
                    && circle.iter().all(|other| other.id < wait.id)
                {
                    return Ok(in_words(wait, circle));
                }
            }
            // Nothing is known: the next look begins anew.
            Ok(Err(error)) => {
                tracing::debug!(%error, "can't look for a circle of waits now");
                suspicion = None;
            }
            Err(_) => suspicion = None,
        }
    }
}

/// The waits that lead from what `mine` waits for back to a lock that it holds: each holds what the one before waits for.
/// The last is `mine` itself, by the acquisition that closes the circle.
async fn circle(
    board: &dyn WaitBoard,
    mine: &PublishedWait,
) -> Result<Option<Vec<HolderWait>>, BackendError> {
    let mut seen = HashSet::from([mine.id]);
    let mut paths = VecDeque::from([(mine.key.clone(), Vec::new())]);
    for _ in 0..LOOKS {
        let Some((key, path)) = paths.pop_front() else { return Ok(None) };
        for wait in board.waits_of_holders(&key).await? {
            let closes = wait.id == mine.id;
            // Alone it would wait for itself, which is told at once elsewhere.
            if closes && !path.is_empty() {
                return Ok(Some(path.into_iter().chain([wait]).collect()));
            }
            if !closes && path.len() + 1 < LONGEST && seen.insert(wait.id) {
                paths.push_back((wait.key.clone(), path.iter().cloned().chain([wait]).collect()));
            }
        }
    }
    Ok(None)
}

/// The circle without the one that looks, if it was there before and everybody in it has been heard of since.
fn confirm(suspicion: &mut Option<Vec<HolderWait>>, seen: Option<Vec<HolderWait>>) -> Option<&[HolderWait]> {
    let name = |wait: &HolderWait| (wait.id, wait.owner);
    let same = match (&*suspicion, &seen) {
        (Some(before), Some(now)) => before.iter().map(name).eq(now.iter().map(name)),
        _ => false,
    };
    if !same {
        *suspicion = seen;
        return None;
    }
    let (_mine, others) = suspicion.as_ref()?.split_last()?;
    let alive = others.iter().zip(&seen?).all(|(before, now)| now.beat > before.beat);
    alive.then_some(others)
}

fn in_words(mine: &PublishedWait, others: &[HolderWait]) -> String {
    let mut text = format!("{} waits for \"{}\"", mine.who, mine.key);
    let mut held = &mine.key;
    for wait in others {
        text.push_str(&format!("; {} holds \"{held}\" and waits for \"{}\"", wait.who, wait.key));
        held = &wait.key;
    }
    text.push_str(&format!(", which {} holds", mine.who));
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;
    #[cfg(feature = "testkit")]
    use crate::{
        backend::{LeaseHandle, Mode, memory::MemoryBackend},
        clock::Clock,
        engine::{Host, Lease, Limits, Source},
        lease::{LeaseCell, LeaseId},
        token::FencingToken,
        ttl::Ttl,
    };

    /// A wait in numbers: its id, its beat, the hold, the keys held and the one that is wanted.
    type Numbers = (u8, u32, u8, Vec<u8>, u8);

    #[derive(Debug, Default)]
    struct Board(Mutex<Vec<Numbers>>);

    fn token(number: u8) -> OwnerToken {
        OwnerToken::from_hex(&format!("{number:032x}")).unwrap()
    }

    fn key(number: u8) -> LockKey {
        LockKey::new(format!("k{number}")).unwrap()
    }

    #[async_trait]
    impl WaitBoard for Board {
        async fn publish(&self, _: &PublishedWait) -> Result<(), BackendError> {
            Ok(())
        }

        async fn withdraw(&self, _: &PublishedWait) -> Result<(), BackendError> {
            Ok(())
        }

        async fn waits_of_holders(&self, asked: &LockKey) -> Result<Vec<HolderWait>, BackendError> {
            let waits = self.0.lock().unwrap();
            let holders =
                waits.iter().filter(|(.., held, _)| held.iter().any(|number| key(*number) == *asked));
            let said = |(id, beat, hold, _, wanted): &Numbers| HolderWait {
                id: token(*id),
                beat: *beat,
                owner: token(*hold),
                key: key(*wanted),
                who: format!("task-{id}"),
            };
            Ok(holders.map(said).collect())
        }
    }

    fn mine(id: u8, wanted: u8) -> PublishedWait {
        PublishedWait {
            id: token(id),
            beat: 1,
            key: key(wanted),
            under: Vec::new(),
            who: format!("task-{id}"),
        }
    }

    /// Counts what is published, and finds nobody.
    #[cfg(feature = "testkit")]
    #[derive(Debug, Default)]
    struct Counting(Mutex<Vec<usize>>);

    #[cfg(feature = "testkit")]
    #[async_trait]
    impl WaitBoard for Counting {
        async fn publish(&self, wait: &PublishedWait) -> Result<(), BackendError> {
            self.0.lock().unwrap().push(wait.under.len());
            Ok(())
        }

        async fn withdraw(&self, _: &PublishedWait) -> Result<(), BackendError> {
            Ok(())
        }

        async fn waits_of_holders(&self, _: &LockKey) -> Result<Vec<HolderWait>, BackendError> {
            Ok(Vec::new())
        }
    }

    /// A hold that is over may be another task's under the same lease: its old holder's wait says nothing of it any more.
    #[cfg(feature = "testkit")]
    #[tokio::test(start_paused = true)]
    async fn holds_that_are_over_are_published_no_more() {
        let store = Arc::new(MemoryBackend::new(Clock::Tokio, "tests"));
        let limits = Limits { waiters_per_key: 1, waiters: 1 };
        let engine =
            Engine::start(store, Clock::Tokio, Arc::from("tests"), limits, None, Host::Task).unwrap();
        let (one, two) = (view(1), view(2));
        let views = vec![one.clone(), two.clone()];
        let board = Arc::new(Counting::default());
        let pursuit = tokio::spawn(pursue(engine, board.clone(), key(3), views));
        let published = async || {
            tokio::time::sleep(TICK * 4).await;
            std::mem::take(&mut *board.0.lock().unwrap())
        };
        assert!(published().await.contains(&2));
        one.end();
        assert_eq!(published().await.last(), Some(&1));
        two.end();
        published().await;
        assert!(published().await.is_empty(), "nothing is held, so there is nothing to say");
        assert!(!pursuit.is_finished());
        pursuit.abort();
    }

    #[cfg(feature = "testkit")]
    fn view(number: u8) -> Arc<View> {
        let (ttl, now) = (Ttl::new(Duration::from_secs(600)).unwrap(), Clock::Tokio.now());
        let handle = LeaseHandle { key: key(number), owner: token(number), ttl, mode: Mode::Exclusive };
        let lease = Arc::new(Lease::new(LeaseId(number.into()), LeaseCell::new(ttl, now), handle));
        let source = Source::Lock { lease, seat: None };
        Arc::new(View::new(source, FencingToken::new(1), Clock::Tokio, now, "test"))
    }

    #[tokio::test]
    async fn a_circle_counts_when_it_is_seen_twice_and_all_others_are_alive() {
        let board =
            Board(Mutex::new(vec![(1, 1, 11, vec![1], 2), (2, 1, 12, vec![2], 3), (3, 1, 13, vec![3], 1)]));
        let mut suspicion = None;
        let look = async || circle(&board, &mine(3, 1)).await.unwrap();
        assert!(confirm(&mut suspicion, look().await).is_none(), "seen once");
        board.0.lock().unwrap()[0].1 = 2;
        assert!(confirm(&mut suspicion, look().await).is_none(), "one of two is silent");
        board.0.lock().unwrap()[1].1 = 2;
        let seen = look().await;
        let others =
            confirm(&mut suspicion, seen).expect("both were heard of since the first sight").to_vec();
        assert_eq!(
            in_words(&mine(3, 1), &others),
            "task-3 waits for \"k1\"; task-1 holds \"k1\" and waits for \"k2\"; task-2 holds \"k2\" and waits for \"k3\", which \
             task-3 holds"
        );
        // Another hold of the same wait is another circle.
        board.0.lock().unwrap()[0].2 = 99;
        assert!(confirm(&mut suspicion, look().await).is_none());
        board.0.lock().unwrap().remove(1);
        assert!(look().await.is_none());
        assert!(confirm(&mut suspicion, None).is_none() && suspicion.is_none());
    }

    /// Against a model: a wait is in a circle iff it reaches itself in the graph of "waits for a lock of".
    #[tokio::test]
    async fn random_graphs_agree_with_reachability() {
        for seed in 0..5_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut waits = Vec::new();
            for id in 0..7u8 {
                // Up to two locks each, some of them shared by readers.
                let held: Vec<u8> = (0..2).map(|_| random.u8(0..10)).collect();
                let wanted = random.u8(0..10);
                if !held.contains(&wanted) {
                    waits.push((id, 1, 20 + id, held, wanted));
                }
            }
            let Some(first) = waits.first().cloned() else { continue };
            let next = |wanted: u8| waits.iter().filter(move |(.., held, _)| held.contains(&wanted));
            let mut reached: Vec<u8> = Vec::new();
            let mut open = vec![first.4];
            while let Some(wanted) = open.pop() {
                for (id, .., onward) in next(wanted) {
                    if !reached.contains(id) {
                        reached.push(*id);
                        open.push(*onward);
                    }
                }
            }
            let board = Board(Mutex::new(waits.clone()));
            let found = circle(&board, &mine(first.0, first.4)).await.unwrap();
            assert_eq!(found.is_some(), reached.contains(&first.0), "seed {seed}: {waits:?}");
            if let Some(found) = found {
                assert_eq!(found.last().unwrap().id, token(first.0));
                let mut wanted = first.4;
                for wait in found {
                    let (.., held, onward) = waits.iter().find(|known| token(known.0) == wait.id).unwrap();
                    assert!(held.contains(&wanted), "seed {seed}: an edge that isn't there");
                    wanted = *onward;
                }
            }
        }
    }
}
