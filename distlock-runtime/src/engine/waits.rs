//! Who waits for what: finds circles of tasks of this process that wait for each other's locks.
//!
//! A task is known by the locks that it is under (its lock scope). When a task that holds something has to wait, its wait
//! is written down; if following "who holds that, and what does that one wait for" leads back to a lock of its own, it can
//! never end. A task may outlive the holds that it was started under: those that are over or lost don't count. Permits of semaphores are left out: others may give theirs back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Engine, View};
use crate::key::LockKey;

#[derive(Debug, Default)]
pub(super) struct Waits {
    table: Mutex<HashMap<u64, Entry>>,
}

#[derive(Debug)]
struct Entry {
    key: LockKey,
    under: Vec<Arc<View>>,
    task: String,
}

impl Entry {
    fn holds(&self, key: &LockKey) -> bool {
        self.under.iter().any(|view| view.key() == Some(key) && view.is_standing())
    }
}

/// A wait that is written down; dropped when it ends.
#[derive(Debug)]
pub(crate) struct WaitNote {
    engine: Arc<Engine>,
    id: u64,
}

/// A circle of waits, in words: who holds what and waits for what, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Circle(pub(crate) String);

impl Waits {
    fn table(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, id: u64, entry: Entry) -> Result<(), Circle> {
        let mut table = self.table();
        if let Some(path) = circle(&table, &entry) {
            return Err(Circle(in_words(&table, &entry, &path)));
        }
        table.insert(id, entry);
        Ok(())
    }
}

/// The waits that lead from what `mine` waits for back to a lock that it holds.
fn circle(table: &HashMap<u64, Entry>, mine: &Entry) -> Option<Vec<u64>> {
    let mut seen = HashSet::new();
    let mut paths = vec![(mine.key.clone(), Vec::new())];
    while let Some((key, path)) = paths.pop() {
        for (id, wait) in table.iter().filter(|(_, wait)| wait.holds(&key)) {
            if !seen.insert(*id) {
                continue;
            }
            let path: Vec<u64> = path.iter().copied().chain([*id]).collect();
            if mine.holds(&wait.key) {
                return Some(path);
            }
            paths.push((wait.key.clone(), path));
        }
    }
    None
}

fn in_words(table: &HashMap<u64, Entry>, mine: &Entry, path: &[u64]) -> String {
    let mut text = format!("{} waits for \"{}\"", mine.task, mine.key);
    let mut held = &mine.key;
    for wait in path.iter().filter_map(|id| table.get(id)) {
        text.push_str(&format!("; {} holds \"{held}\" and waits for \"{}\"", wait.task, wait.key));
        held = &wait.key;
    }
    text.push_str(&format!(", which {} holds", mine.task));
    text
}

/// The task that runs, for people.
pub(super) fn task_name() -> String {
    match tokio::task::try_id() {
        Some(id) => format!("task {id}"),
        None => "the main task".to_owned(),
    }
}

impl Engine {
    /// A task that holds `under` has to wait for `key`.
    pub(crate) fn note_wait(
        self: &Arc<Self>,
        key: &LockKey,
        under: Vec<Arc<View>>,
    ) -> Result<WaitNote, Circle> {
        let task = task_name();
        let id = self.id();
        self.waits.enter(id, Entry { key: key.clone(), under, task })?;
        Ok(WaitNote { engine: self.clone(), id })
    }
}

impl Drop for WaitNote {
    fn drop(&mut self) {
        self.engine.waits.table().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::backend::{LeaseHandle, Mode};
    use crate::clock::Clock;
    use crate::engine::{Lease, Source};
    use crate::lease::{LeaseCell, LeaseId};
    use crate::token::{FencingToken, OwnerToken};
    use crate::ttl::Ttl;

    fn key(n: u8) -> LockKey {
        LockKey::new(format!("k{n}")).unwrap()
    }

    fn wait(task: u8, under: &[u8], key_number: u8) -> Entry {
        let (ttl, now) = (Ttl::new(Duration::from_secs(600)).unwrap(), Clock::System.now());
        let view = |n: &u8| {
            let handle = LeaseHandle {
                key: key(*n),
                owner: OwnerToken::random().unwrap(),
                ttl,
                mode: Mode::Exclusive,
            };
            let lease = Arc::new(Lease::new(LeaseId(0), LeaseCell::new(ttl, now), handle));
            let source = Source::Lock { lease, seat: None };
            Arc::new(View::new(source, FencingToken::new(1), Clock::System, now, "test"))
        };
        let task = format!("task {task}");
        Entry { key: key(key_number), under: under.iter().map(view).collect(), task }
    }

    #[test]
    fn a_circle_of_three_is_named_in_order() {
        let waits = Waits::default();
        waits.enter(1, wait(1, &[1], 2)).unwrap();
        waits.enter(2, wait(2, &[2], 3)).unwrap();
        waits.enter(4, wait(4, &[9], 1)).unwrap();
        let Circle(text) = waits.enter(3, wait(3, &[3], 1)).unwrap_err();
        assert_eq!(
            text,
            "task 3 waits for \"k1\"; task 1 holds \"k1\" and waits for \"k2\"; task 2 holds \"k2\" and waits for \
             \"k3\", which task 3 holds"
        );
        assert_eq!(waits.table().len(), 3, "who would close the circle isn't entered");
    }

    #[test]
    fn a_hold_that_is_over_is_in_nobodys_way() {
        let waits = Waits::default();
        let outlived = wait(1, &[1], 2);
        let hold = outlived.under[0].clone();
        waits.enter(1, outlived).unwrap();
        assert!(waits.enter(2, wait(2, &[2], 1)).is_err());
        hold.end();
        waits.enter(2, wait(2, &[2], 1)).unwrap();
    }

    /// Against a model: a wait closes a circle iff it can be reached from itself in the graph of "waits for a lock of".
    #[test]
    fn random_graphs_agree_with_reachability() {
        for seed in 0..20_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let waits = Waits::default();
            let mut edges: Vec<(Vec<u8>, u8)> = Vec::new();
            for id in 0..6u64 {
                // Exclusive locks: nobody holds what another holds.
                let under: Vec<u8> = (0..2).map(|n| u8::try_from(id).unwrap() * 2 + n).collect();
                let wanted = random.u8(0..12);
                if under.contains(&wanted) {
                    continue;
                }
                let mut reach = vec![wanted];
                let mut next = 0;
                while next < reach.len() {
                    let from = reach[next];
                    for (_, key) in edges.iter().filter(|(under, _)| under.contains(&from)) {
                        if !reach.contains(key) {
                            reach.push(*key);
                        }
                    }
                    next += 1;
                }
                let closes = reach.iter().any(|key| under.contains(key));
                let entered = waits.enter(id, wait(0, &under, wanted));
                assert_eq!(entered.is_err(), closes, "seed {seed}");
                if !closes {
                    edges.push((under, wanted));
                }
            }
        }
    }
}
