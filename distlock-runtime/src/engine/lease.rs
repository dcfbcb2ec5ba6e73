//! What the watchdog keeps: leases of locks and claims of records.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::View;

use crate::backend::{LeaseHandle, Mode, RecordLease};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::lease::{LeaseCell, LeaseId, Watched};
use crate::token::OwnerToken;

/// A lock's lease, shared by the queue, the watchdog and the holds that have it in turn.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) cell: LeaseCell,
    pub(crate) key: LockKey,
    pub(crate) owner: OwnerToken,
    /// What few leases have: there may be 100 000 of the others.
    more: Option<Box<More>>,
}

#[derive(Debug)]
struct More {
    mode: Mode,
    /// Stays taken until then, also when it is given back sooner (`hold_at_least`).
    kept_until: Option<Moment>,
    /// Once it was converted.
    line: OnceLock<Arc<Line>>,
}

impl More {
    fn new(mode: Mode, kept_until: Option<Moment>) -> Box<Self> {
        Box::new(Self { mode, kept_until, line: OnceLock::new() })
    }
}

/// The holds that a lease was converted through, one after the other: the one that there is now.
#[derive(Debug, Default)]
struct Line(Mutex<Weak<View>>);

impl Lease {
    pub(crate) fn new(id: LeaseId, cell: LeaseCell, handle: LeaseHandle) -> Self {
        let LeaseHandle { key, owner, mode, .. } = handle;
        Self { id, cell, key, owner, more: (mode != Mode::Exclusive).then(|| More::new(mode, None)) }
    }

    pub(super) fn kept_until(mut self, kept_until: Option<Moment>) -> Self {
        if kept_until.is_some() {
            self.more = Some(More::new(self.mode(), kept_until));
        }
        self
    }

    /// For how long it must stay taken if it is given back now.
    pub(super) fn keep(&self, now: Moment) -> Option<Duration> {
        let kept_until = self.more.as_ref().and_then(|more| more.kept_until);
        kept_until.map(|until| until.since(now)).filter(|keep| !keep.is_zero())
    }

    pub(crate) fn mode(&self) -> Mode {
        self.more.as_ref().map_or(Mode::Exclusive, |more| more.mode)
    }

    /// This lease goes on as that of another hold.
    pub(super) fn goes_on_as(&self, view: &Arc<View>) {
        let Some((more, next)) = self.more.as_ref().zip(view.lease().and_then(|lease| lease.more.as_ref()))
        else {
            return;
        };
        let line = more.line.get_or_init(Arc::default);
        *line.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(view);
        // Fresh, so nothing is there yet.
        let _ = next.line.set(line.clone());
    }

    /// The hold as which it went on last, while that is there.
    pub(super) fn went_on_as(&self) -> Option<Arc<View>> {
        let line = self.more.as_ref()?.line.get()?;
        line.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// The handle with the length that the next renewal should ask for.
    pub(crate) fn handle(&self) -> LeaseHandle {
        LeaseHandle { key: self.key.clone(), owner: self.owner, ttl: self.cell.wanted(), mode: self.mode() }
    }
}

/// A record's claim.
#[derive(Debug)]
pub(crate) struct ClaimLease {
    pub(crate) id: LeaseId,
    pub(crate) cell: LeaseCell,
    pub(crate) handle: RecordLease,
}

#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Lock(Arc<Lease>),
    Claim(Arc<ClaimLease>),
}

impl Kept {
    pub(crate) fn id(&self) -> LeaseId {
        match self {
            Self::Lock(lease) => lease.id,
            Self::Claim(claim) => claim.id,
        }
    }
}

impl Watched for Kept {
    fn cell(&self) -> &LeaseCell {
        match self {
            Self::Lock(lease) => &lease.cell,
            Self::Claim(claim) => &claim.cell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::View;

    /// What 100 000 held locks cost is mostly these two; 16 bytes more of one are 16 bytes more of each lock.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_held_lock_stays_small() {
        assert!(size_of::<Lease>() <= 88, "{}", size_of::<Lease>());
        assert!(size_of::<View>() <= 72, "{}", size_of::<View>());
    }
}
