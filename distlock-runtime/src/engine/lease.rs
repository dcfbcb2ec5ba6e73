//! What the watchdog keeps: leases of locks and claims of records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

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
    pub(crate) mode: Mode,
    parcel: AtomicU8,
    awaited: bool,
    /// Stays taken until then, also when it is given back sooner (`hold_at_least`).
    kept_until: Option<Moment>,
}

/// The lease isn't on its way to a task.
const COLLECTED: u8 = 0;
/// It was handed to a task that hasn't seen it yet.
const UNDER_WAY: u8 = 1;
/// It was still there when the watchdog looked.
const OVERDUE: u8 = 2;

impl Lease {
    /// `awaited`: a command of the attempt that was granted never had a reply.
    pub(crate) fn new(id: LeaseId, cell: LeaseCell, handle: LeaseHandle, awaited: bool) -> Self {
        let LeaseHandle { key, owner, mode, .. } = handle;
        Self { id, cell, key, owner, mode, parcel: AtomicU8::new(COLLECTED), awaited, kept_until: None }
    }

    pub(super) fn kept_until(self, kept_until: Option<Moment>) -> Self {
        Self { kept_until, ..self }
    }

    /// For how long it must stay taken if it is given back now.
    pub(super) fn keep(&self, now: Moment) -> Option<Duration> {
        self.kept_until.map(|until| until.since(now)).filter(|keep| !keep.is_zero())
    }

    /// Whether a command that takes the lock for this owner may still arrive.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Handed to another task of this process.
    pub(super) fn handed_on(&self) {
        self.parcel.store(UNDER_WAY, Ordering::Release);
    }

    /// The task has it.
    pub(crate) fn collected(&self) {
        self.parcel.store(COLLECTED, Ordering::Release);
    }

    /// Whether it lay uncollected for a whole renewal period: a task that is kept without being polled must not keep the
    /// lock for ever. Asked once a period.
    pub(super) fn is_forgotten(&self) -> bool {
        let seen = self.parcel.compare_exchange(UNDER_WAY, OVERDUE, Ordering::AcqRel, Ordering::Acquire);
        seen == Err(OVERDUE)
    }

    /// The handle with the length that the next renewal should ask for.
    pub(crate) fn handle(&self) -> LeaseHandle {
        LeaseHandle { key: self.key.clone(), owner: self.owner, ttl: self.cell.wanted(), mode: self.mode }
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
