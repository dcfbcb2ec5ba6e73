//! Count-down latches.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::locks::{SMALL, Table};
use super::{FALLBACK, MemoryBackend};
use crate::backend::{BackendError, BackendErrorKind, LatchSpec, LatchStore};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::token::OwnerToken;

pub(super) struct Latch {
    count: u32,
    left: u32,
    counted: HashSet<OwnerToken>,
    expires: Moment,
    opened: Arc<Notify>,
}

impl Table {
    /// That no latch has this name.
    pub(super) fn check_latch(&mut self, key: &LockKey, now: Moment) -> Result<(), BackendError> {
        self.forget_latch(key, now);
        match self.latches.contains_key(key) {
            true => Err(BackendError::key_in_use()),
            false => Ok(()),
        }
    }

    fn forget_latch(&mut self, key: &LockKey, now: Moment) {
        if self.latches.get(key).is_some_and(|latch| latch.expires <= now) {
            self.latches.remove(key);
        }
    }

    /// The latch, if there is one, and it is the one that is meant.
    fn latch(&mut self, spec: &LatchSpec, now: Moment) -> Result<Option<&mut Latch>, BackendError> {
        if self.in_use(&spec.key, now) {
            return Err(BackendError::key_in_use());
        }
        self.forget_latch(&spec.key, now);
        match self.latches.get_mut(&spec.key) {
            Some(latch) if latch.count != spec.count => Err(BackendError::refused(
                BackendErrorKind::LimitMismatch,
                format!("the latch counts from {}, not {}", latch.count, spec.count),
            )),
            latch => Ok(latch),
        }
    }

    /// The latch, made if need be, and remembered from now on.
    fn used_latch(&mut self, spec: &LatchSpec, now: Moment) -> Result<&mut Latch, BackendError> {
        self.latch(spec, now)?;
        // Those that nobody asks for again, whenever there are twice as many.
        if self.latches.len() >= SMALL.max(2 * self.latches_left) {
            self.latches.retain(|_, latch| latch.expires > now);
            self.latches_left = self.latches.len();
        }
        let latch = self.latches.entry(spec.key.clone()).or_insert_with(|| Latch {
            count: spec.count,
            left: spec.count,
            counted: HashSet::new(),
            expires: now,
            opened: Arc::default(),
        });
        latch.expires = latch.expires.max(now + spec.retain.as_duration());
        Ok(latch)
    }
}

#[async_trait]
impl LatchStore for MemoryBackend {
    async fn count_down(&self, spec: &LatchSpec, token: OwnerToken, by: u32) -> Result<u32, BackendError> {
        let now = self.clock.now();
        let mut table = self.table();
        let latch = table.used_latch(spec, now)?;
        if latch.left > 0 && latch.counted.insert(token) {
            latch.left = latch.left.saturating_sub(by);
            if latch.left == 0 {
                latch.counted = HashSet::new();
                latch.opened.notify_waiters();
            }
        }
        Ok(latch.left)
    }

    async fn left(&self, spec: &LatchSpec) -> Result<u32, BackendError> {
        let now = self.clock.now();
        Ok(self.table().latch(spec, now)?.map_or(spec.count, |latch| latch.left))
    }

    async fn opened(&self, spec: &LatchSpec, left: &AtomicU32) -> Result<(), BackendError> {
        loop {
            let opened = {
                let now = self.clock.now();
                let mut table = self.table();
                let latch = table.used_latch(spec, now)?;
                left.store(latch.left, Ordering::Release);
                if latch.left == 0 {
                    return Ok(());
                }
                // Made under the lock: an opening after this moment rings it, polled or not.
                latch.opened.clone().notified_owned()
            };
            // Asked again from time to time: it is remembered for as long as somebody waits.
            let rest = FALLBACK.min(spec.retain.as_duration() / 2);
            let _ = tokio::time::timeout(rest, opened).await;
        }
    }
}
