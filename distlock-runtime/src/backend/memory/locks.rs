//! The table of locks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::latches::Latch;
use super::{Bell, CLAIM, LIVE, Owner};
use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, BackendError, BackendErrorKind, Blocked, Grant, HolderState, Kind,
    LeaseHandle, LockState, Mode, Released,
};
use crate::clock::Moment;
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::FencingToken;

/// A table of fewer locks isn't swept.
pub(super) const SMALL: usize = 1024;

#[derive(Default)]
pub(super) struct Table {
    locks: HashMap<LockKey, Lock, foldhash::fast::RandomState>,
    pub(super) latches: HashMap<LockKey, Latch, foldhash::fast::RandomState>,
    /// How many latches there were after the last sweep.
    pub(super) latches_left: usize,
    last_token: u64,
    /// How many locks there were after the last sweep.
    swept_to: usize,
}

struct Lock {
    kind: Kind,
    /// The token that all holds of an explicit owner share; drawn by the first that asks.
    shared: Option<FencingToken>,
    held: Vec<Held>,
    queue: VecDeque<Waiter>,
}

struct Held {
    owner: Owner,
    label: Arc<str>,
    mode: Mode,
    expires: Moment,
}

struct Waiter {
    owner: Owner,
    label: Arc<str>,
    mode: Mode,
    live_until: Moment,
    bell: Bell,
}

impl Lock {
    fn new(kind: Kind) -> Self {
        Self { kind, shared: None, held: Vec::new(), queue: VecDeque::new() }
    }

    /// Drops what is over, and hands what is free to the head of the queue, for as long as it fits: nobody is passed by.
    fn settle(&mut self, now: Moment) {
        self.held.retain(|held| held.expires > now);
        while let Some(waiter) = self.queue.front() {
            let live = waiter.live_until > now;
            if live && !self.fits(waiter.mode) {
                return;
            }
            if let Some(waiter) = self.queue.pop_front().filter(|_| live) {
                let Waiter { owner, label, mode, bell, .. } = waiter;
                self.hold(Held { owner, label, mode, expires: now + CLAIM });
                bell.notify_one();
            }
        }
    }

    /// One more hold. The first of an owner calls in those who wait under the same: they needn't wait for others.
    fn hold(&mut self, held: Held) {
        if self.held.is_empty() {
            self.shared = None;
            if let Mode::Owned { .. } = held.mode {
                self.queue
                    .iter()
                    .filter(|waiter| waiter.mode == held.mode)
                    .for_each(|waiter| waiter.bell.notify_one());
            }
        }
        self.held.push(held);
    }

    /// Whether this would be one more hold of the explicit owner that has the lock.
    fn is_entered_again(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Owned { .. }) && self.held.iter().any(|held| held.mode == mode)
    }

    fn used(&self) -> u64 {
        self.held.iter().map(|held| held.mode.weight()).sum()
    }

    fn fits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Owned { .. } => self.held.iter().all(|held| held.mode == mode),
            _ => self.used() + mode.weight() <= self.kind.capacity(),
        }
    }

    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// The one of the holders that stands longest in the way.
    fn holder(&self, now: Moment) -> Option<HolderState> {
        self.holders(now, 1).pop()
    }

    /// So many of the holders, those that stand longest in the way first.
    fn holders(&self, now: Moment, most: usize) -> Vec<HolderState> {
        let mut live: Vec<&Held> = self.held.iter().filter(|held| held.expires > now).collect();
        live.sort_by_key(|held| std::cmp::Reverse(held.expires));
        let count = u32::try_from(live.len()).unwrap_or(u32::MAX);
        let state = |held: &Held| {
            let (label, remaining) = (held.label.to_string(), held.expires - now);
            let state = HolderState::new(Some(label), Some(remaining), Some(held.owner));
            match (self.kind, held.mode) {
                (Kind::Owned, mode) => state.with_holds(count).holding(mode),
                (Kind::Semaphore { limit }, Mode::Permits { weight, .. }) => {
                    state.holding(Mode::Permits { limit, weight })
                }
                (_, mode) => state.holding(mode),
            }
        };
        live.into_iter().take(most).map(state).collect()
    }

    /// When the first of the holders lapses unless renewed.
    fn blocked(&self, now: Moment) -> Blocked {
        let first = self.held.iter().min_by_key(|held| held.expires);
        let holder = first
            .map(|held| Holder::new(Some(held.label.to_string()), Some(held.expires - now)).by(held.owner));
        Blocked { holder }
    }

    fn enter(&mut self, request: &AcquireRequest, label: &Arc<str>, now: Moment) {
        let live_until = now + LIVE;
        match self.queue.iter_mut().find(|waiter| waiter.owner == request.owner) {
            Some(waiter) => waiter.live_until = live_until,
            None => self.queue.push_back(Waiter {
                owner: request.owner,
                label: label.clone(),
                mode: request.mode,
                live_until,
                bell: Bell::default(),
            }),
        }
    }
}

fn conflict(stands: Kind, asked: Kind) -> BackendError {
    match (stands, asked) {
        (Kind::Semaphore { limit }, Kind::Semaphore { limit: other }) => BackendError::refused(
            BackendErrorKind::LimitMismatch,
            format!("the semaphore has {limit} permits, not {other}"),
        ),
        _ => BackendError::key_in_use(),
    }
}

impl Table {
    pub(super) fn acquire(
        &mut self,
        request: &AcquireRequest,
        label: &Arc<str>,
        now: Moment,
    ) -> Result<Attempt, BackendError> {
        self.sweep(now);
        self.check_latch(&request.key, now)?;
        let kind = request.mode.kind();
        let lock = self.locks.entry(request.key.clone()).or_insert_with(|| Lock::new(kind));
        lock.settle(now);
        if lock.is_empty() {
            lock.kind = kind;
        } else if lock.kind != kind {
            return Err(conflict(lock.kind, kind));
        }
        let ttl = request.ttl.as_duration();
        if let Some(held) = lock.held.iter_mut().find(|held| held.owner == request.owner) {
            held.expires = held.expires.max(now + ttl);
        } else if lock.is_entered_again(request.mode)
            || lock.fits(request.mode) && (lock.queue.is_empty() || !request.is_fair())
        {
            let (owner, label, mode) = (request.owner, label.clone(), request.mode);
            lock.hold(Held { owner, label, mode, expires: now + ttl });
        } else if request.queue {
            lock.enter(request, label, now);
            return Ok(Attempt::Queued(lock.blocked(now)));
        } else {
            return Ok(Attempt::Busy(lock.blocked(now)));
        }
        lock.queue.retain(|waiter| waiter.owner != request.owner);
        if kind == Kind::Owned {
            if lock.shared.is_none() {
                self.last_token += 1;
                lock.shared = Some(FencingToken::new(self.last_token));
            }
            let token = lock.shared.expect("drawn above");
            return Ok(Attempt::Granted(Grant { sent: now, token, tokens: 1 }));
        }
        Ok(Attempt::Granted(self.grant(request.mode, request.tokens, now)))
    }

    /// All or none: looks at each before it takes the first.
    pub(super) fn acquire_all(
        &mut self,
        requests: &[AcquireRequest],
        label: &Arc<str>,
        now: Moment,
    ) -> Result<AttemptAll, BackendError> {
        for (index, request) in requests.iter().enumerate() {
            self.check_latch(&request.key, now)?;
            let Some(lock) = self.locks.get_mut(&request.key) else { continue };
            lock.settle(now);
            let mine = lock.held.iter().any(|held| held.owner == request.owner);
            if lock.is_empty() || mine {
                continue;
            }
            if lock.kind != request.mode.kind() {
                return Err(conflict(lock.kind, request.mode.kind()));
            }
            if !lock.fits(request.mode) {
                return Ok(AttemptAll::Busy { index, blocked: lock.blocked(now) });
            }
        }
        let mut grants = Vec::with_capacity(requests.len());
        for request in requests {
            match self.acquire(request, label, now)? {
                Attempt::Granted(grant) => grants.push(grant),
                _ => unreachable!("free a moment ago, under the same lock of the table"),
            }
        }
        Ok(AttemptAll::Granted(grants))
    }

    /// Readers carry the last token that a writer can have; everybody else draws their own.
    fn grant(&mut self, mode: Mode, tokens: u32, now: Moment) -> Grant {
        if mode == Mode::Read {
            return Grant { sent: now, token: FencingToken::new(self.last_token), tokens: 1 };
        }
        let tokens = tokens.max(1);
        let token = FencingToken::new(self.last_token + 1);
        self.last_token += u64::from(tokens);
        Grant { sent: now, token, tokens }
    }

    /// Whether a lock is held or waited for under this name.
    pub(super) fn in_use(&mut self, key: &LockKey, now: Moment) -> bool {
        self.locks.get_mut(key).is_some_and(|lock| {
            lock.settle(now);
            !lock.is_empty()
        })
    }

    pub(super) fn convert(
        &mut self,
        lease: &LeaseHandle,
        to: Mode,
        now: Moment,
    ) -> Result<Attempt, BackendError> {
        let gone = || BackendError::refused(BackendErrorKind::NotHeld, "the lease to convert is gone");
        let lock = self.locks.get_mut(&lease.key).ok_or_else(gone)?;
        lock.settle(now);
        if lock.kind != to.kind() {
            return Err(conflict(lock.kind, to.kind()));
        }
        let others = lock.held.iter().filter(|held| held.owner != lease.owner).count();
        let waiting = lock.queue.len();
        let held = lock.held.iter_mut().find(|held| held.owner == lease.owner).ok_or_else(gone)?;
        if to == Mode::Write && held.mode == Mode::Read && (others > 0 || waiting > 0) {
            return Ok(Attempt::Busy(lock.blocked(now)));
        }
        held.mode = to;
        held.expires = held.expires.max(now + lease.ttl.as_duration());
        lock.settle(now);
        Ok(Attempt::Granted(self.grant(to, 1, now)))
    }

    pub(super) fn resize(&mut self, key: &LockKey, limit: u32, now: Moment) -> Result<bool, BackendError> {
        let Some(lock) = self.locks.get_mut(key) else { return Ok(false) };
        lock.settle(now);
        if lock.is_empty() {
            return Ok(false);
        }
        let Kind::Semaphore { .. } = lock.kind else {
            return Err(conflict(lock.kind, Kind::Semaphore { limit }));
        };
        lock.kind = Kind::Semaphore { limit };
        for waiter in &mut lock.queue {
            waiter.bell.notify_one();
        }
        lock.settle(now);
        Ok(true)
    }

    /// The bell of a queued owner; `None` if the lock was handed to it meanwhile, or it isn't queued.
    pub(super) fn bell(&self, key: &LockKey, owner: Owner) -> Option<Bell> {
        let waiter = self.locks.get(key)?.queue.iter().find(|waiter| waiter.owner == owner)?;
        Some(waiter.bell.clone())
    }

    pub(super) fn renew(&mut self, lease: &LeaseHandle, now: Moment) -> bool {
        match self.held(&lease.key, lease.owner, now) {
            Some(held) => {
                held.expires = held.expires.max(now + lease.ttl.as_duration());
                true
            }
            None => false,
        }
    }

    pub(super) fn release(
        &mut self,
        key: &LockKey,
        owner: Owner,
        keep: Option<Duration>,
        now: Moment,
    ) -> Released {
        if self.held(key, owner, now).is_none() {
            return Released::NotHeld;
        }
        let held = &mut self.locks.get_mut(key).expect("it has a holder").held;
        if let Some(keep) = keep {
            // Kept under another name: nothing that this owner has under way lengthens it.
            let kept = owner.of_what_is_kept();
            held.retain(|held| held.owner != kept);
            for held in held.iter_mut().filter(|held| held.owner == owner) {
                (held.owner, held.expires) = (kept, now + keep);
            }
        } else {
            held.retain(|held| held.owner != owner);
        }
        self.hand_on(key, now);
        Released::Confirmed
    }

    pub(super) fn cancel(&mut self, key: &LockKey, owner: Owner, now: Moment) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.queue.retain(|waiter| waiter.owner != owner);
            lock.held.retain(|held| held.owner != owner);
            self.hand_on(key, now);
        }
    }

    pub(super) fn force_release(&mut self, key: &LockKey, now: Moment) -> Option<HolderState> {
        let lock = self.locks.get_mut(key)?;
        let holder = lock.holder(now);
        lock.held.clear();
        self.hand_on(key, now);
        holder
    }

    /// What is known of a lock, with so many of its holders at most.
    pub(super) fn inspect(&mut self, key: &LockKey, most: usize, now: Moment) -> LockState {
        let free = || LockState::new(key.clone(), None, 0);
        let Some(lock) = self.locks.get(key) else { return free() };
        let waiters = lock.queue.iter().filter(|waiter| waiter.live_until > now).count() as u64;
        let live = || lock.held.iter().filter(|held| held.expires > now);
        let count = live().count() as u64;
        if count == 0 && waiters == 0 {
            return free();
        }
        let state = LockState::shared(key.clone(), lock.kind, lock.holders(now, most), count, waiters);
        match lock.kind {
            Kind::Semaphore { .. } => state.with_permits_in_use(live().map(|held| held.mode.weight()).sum()),
            _ => state,
        }
    }

    pub(super) fn list(&mut self, prefix: &str, limit: usize, now: Moment) -> Vec<LockState> {
        let keys: Vec<LockKey> = self
            .locks
            .iter()
            .filter(|(key, lock)| {
                !key.is_raw() && key.as_str().starts_with(prefix) && lock.holder(now).is_some()
            })
            .map(|(key, _)| key.clone())
            .take(limit)
            .collect();
        keys.iter().map(|key| self.inspect(key, LockState::MOST_LISTED, now)).collect()
    }

    /// Whether this acquisition holds the lock.
    pub(super) fn is_held_by(&mut self, key: &LockKey, owner: Owner, now: Moment) -> bool {
        self.held(key, owner, now).is_some()
    }

    fn held(&mut self, key: &LockKey, owner: Owner, now: Moment) -> Option<&mut Held> {
        self.locks.get_mut(key)?.held.iter_mut().find(|held| held.owner == owner && held.expires > now)
    }

    fn hand_on(&mut self, key: &LockKey, now: Moment) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.settle(now);
            if lock.is_empty() {
                self.locks.remove(key);
            }
        }
    }

    /// Takes away the locks that lapsed and that nobody asked for again, whenever the table has doubled: a released lock
    /// leaves by itself, so this is for those whose holders died.
    fn sweep(&mut self, now: Moment) {
        if self.locks.len() < SMALL.max(2 * self.swept_to) {
            return;
        }
        self.locks.retain(|_, lock| {
            lock.settle(now);
            !lock.is_empty()
        });
        self.swept_to = self.locks.len();
    }
}

#[cfg(test)]
mod tests;
