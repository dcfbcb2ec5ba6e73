//! The table of locks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::latches::Latch;
use super::lock::{Held, Lock, conflict};
use super::{Bell, Owner};
use crate::backend::{
    AcquireRequest, Attempt, AttemptAll, BackendError, BackendErrorKind, Grant, HolderState, Kind,
    LeaseHandle, LockState, Mode, Released,
};
use crate::clock::Moment;
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
