//! The queues of this process: one pure machine a key, and the delivery of what it decides.
//!
//! Everything that is handed to a task is an object whose drop undoes it: a task that goes away at any await leaves
//! neither a lock nor a place behind.
//!
//! | file | holds |
//! |---|---|
//! | `queues` | the queues of all keys |
//! | `delivery` | what is handed to a task, and where it waits for it |
//! | `patience` | waits that are over soon need no timer |

mod delivery;
mod patience;
mod queues;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

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

pub(crate) use self::delivery::{Delivery, Place, Post, Waiting};
pub(super) use self::delivery::{LateAttempt, Mailbox, Parcel};
pub(crate) use self::patience::Patient;
pub(super) use self::patience::{LOOK, Patience};
pub(super) use self::queues::LocalQueues;
use self::queues::Shard;

type Queue = KeyQueue<Arc<Lease>, Mailbox>;
pub(in crate::engine) type LocalStep = Step<Arc<Lease>, Mailbox>;
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

impl Engine {
    /// A task wants the lock; `waits` says whether it may wait behind others.
    pub(crate) fn enter<'a>(
        self: &'a Arc<Self>,
        key: &'a LockKey,
        ask: Ask,
        waits: Option<Patient>,
    ) -> Result<Place<'a>, Refused> {
        if ask.is_alone() {
            if self.is_closing() {
                return Err(Refused::Closed);
            }
            return Ok(Place::Drive(Driver::new(self.clone(), key.clone(), None, ask, None, false)));
        }
        let most = waits.map(|_| self.limits.waiters_per_key);
        let timed = waits != Some(Patient::Untimed);
        let mut receiver = None;
        let mut alerts = false;
        let (seat, entry) = {
            let mut shard = self.queues.shard(key);
            // Under the lock: whoever enters later than this is seen by the dismissal of a shutdown.
            if self.is_closing() {
                return Err(Refused::Closed);
            }
            let seat = shard.seat();
            let Shard { slots, minded, .. } = &mut *shard;
            let slot = match slots.get_mut(key) {
                Some(slot) => slot,
                None => slots.entry(key.clone()).or_default(),
            };
            let queue = &mut slot.queue;
            let entry = queue.enter(seat, ask.want(), most, || {
                let (sender, inbox) = oneshot::channel();
                receiver = Some(inbox);
                Mailbox { sender, ask, timed }
            })?;
            if entry == Entry::Wait {
                if !timed && !std::mem::replace(&mut slot.minded, true) {
                    minded.push(key.clone());
                    alerts = true;
                }
                crate::telemetry::queued(ask.template, queue.waiting());
            }
            (seat, entry)
        };
        match (entry, receiver) {
            (Entry::Wait, Some(inbox)) => {
                let waiting = Waiting { engine: self, key, seat, inbox, told: false, seen: None };
                if self.waiting.fetch_add(1, Ordering::AcqRel) >= self.limits.waiters {
                    drop(waiting);
                    return Err(Refused::TooMany);
                }
                if alerts {
                    self.mind();
                }
                Ok(Place::Wait(waiting))
            }
            _ => Ok(Place::Drive(Driver::new(self.clone(), key.clone(), Some(seat), ask, None, false))),
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
        self.queues.remembered()
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
        let (seat, Mailbox { sender, ask, .. }, news) = news?;
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
        Some(Parcel(Some((sender, Post::News(delivery)))))
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
