//! What the watchdog keeps: leases of locks and claims of records.

use std::sync::Arc;

use crate::backend::{LeaseHandle, RecordLease};
use crate::lease::{LeaseCell, LeaseId, Watched};

/// A lock's lease, shared by the queue, the watchdog and the holds that have it in turn.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) cell: LeaseCell,
    pub(crate) handle: LeaseHandle,
}

impl Lease {
    /// The handle with the length that the next renewal should ask for.
    pub(crate) fn handle(&self) -> LeaseHandle {
        LeaseHandle { ttl: self.cell.wanted(), ..self.handle.clone() }
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
