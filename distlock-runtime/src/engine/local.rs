//! The queues of this process: one pure machine a key, and the delivery of what it decides.
//!
//! Everything that is handed to a task is an object whose drop undoes it: a task that goes away at any await leaves
//! neither a lock nor a place behind.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::driver::Driver;
use super::hold::{Source, is_healthy};
use super::{Engine, Hold, Kept, Lease, View};
use crate::backend::{AcquireRequest, BackendError, Grant, LeaseHandle, Mode};
use crate::clock::Moment;
use crate::error::Holder;
use crate::key::LockKey;
use crate::lease::{LeaseCell, LeaseId, Loss};
use crate::queue::{Block, Entry, KeyQueue, Leave, News, Refused, Seat, Step, Tenure, Ticket, Want};
use crate::token::{FencingToken, OwnerToken};
use crate::ttl::Ttl;

/// Locks in different shards don't contend.
const SHARDS: usize = 32;

type Queue = KeyQueue<Arc<Lease>, Mailbox>;
pub(super) type LocalStep = Step<Arc<Lease>, Mailbox>;
type LocalNews = (Seat, Mailbox, News<Arc<Lease>>);

/// What a task asks of the queue, with what its hold will need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) ttl: Ttl,
    pub(crate) template: &'static str,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_at_least: Option<Duration>,
    pub(crate) mode: Mode,
    pub(crate) fair: bool,
}

impl Ask {
    /// Stands in the store's queue itself, beside other tasks of this process: fair locks, and those of which there is
    /// more than one share.
    fn is_alone(&self) -> bool {
        self.fair || self.mode != Mode::Exclusive
    }

    pub(super) fn want(&self) -> Want {
        Want { ttl: self.ttl, shares: self.max_hold.is_none() && self.hold_at_least.is_none() }
    }
}

/// Where a waiting task gets its news, and what it asked for.
pub(super) struct Mailbox {
    sender: oneshot::Sender<Delivery>,
    ask: Ask,
}

/// What a waiting task is told.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// Go and ask the store. Boxed: most deliveries are hand-offs.
    Drive(Box<Driver>),
    /// The lock is yours.
    Granted(Hold),
}

/// How a task got into the queue.
#[derive(Debug)]
pub(crate) enum Place {
    /// Go and ask the store.
    Drive(Driver),
    /// Wait for news.
    Wait(Waiting),
}

#[derive(Default)]
struct Shard {
    slots: HashMap<LockKey, Slot, RandomState>,
    /// What the store last failed with, until it answers again: tells "held" from "store down" to those who wait.
    troubles: HashMap<LockKey, BackendError, RandomState>,
    /// Who of another process was in the way when the store was last asked, and when that was.
    elsewhere: HashMap<LockKey, (Holder, Moment), RandomState>,
    /// How many tasks stand in the store's line by themselves.
    alone: HashMap<LockKey, usize, RandomState>,
    /// The holds that never stood in a queue of this process, of which a lock may have several.
    beside: HashMap<OwnerToken, Weak<View>, RandomState>,
}

struct Slot {
    queue: Queue,
    view: Weak<View>,
}

impl Default for Slot {
    fn default() -> Self {
        Self { queue: KeyQueue::new(), view: Weak::new() }
    }
}

impl Shard {
    fn queue(&mut self, key: &LockKey) -> Option<&mut Queue> {
        self.slots.get_mut(key).map(|slot| &mut slot.queue)
    }

    fn remove(&mut self, key: &LockKey) {
        self.slots.remove(key);
        self.settle(key);
        self.cleared(key);
    }

    /// Nobody of another process is in the way any more.
    fn cleared(&mut self, key: &LockKey) {
        if !self.elsewhere.is_empty() {
            self.elsewhere.remove(key);
        }
    }

    fn settle(&mut self, key: &LockKey) {
        if !self.troubles.is_empty() {
            self.troubles.remove(key);
        }
    }
}

pub(super) struct LocalQueues {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

impl LocalQueues {
    pub(super) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), hasher: RandomState::default() }
    }

    fn shard(&self, key: &LockKey) -> MutexGuard<'_, Shard> {
        let hash = usize::try_from(self.hasher.hash_one(key) % SHARDS as u64).expect("less than SHARDS");
        // No code of others runs under this lock, so a poisoned one is still whole.
        self.shards[hash].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs an event through a key's queue and takes the place away if nothing is left in it.
    fn event(&self, key: &LockKey, event: impl FnOnce(&mut Queue) -> LocalStep) -> Option<LocalStep> {
        let mut shard = self.shard(key);
        let step = event(shard.queue(key)?);
        if step.idle {
            shard.remove(key);
        }
        Some(step)
    }

    /// Sends away all who wait.
    pub(super) fn dismiss(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for slot in shard.slots.values_mut() {
                slot.queue.dismiss();
            }
        }
    }

    pub(super) fn lost(&self, key: &LockKey, id: LeaseId) -> Option<LocalStep> {
        self.event(key, |queue| queue.lost(|lease| lease.id == id))
    }

    /// The driver is about to send a command under this ticket; how many tasks wait behind it. `None` if it was overtaken.
    pub(super) fn driving(&self, key: &LockKey, driver: Seat, ticket: Ticket) -> Option<usize> {
        let mut shard = self.shard(key);
        let queue = shard.queue(key)?;
        queue.driving(driver, ticket).then(|| queue.waiting())
    }

    /// What the store answered to the driver: somebody is in the way.
    pub(super) fn note_elsewhere(&self, key: &LockKey, holder: &Holder, now: Moment) {
        let mut shard = self.shard(key);
        if shard.slots.contains_key(key) {
            shard.elsewhere.insert(key.clone(), (holder.clone(), now));
        }
    }

    /// What the store answered to whoever asks it for this key: an error, or not.
    pub(super) fn note_trouble(&self, key: &LockKey, error: Option<&BackendError>) {
        let mut shard = self.shard(key);
        match error {
            Some(error) => drop(shard.troubles.insert(key.clone(), error.clone())),
            None => shard.settle(key),
        }
    }

    /// A hold begins, or goes on, that never stood in a queue of this process.
    pub(super) fn note_beside(&self, lease: &Lease, view: &Arc<View>) {
        self.shard(&lease.key).beside.insert(lease.owner, Arc::downgrade(view));
    }

    /// The hold that has the key in this process.
    pub(crate) fn view(&self, key: &LockKey) -> Option<Arc<View>> {
        self.shard(key).slots.get(key)?.view.upgrade()
    }
}

impl Engine {
    /// A task wants the lock; `waits` says whether it may wait behind others.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, ask: Ask, waits: bool) -> Result<Place, Refused> {
        if ask.is_alone() {
            if self.is_closing() {
                return Err(Refused::Closed);
            }
            return Ok(Place::Drive(Driver::new(self.clone(), key.clone(), None, ask, None, false)));
        }
        let seat = self.seat();
        let most = waits.then_some(self.limits.waiters_per_key);
        let mut receiver = None;
        let entry = {
            let mut shard = self.queues.shard(key);
            // Under the lock: whoever enters later than this is seen by the dismissal of a shutdown.
            if self.is_closing() {
                return Err(Refused::Closed);
            }
            let slots = &mut shard.slots;
            let queue = match slots.get_mut(key) {
                Some(slot) => &mut slot.queue,
                None => &mut slots.entry(key.clone()).or_default().queue,
            };
            let entry = queue.enter(seat, ask.want(), most, || {
                let (sender, inbox) = oneshot::channel();
                receiver = Some(inbox);
                Mailbox { sender, ask }
            })?;
            if entry == Entry::Wait {
                crate::telemetry::queued(ask.template, queue.waiting());
            }
            entry
        };
        let engine = self.clone();
        let key = key.clone();
        match (entry, receiver) {
            (Entry::Wait, Some(inbox)) => {
                let waiting = Waiting { engine, key, seat, inbox, told: false, seen: None };
                if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.limits.waiters {
                    drop(waiting);
                    return Err(Refused::TooMany);
                }
                Ok(Place::Wait(waiting))
            }
            _ => Ok(Place::Drive(Driver::new(engine, key, Some(seat), ask, None, false))),
        }
    }

    /// One more task stands in the store's line by itself. False if too many wait already.
    pub(super) fn stand_alone(&self, key: &LockKey) -> bool {
        let in_all = self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut shard = self.queues.shard(key);
        let here = shard.alone.entry(key.clone()).or_default();
        *here += 1;
        in_all < self.limits.waiters && *here <= self.limits.waiters_per_key
    }

    /// One of them doesn't any more.
    pub(super) fn leave_alone(&self, key: &LockKey) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        let mut shard = self.queues.shard(key);
        if let Some(here) = shard.alone.get_mut(key) {
            *here -= 1;
            if *here == 0 {
                shard.alone.remove(key);
            }
        }
    }

    /// The store granted the attempt of a queue's driver, as was seen now. `None` if it was overtaken meanwhile: the grant is
    /// that of the next driver, who asks under the same ticket.
    pub(super) fn queued_grant(
        &self,
        lease: &Arc<Lease>,
        seat: Seat,
        grant: &Grant,
        ask: Ask,
        now: Moment,
    ) -> Option<Arc<View>> {
        let tenure = Tenure::new(lease.clone(), ask.want());
        let block = Block { since: now, next: grant.token, left: grant.tokens };
        let mut shard = self.queues.shard(&lease.key);
        let slot = shard.slots.get_mut(&lease.key)?;
        let token = slot.queue.granted(seat, tenure, block).ok()?;
        let view = self.new_view(lease.clone(), token, Some(seat), ask, now);
        slot.view = Arc::downgrade(&view);
        shard.cleared(&lease.key);
        Some(view)
    }

    /// A lease goes on under another handle of the same owner.
    pub(super) fn take_over(
        self: &Arc<Self>,
        old: &Arc<Lease>,
        handle: LeaseHandle,
        grant: &Grant,
        template: &'static str,
    ) -> Hold {
        let id = LeaseId(self.id());
        let cell = LeaseCell::new(handle.ttl, grant.sent).awaited(old.cell.is_awaited());
        let lease = Arc::new(Lease::new(id, cell, handle));
        if !self.rewatch(old.id, id, Kept::Lock(lease.clone()), grant.sent) {
            lease.cell.lose(old.cell.loss().unwrap_or(Loss::Shutdown));
        }
        let source = Source::Lock { lease, seat: None };
        let view = Arc::new(View::new(source, grant.token, self.clock, self.clock.now(), template));
        self.queues.note_beside(old, &view);
        old.goes_on_as(&view);
        Hold::new(self.clone(), view)
    }

    /// A queue's driver gives up.
    pub(super) fn give_up(self: &Arc<Self>, key: &LockKey, driver: Seat, ticket: Option<Ticket>) {
        let step = self.queues.event(key, |queue| {
            if let Some(ticket) = ticket {
                queue.driving(driver, ticket);
            }
            queue.gave_up(driver)
        });
        self.perform(key, step);
    }

    /// The hold that has the key in this process.
    pub(crate) fn local_view(&self, key: &LockKey) -> Option<Arc<View>> {
        self.queues.view(key)
    }

    /// The hold by which this process has the lock under this acquisition, of whichever kind.
    pub(crate) fn local_hold(&self, key: &LockKey, owner: OwnerToken) -> Option<Arc<View>> {
        let shard = self.queues.shard(key);
        let view = shard.beside.get(&owner).or_else(|| Some(&shard.slots.get(key)?.view))?.upgrade()?;
        let is_it = |lease: &Arc<Lease>| lease.owner == owner && lease.key == *key;
        (!view.is_over() && view.lease().is_some_and(is_it)).then_some(view)
    }

    /// How many holds that never stood in a queue of this process are remembered.
    #[cfg(test)]
    pub(crate) fn remembered(&self) -> usize {
        self.queues.shards.iter().map(|shard| shard.lock().expect("no test panics in it").beside.len()).sum()
    }

    /// What the task that asks the store for this key last failed with.
    pub(crate) fn local_trouble(&self, key: &LockKey) -> Option<BackendError> {
        self.queues.shard(key).troubles.get(key).cloned()
    }

    /// Who of another process was in the way when a task of this process last asked the store for this key.
    pub(crate) fn local_elsewhere(&self, key: &LockKey) -> Option<Holder> {
        let (holder, seen) = self.queues.shard(key).elsewhere.get(key).cloned()?;
        let passed = self.clock.now().since(seen);
        Some(Holder { remaining: holder.remaining.map(|rest| rest.saturating_sub(passed)), ..holder })
    }

    /// How many tasks of this process wait behind another one for the key, and whether one asks the store.
    pub(crate) fn local_waiters(&self, key: &LockKey) -> Option<(usize, bool)> {
        let shard = self.queues.shard(key);
        let queue = &shard.slots.get(key)?.queue;
        Some((queue.waiting(), queue.is_acquiring()))
    }

    /// Undoes an attempt that may arrive after the lease is over, once what must be done before is done and the lock
    /// needn't be kept any more.
    pub(super) fn late_attempt(
        self: &Arc<Self>,
        lease: &Lease,
        keep: Option<Duration>,
    ) -> Option<LateAttempt> {
        let request = || {
            let LeaseHandle { key, owner, mode, .. } = lease.handle();
            AcquireRequest { mode, ..exclusive(&key, &Ticket::new(owner, lease.cell.ttl())) }
        };
        lease.cell.is_awaited().then(|| LateAttempt { engine: self.clone(), request: request(), keep })
    }

    /// A hold ends. Whether its lease must be released at the store, and what is to be delivered after that. A hold
    /// without a seat never stood in a queue of this process.
    pub(super) fn end_hold(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        seat: Option<Seat>,
        now: Moment,
    ) -> (bool, Option<Parcel>) {
        let Some(seat) = seat else {
            self.queues.shard(&lease.key).beside.remove(&lease.owner);
            self.unwatch(lease.id);
            return (lease.cell.may_stand() || lease.cell.loss().is_none(), None);
        };
        let healthy = !self.is_closing() && is_healthy(&lease.cell, now);
        let key = &lease.key;
        let (step, view) = {
            let mut shard = self.queues.shard(key);
            let Some(slot) = shard.slots.get_mut(key) else { return (lease.cell.may_stand(), None) };
            let step = slot.queue.released(seat, now, healthy);
            // Here and now: whoever asks sees one holder or the other.
            let view = step.news.as_ref().and_then(|news| self.heirs_view(news, now));
            if let Some(view) = &view {
                slot.view = Arc::downgrade(view);
            }
            if step.idle {
                shard.remove(key);
            }
            (step, view)
        };
        let parcel = self.parcel(key, step.news, view);
        let release = match (&step.store, &parcel) {
            (Some(_), _) => true,
            (None, Some(_)) => false,
            // The queue knew already: lost. It may still stand in the store, and giving it back is safe.
            (None, None) => lease.cell.may_stand(),
        };
        if release {
            self.unwatch(lease.id);
        }
        (release, parcel)
    }

    /// Performs what a queue decided.
    pub(super) fn perform(self: &Arc<Self>, key: &LockKey, step: Option<LocalStep>) {
        let Some(step) = step else { return };
        match step.store {
            Some(Leave::Cancel(ticket)) => self.cancel_detached(exclusive(key, &ticket), None),
            Some(Leave::Release(lease)) => {
                self.unwatch(lease.id);
                self.release_detached(lease.handle(), None);
            }
            None => {}
        }
        drop(self.parcel(key, step.news, None));
    }

    /// What is delivered; `view` is that of a hold that was handed on.
    fn parcel(
        self: &Arc<Self>,
        key: &LockKey,
        news: Option<LocalNews>,
        view: Option<Arc<View>>,
    ) -> Option<Parcel> {
        let (seat, Mailbox { sender, ask }, news) = news?;
        let engine = self.clone();
        let delivery = match (news, view) {
            (News::Drive(ticket), _) => {
                Delivery::Drive(Box::new(Driver::new(engine, key.clone(), Some(seat), ask, ticket, true)))
            }
            (News::Granted(lease, _), Some(view)) => {
                lease.cell.handed_on();
                Delivery::Granted(Hold::new(engine, view))
            }
            (News::Granted(..), None) => unreachable!("only the end of a hold hands on"),
        };
        Some(Parcel(Some((sender, delivery))))
    }

    fn heirs_view(&self, news: &LocalNews, now: Moment) -> Option<Arc<View>> {
        let (seat, mailbox, News::Granted(lease, token)) = news else { return None };
        Some(self.new_view(lease.clone(), *token, Some(*seat), mailbox.ask, now))
    }

    pub(super) fn new_view(
        &self,
        lease: Arc<Lease>,
        token: FencingToken,
        seat: Option<Seat>,
        ask: Ask,
        now: Moment,
    ) -> Arc<View> {
        let source = Source::Lock { lease, seat };
        Arc::new(View::new(source, token, self.clock, now, ask.template))
    }
}

/// The attempt that a ticket of a queue stands for.
fn exclusive(key: &LockKey, ticket: &Ticket) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        owner: ticket.owner,
        ttl: ticket.ttl,
        mode: Mode::Exclusive,
        fair: false,
        queue: true,
        tokens: 1,
    }
}

/// A command that may still arrive; cancelled on drop.
pub(super) struct LateAttempt {
    engine: Arc<Engine>,
    request: AcquireRequest,
    keep: Option<Duration>,
}

impl Drop for LateAttempt {
    fn drop(&mut self) {
        self.engine.cancel_detached(self.request.clone(), self.keep);
    }
}

/// News on their way to a task; delivered on drop. If the task is gone, the drop of what it would have got undoes it.
pub(super) struct Parcel(Option<(oneshot::Sender<Delivery>, Delivery)>);

impl Drop for Parcel {
    fn drop(&mut self) {
        if let Some((sender, delivery)) = self.0.take() {
            drop(sender.send(delivery));
        }
    }
}

/// A place behind others. Dropped, it is given up.
pub(crate) struct Waiting {
    engine: Arc<Engine>,
    key: LockKey,
    seat: Seat,
    inbox: oneshot::Receiver<Delivery>,
    told: bool,
    /// The driver, and how far it was, at the last look.
    seen: Option<(Seat, u32)>,
}

impl Waiting {
    /// The news, when they come; `None` if the manager shut down. Cancel safe.
    pub(crate) async fn news(&mut self) -> Option<Delivery> {
        let news = (&mut self.inbox).await.ok();
        self.told = true;
        news
    }

    /// To be called now and then: takes the turn from a driver that has done nothing since the last call, because nobody polls
    /// its future.
    pub(crate) fn look_at_the_driver(&mut self) {
        let (seat, seen) = (self.seat, &mut self.seen);
        let step = self.engine.queues.event(&self.key, |queue| queue.overtake(seat, seen));
        self.engine.perform(&self.key, step);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.engine.waiting.fetch_sub(1, Ordering::AcqRel);
        if self.told {
            return;
        }
        let mut shard = self.engine.queues.shard(&self.key);
        if let Some(queue) = shard.queue(&self.key) {
            queue.leave(self.seat);
        }
        // News that are in the mailbox already are dropped with it, which undoes them.
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("key", &self.key).field("seat", &self.seat).finish_non_exhaustive()
    }
}
