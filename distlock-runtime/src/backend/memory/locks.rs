//! The table of locks.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{Bell, CLAIM, LIVE, Owner};
use crate::backend::{
    AcquireRequest, Attempt, Blocked, Grant, HolderState, LeaseHandle, LockState, Released,
};
use crate::clock::Moment;
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::FencingToken;

/// A table of fewer locks isn't swept.
const SMALL: usize = 1024;

#[derive(Default)]
pub(super) struct Table {
    locks: HashMap<LockKey, Lock, foldhash::fast::RandomState>,
    last_token: u64,
    /// How many locks there were after the last sweep.
    swept_to: usize,
}

#[derive(Default)]
struct Lock {
    held: Option<Held>,
    queue: VecDeque<Waiter>,
}

struct Held {
    owner: Owner,
    label: Arc<str>,
    expires: Moment,
}

struct Waiter {
    owner: Owner,
    label: Arc<str>,
    live_until: Moment,
    bell: Bell,
}

impl Lock {
    /// Drops what is over, and hands a free lock to the head of the queue.
    fn settle(&mut self, now: Moment) {
        if self.held.as_ref().is_some_and(|held| held.expires > now) {
            return;
        }
        self.held = None;
        while let Some(waiter) = self.queue.pop_front() {
            if waiter.live_until > now {
                self.held = Some(Held { owner: waiter.owner, label: waiter.label, expires: now + CLAIM });
                waiter.bell.notify_one();
                return;
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.held.is_none() && self.queue.is_empty()
    }

    fn holder(&self, now: Moment) -> Option<HolderState> {
        let held = self.held.as_ref().filter(|held| held.expires > now)?;
        Some(HolderState::new(Some(held.label.to_string()), Some(held.expires - now), Some(held.owner)))
    }
}

impl Table {
    pub(super) fn acquire(&mut self, request: &AcquireRequest, label: &Arc<str>, now: Moment) -> Attempt {
        self.sweep(now);
        let ttl = request.ttl.as_duration();
        let lock = self.locks.entry(request.key.clone()).or_default();
        lock.settle(now);
        match &mut lock.held {
            Some(held) if held.owner == request.owner => held.expires = held.expires.max(now + ttl),
            None => lock.held = Some(Held { owner: request.owner, label: label.clone(), expires: now + ttl }),
            Some(held) => {
                let remaining = held.expires - now;
                let blocked =
                    Blocked { holder: Some(Holder::new(Some(held.label.to_string()), Some(remaining))) };
                if !request.queue {
                    return Attempt::Busy(blocked);
                }
                let live_until = now + LIVE;
                match lock.queue.iter_mut().find(|waiter| waiter.owner == request.owner) {
                    Some(waiter) => waiter.live_until = live_until,
                    None => lock.queue.push_back(Waiter {
                        owner: request.owner,
                        label: label.clone(),
                        live_until,
                        bell: Bell::default(),
                    }),
                }
                return Attempt::Queued(blocked);
            }
        }
        lock.queue.retain(|waiter| waiter.owner != request.owner);
        let tokens = request.tokens.max(1);
        let token = FencingToken::new(self.last_token + 1);
        self.last_token += u64::from(tokens);
        Attempt::Granted(Grant { sent: now, token, tokens })
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
        let Some(held) = self.held(key, owner, now) else { return Released::NotHeld };
        held.expires = now + keep.unwrap_or_default();
        self.hand_on(key, now);
        Released::Confirmed
    }

    pub(super) fn cancel(&mut self, key: &LockKey, owner: Owner, now: Moment) {
        if let Some(lock) = self.locks.get_mut(key) {
            lock.queue.retain(|waiter| waiter.owner != owner);
            if lock.held.as_ref().is_some_and(|held| held.owner == owner) {
                lock.held = None;
            }
            self.hand_on(key, now);
        }
    }

    pub(super) fn force_release(&mut self, key: &LockKey, now: Moment) -> Option<HolderState> {
        let lock = self.locks.get_mut(key)?;
        let holder = lock.holder(now);
        lock.held = None;
        self.hand_on(key, now);
        holder
    }

    pub(super) fn inspect(&mut self, key: &LockKey, now: Moment) -> LockState {
        let Some(lock) = self.locks.get(key) else { return LockState::new(key.clone(), None, 0) };
        let waiters = lock.queue.iter().filter(|waiter| waiter.live_until > now).count();
        LockState::new(key.clone(), lock.holder(now), waiters as u64)
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
        keys.iter().map(|key| self.inspect(key, now)).collect()
    }

    fn held(&mut self, key: &LockKey, owner: Owner, now: Moment) -> Option<&mut Held> {
        self.locks.get_mut(key)?.held.as_mut().filter(|held| held.owner == owner && held.expires > now)
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
mod tests {
    use super::*;
    use crate::backend::Mode;
    use crate::token::OwnerToken;
    use crate::ttl::Ttl;

    #[test]
    fn forgotten_locks_dont_pile_up() {
        let mut table = Table::default();
        let label = Arc::from("test");
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        let mut now = Moment::from_nanos(0);
        for n in 0..20_000 {
            let request = AcquireRequest {
                key: LockKey::new(format!("forgotten:{n}")).unwrap(),
                owner: OwnerToken::random().unwrap(),
                ttl,
                mode: Mode::Exclusive,
                queue: false,
                tokens: 1,
            };
            assert!(matches!(table.acquire(&request, &label, now), Attempt::Granted(_)));
            // A thousand live at a time.
            now = now + Duration::from_millis(1);
            assert!(table.locks.len() <= 2 * SMALL + 1, "{}", table.locks.len());
        }
    }
}
