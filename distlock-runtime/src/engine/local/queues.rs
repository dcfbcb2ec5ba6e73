//! The queues of all keys, and what was seen of each key besides.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use foldhash::fast::RandomState;

use super::super::{Lease, View};
use super::{LocalStep, Queue};
use crate::backend::BackendError;
use crate::clock::Moment;
use crate::error::Holder;
use crate::key::LockKey;
use crate::lease::LeaseId;
use crate::queue::{KeyQueue, Seat, Ticket};
use crate::token::OwnerToken;

/// Locks in different shards don't contend.
const SHARDS: usize = 32;

#[derive(Default)]
pub(super) struct Shard {
    pub(super) slots: HashMap<LockKey, Slot, RandomState>,
    /// What the store last failed with, until it answers again: tells "held" from "store down" to those who wait.
    pub(super) troubles: HashMap<LockKey, BackendError, RandomState>,
    /// Who of another process was in the way when the store was last asked, and when that was.
    pub(super) elsewhere: HashMap<LockKey, (Holder, Moment), RandomState>,
    /// How many tasks stand in the store's line by themselves.
    pub(super) alone: HashMap<LockKey, usize, RandomState>,
    /// The holds that never stood in a queue of this process, of which a lock may have several.
    pub(super) beside: HashMap<OwnerToken, Weak<View>, RandomState>,
    /// Keys for which somebody may wait without a timer.
    pub(super) minded: Vec<LockKey>,
    /// How many seats were given out here. A key is always in the same shard.
    pub(super) seats: u64,
    /// How many had been given out at the last look at those who wait, and at the one before.
    pub(super) looked: (u64, u64),
}

pub(super) struct Slot {
    pub(super) queue: Queue,
    pub(super) view: Weak<View>,
    /// Its key is among the [`minded`](Shard::minded).
    pub(super) minded: bool,
}

impl Default for Slot {
    fn default() -> Self {
        Self { queue: KeyQueue::new(), view: Weak::new(), minded: false }
    }
}

impl Shard {
    pub(super) fn seat(&mut self) -> Seat {
        self.seats += 1;
        Seat::new(self.seats)
    }

    pub(super) fn queue(&mut self, key: &LockKey) -> Option<&mut Queue> {
        self.slots.get_mut(key).map(|slot| &mut slot.queue)
    }

    pub(super) fn remove(&mut self, key: &LockKey) {
        self.slots.remove(key);
        self.settle(key);
        self.cleared(key);
    }

    /// Nobody of another process is in the way any more.
    pub(super) fn cleared(&mut self, key: &LockKey) {
        if !self.elsewhere.is_empty() {
            self.elsewhere.remove(key);
        }
    }

    pub(super) fn settle(&mut self, key: &LockKey) {
        if !self.troubles.is_empty() {
            self.troubles.remove(key);
        }
    }
}

pub(in crate::engine) struct LocalQueues {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl LocalQueues {
    pub(in crate::engine) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    pub(super) fn shard(&self, key: &LockKey) -> MutexGuard<'_, Shard> {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).expect("less than SHARDS");
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.shards[hash].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One after the other.
    pub(super) fn all(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        // As above.
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs an event through a key's queue and takes the place away if nothing is left in it.
    pub(super) fn event(
        &self,
        key: &LockKey,
        event: impl FnOnce(&mut Queue) -> LocalStep,
    ) -> Option<LocalStep> {
        let mut shard = self.shard(key);
        let step = event(shard.queue(key)?);
        if step.idle {
            shard.remove(key);
        }
        Some(step)
    }

    /// Sends away all who wait.
    pub(in crate::engine) fn dismiss(&self) {
        for mut shard in self.all() {
            for slot in shard.slots.values_mut() {
                slot.queue.dismiss();
            }
        }
    }

    pub(in crate::engine) fn lost(&self, key: &LockKey, id: LeaseId) -> Option<LocalStep> {
        self.event(key, |queue| queue.lost(|lease| lease.id == id))
    }

    /// The driver is about to send a command under this ticket; how many tasks wait behind it. `None` if it was overtaken.
    pub(in crate::engine) fn driving(&self, key: &LockKey, driver: Seat, ticket: Ticket) -> Option<usize> {
        let mut shard = self.shard(key);
        let queue = shard.queue(key)?;
        queue.driving(driver, ticket).then(|| queue.waiting())
    }

    /// What the store answered to the driver: somebody is in the way.
    pub(in crate::engine) fn note_elsewhere(&self, key: &LockKey, holder: &Holder, now: Moment) {
        let mut shard = self.shard(key);
        if shard.slots.contains_key(key) {
            shard.elsewhere.insert(key.clone(), (holder.clone(), now));
        }
    }

    /// What the store answered to whoever asks it for this key: an error, or not.
    pub(in crate::engine) fn note_trouble(&self, key: &LockKey, error: Option<&BackendError>) {
        let mut shard = self.shard(key);
        match error {
            Some(error) => drop(shard.troubles.insert(key.clone(), error.clone())),
            None => shard.settle(key),
        }
    }

    /// A hold begins, or goes on, that never stood in a queue of this process.
    pub(in crate::engine) fn note_beside(&self, lease: &Lease, view: &Arc<View>) {
        self.shard(&lease.key).beside.insert(lease.owner, Arc::downgrade(view));
    }

    /// The hold that has the key in this process.
    pub(crate) fn view(&self, key: &LockKey) -> Option<Arc<View>> {
        self.shard(key).slots.get(key)?.view.upgrade()
    }

    /// How many holds are remembered that never stood in a queue.
    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().expect("no test panics in it").beside.len()).sum()
    }
}
