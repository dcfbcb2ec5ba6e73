//! One lock: who holds it, and who waits.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Bell, CLAIM, LIVE, Owner};
use crate::backend::{AcquireRequest, BackendError, BackendErrorKind, Blocked, HolderState, Kind, Mode};
use crate::clock::Moment;
use crate::error::Holder;
use crate::token::FencingToken;

pub(super) struct Lock {
    pub(super) kind: Kind,
    /// The token that all holds of an explicit owner share; drawn by the first that asks.
    pub(super) shared: Option<FencingToken>,
    pub(super) held: Vec<Held>,
    pub(super) queue: VecDeque<Waiter>,
}

pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) label: Arc<str>,
    pub(super) mode: Mode,
    pub(super) expires: Moment,
}

pub(super) struct Waiter {
    pub(super) owner: Owner,
    pub(super) label: Arc<str>,
    pub(super) mode: Mode,
    pub(super) live_until: Moment,
    pub(super) bell: Bell,
}

impl Lock {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, shared: None, held: Vec::new(), queue: VecDeque::new() }
    }

    /// Drops what is over, and hands what is free to the head of the queue, for as long as it fits: nobody is passed by.
    pub(super) fn settle(&mut self, now: Moment) {
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
    pub(super) fn hold(&mut self, held: Held) {
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
    pub(super) fn is_entered_again(&self, mode: Mode) -> bool {
        matches!(mode, Mode::Owned { .. }) && self.held.iter().any(|held| held.mode == mode)
    }

    pub(super) fn used(&self) -> u64 {
        self.held.iter().map(|held| held.mode.weight()).sum()
    }

    pub(super) fn fits(&self, mode: Mode) -> bool {
        match mode {
            Mode::Owned { .. } => self.held.iter().all(|held| held.mode == mode),
            _ => self.used() + mode.weight() <= self.kind.capacity(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    /// The one of the holders that stands longest in the way.
    pub(super) fn holder(&self, now: Moment) -> Option<HolderState> {
        self.holders(now, 1).pop()
    }

    /// So many of the holders, those that stand longest in the way first.
    pub(super) fn holders(&self, now: Moment, most: usize) -> Vec<HolderState> {
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
    pub(super) fn blocked(&self, now: Moment) -> Blocked {
        let first = self.held.iter().min_by_key(|held| held.expires);
        let holder = first
            .map(|held| Holder::new(Some(held.label.to_string()), Some(held.expires - now)).by(held.owner));
        Blocked { holder }
    }

    pub(super) fn enter(&mut self, request: &AcquireRequest, label: &Arc<str>, now: Moment) {
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

pub(super) fn conflict(stands: Kind, asked: Kind) -> BackendError {
    match (stands, asked) {
        (Kind::Semaphore { limit }, Kind::Semaphore { limit: other }) => BackendError::refused(
            BackendErrorKind::LimitMismatch,
            format!("the semaphore has {limit} permits, not {other}"),
        ),
        _ => BackendError::key_in_use(),
    }
}
