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

use super::hold::{Source, is_healthy};
use super::{Engine, Hold, Kept, Lease, View};
use crate::backend::{AcquireRequest, Applied, Attempt, BackendError, Grant, LeaseHandle, Mode};
use crate::clock::Moment;
use crate::error::LockError;
use crate::key::LockKey;
use crate::lease::{LeaseCell, LeaseId};
use crate::queue::{BLOCK, Block, Entry, KeyQueue, Leave, News, Refused, Seat, Step, Tenure, Ticket, Want};
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
}

impl Ask {
    fn want(&self) -> Want {
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

    /// The hold that has the key in this process.
    pub(crate) fn view(&self, key: &LockKey) -> Option<Arc<View>> {
        self.shard(key).slots.get(key)?.view.upgrade()
    }
}

impl Engine {
    /// A task wants the lock; `waits` says whether it may wait behind others.
    pub(crate) fn enter(self: &Arc<Self>, key: &LockKey, ask: Ask, waits: bool) -> Result<Place, Refused> {
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
                let waiting = Waiting { engine, key, seat, inbox, told: false };
                if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.limits.waiters {
                    drop(waiting);
                    return Err(Refused::TooMany);
                }
                Ok(Place::Wait(waiting))
            }
            _ => Ok(Place::Drive(Driver::new(engine, key, seat, ask, None, false))),
        }
    }

    /// The hold that has the key in this process.
    pub(crate) fn local_view(&self, key: &LockKey) -> Option<Arc<View>> {
        self.queues.view(key)
    }

    /// What the task that asks the store for this key last failed with.
    pub(crate) fn local_trouble(&self, key: &LockKey) -> Option<BackendError> {
        self.queues.shard(key).troubles.get(key).cloned()
    }

    /// The lease that this process has on the key, and how many tasks wait behind it here.
    pub(crate) fn local_state(&self, key: &LockKey) -> Option<(Option<Arc<Lease>>, usize)> {
        let shard = self.queues.shard(key);
        let queue = &shard.slots.get(key)?.queue;
        Some((queue.tenure().map(|tenure| tenure.lease.clone()), queue.waiting()))
    }

    /// Undoes an attempt that may arrive after the lease is over, once what must be done before is done and the lock
    /// needn't be kept any more.
    pub(super) fn late_attempt(
        self: &Arc<Self>,
        lease: &Lease,
        keep: Option<Duration>,
    ) -> Option<LateAttempt> {
        let request = || request(&lease.key, &Ticket::new(lease.owner, lease.cell.ttl()), true, 1);
        lease.is_awaited().then(|| LateAttempt { engine: self.clone(), request: request(), keep })
    }

    /// A hold ends. Whether its lease must be released at the store, and what is to be delivered after that.
    pub(super) fn end_hold(
        self: &Arc<Self>,
        lease: &Arc<Lease>,
        seat: Seat,
        now: Moment,
    ) -> (bool, Option<Parcel>) {
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
            Some(Leave::Cancel(ticket)) => self.cancel_detached(request(key, &ticket, true, 1), None),
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
                Delivery::Drive(Box::new(Driver::new(engine, key.clone(), seat, ask, ticket, true)))
            }
            (News::Granted(lease, _), Some(view)) => {
                lease.handed_on();
                Delivery::Granted(Hold::new(engine, view))
            }
            (News::Granted(..), None) => unreachable!("only the end of a hold hands on"),
        };
        Some(Parcel(Some((sender, delivery))))
    }

    fn heirs_view(&self, news: &LocalNews, now: Moment) -> Option<Arc<View>> {
        let (seat, mailbox, News::Granted(lease, token)) = news else { return None };
        Some(self.new_view(lease.clone(), *token, *seat, mailbox.ask, now))
    }

    fn new_view(
        &self,
        lease: Arc<Lease>,
        token: FencingToken,
        seat: Seat,
        ask: Ask,
        now: Moment,
    ) -> Arc<View> {
        let source = Source::Lock { lease, seat, at_least: ask.hold_at_least };
        Arc::new(View::new(source, token, self.clock, now, ask.template))
    }
}

fn request(key: &LockKey, ticket: &Ticket, queue: bool, tokens: u32) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        owner: ticket.owner,
        ttl: ticket.ttl,
        mode: Mode::Exclusive,
        queue,
        tokens,
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

/// The right to ask the store for a key, one task of the process at a time. Dropped without a grant, it goes to the
/// next task, together with the attempt under way.
pub(crate) struct Driver {
    engine: Arc<Engine>,
    key: LockKey,
    seat: Seat,
    ask: Ask,
    ticket: Option<Ticket>,
    /// The slot may have an error noted, by this driver or by the one before.
    troubled: bool,
    finished: bool,
}

impl Driver {
    fn new(
        engine: Arc<Engine>,
        key: LockKey,
        seat: Seat,
        ask: Ask,
        ticket: Option<Ticket>,
        troubled: bool,
    ) -> Self {
        Self { engine, key, seat, ask, ticket, troubled, finished: false }
    }

    /// The next command to send. From here on its outcome is open until [`outcome`](Self::outcome) says better.
    pub(crate) fn request(&mut self, queue: bool) -> Result<AcquireRequest, LockError> {
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => Ticket::new(OwnerToken::random()?, self.ask.ttl),
        };
        let ticket = ticket.send();
        self.ticket = Some(ticket);
        let tokens = self.note(ticket);
        Ok(request(&self.key, &ticket, queue, tokens))
    }

    /// What came of the request. A command that was answered needs no cancelling if it left nothing; the queue learns of it
    /// when this driver gives up.
    pub(crate) fn outcome(&mut self, outcome: &Result<Attempt, BackendError>) {
        let placed = match outcome {
            Ok(Attempt::Busy(_)) => Some(false),
            Ok(_) => Some(true),
            Err(error) => (error.applied() == Applied::No).then_some(false),
        };
        if let (Some(ticket), Some(placed)) = (&mut self.ticket, placed) {
            *ticket = ticket.answered(placed);
        }
        let error = outcome.as_ref().err();
        if error.is_none() && !self.troubled {
            return;
        }
        self.troubled = error.is_some();
        let mut shard = self.engine.queues.shard(&self.key);
        match error {
            Some(error) => drop(shard.troubles.insert(self.key.clone(), error.clone())),
            None => shard.settle(&self.key),
        }
    }

    /// Undo the attempt at the store and start the next one afresh.
    pub(crate) fn start_over(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.engine.cancel_detached(request(&self.key, &ticket, true, 1), None);
            self.note(Ticket::new(ticket.owner, ticket.ttl));
        }
    }

    /// Tells the queue about the ticket; returns how many tokens to reserve.
    fn note(&self, ticket: Ticket) -> u32 {
        let mut shard = self.engine.queues.shard(&self.key);
        let Some(queue) = shard.queue(&self.key) else { return 1 };
        queue.driving(self.seat, ticket);
        // Who shares no lease needs no tokens to hand on; drawn for nothing they would outrun the counter's floor.
        if queue.waiting() > 0 && self.ask.want().shares { BLOCK } else { 1 }
    }

    /// The store granted the attempt, as was seen now.
    pub(crate) fn granted(mut self, grant: Grant, now: Moment) -> Hold {
        self.finished = true;
        let engine = self.engine.clone();
        let ticket = self.ticket.expect("a grant follows a request");
        let id = LeaseId(engine.id());
        let lease = Arc::new(Lease::new(
            id,
            LeaseCell::new(ticket.ttl, grant.sent),
            LeaseHandle {
                key: self.key.clone(),
                owner: ticket.owner,
                ttl: ticket.ttl,
                mode: Mode::Exclusive,
            },
            ticket.is_late(),
        ));
        let tenure = Tenure::new(lease.clone(), self.ask.want());
        let block = Block { since: now, next: grant.token, left: grant.tokens };
        let stop_at = self.ask.max_hold.map(|most| now + most);
        engine.watch(id, Kept::Lock(lease.clone()), grant.sent, stop_at);
        let view = {
            let mut shard = engine.queues.shard(&self.key);
            let slot = shard.slots.get_mut(&self.key).expect("a driver keeps its slot");
            let token = slot.queue.granted(self.seat, tenure, block).expect("only the driver drives");
            let view = engine.new_view(lease, token, self.seat, self.ask, now);
            slot.view = Arc::downgrade(&view);
            view
        };
        Hold::new(engine, view)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.finished {
            let step = self.engine.queues.event(&self.key, |queue| {
                if let Some(ticket) = self.ticket {
                    queue.driving(self.seat, ticket);
                }
                queue.gave_up(self.seat)
            });
            self.engine.perform(&self.key, step);
        }
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("key", &self.key).field("seat", &self.seat).finish_non_exhaustive()
    }
}

/// A place behind others. Dropped, it is given up.
pub(crate) struct Waiting {
    engine: Arc<Engine>,
    key: LockKey,
    seat: Seat,
    inbox: oneshot::Receiver<Delivery>,
    told: bool,
}

impl Waiting {
    /// The news, when they come; `None` if the manager shut down. Cancel safe.
    pub(crate) async fn news(&mut self) -> Option<Delivery> {
        let news = (&mut self.inbox).await.ok();
        self.told = true;
        news
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
