//! What goes through the waist and comes back.

use std::time::Duration;

use super::BackendError;
use crate::clock::Moment;
use crate::error::Holder;
use crate::key::LockKey;
use crate::token::{FencingToken, OwnerId, OwnerToken};
use crate::ttl::Ttl;

/// The kind of hold that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// All of the lock.
    Exclusive,
    /// A share of a read/write lock, beside other readers.
    Read,
    /// All of a read/write lock.
    Write,
    /// All of a lock that an explicit owner holds, beside other holds of the same owner.
    Owned {
        /// The owner.
        owner: OwnerId,
    },
    /// Some of a semaphore's permits.
    Permits {
        /// How many permits the semaphore has in all.
        limit: u32,
        /// How many of them this hold takes.
        weight: u32,
    },
}

/// The kind of lock that a name stands for. Two kinds on one name are a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One holder.
    Exclusive,
    /// One explicit owner, with any number of holds.
    Owned,
    /// Many readers or one writer.
    ReadWrite,
    /// Holders up to a number of permits.
    Semaphore {
        /// The number of permits.
        limit: u32,
    },
}

/// What a read/write lock has in all; a reader takes one, a writer everything. Holds of an explicit owner take one.
const EVERYTHING: u64 = 1 << 32;

impl Kind {
    /// How much there is to hold: every kind of lock is a weighted semaphore with leases.
    #[must_use]
    pub fn capacity(self) -> u64 {
        match self {
            Self::Exclusive => 1,
            Self::Owned | Self::ReadWrite => EVERYTHING,
            Self::Semaphore { limit } => u64::from(limit),
        }
    }
}

impl Mode {
    /// The kind of lock that is held so.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::Exclusive => Kind::Exclusive,
            Self::Owned { .. } => Kind::Owned,
            Self::Read | Self::Write => Kind::ReadWrite,
            Self::Permits { limit, .. } => Kind::Semaphore { limit },
        }
    }

    /// How much of the lock's capacity it takes.
    #[must_use]
    pub fn weight(self) -> u64 {
        match self {
            Self::Exclusive | Self::Owned { .. } | Self::Read => 1,
            Self::Write => EVERYTHING,
            Self::Permits { weight, .. } => u64::from(weight),
        }
    }
}

/// One acquisition: the same value is used for the first attempt, its repeats, the wait and the cancel.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// The lock.
    pub key: LockKey,
    /// This acquisition's proof of ownership.
    pub owner: OwnerToken,
    /// How long the lease shall live.
    pub ttl: Ttl,
    /// The kind of hold.
    pub mode: Mode,
    /// First come, first served over all processes: not past a live queue. Read/write locks and semaphores are always so.
    pub fair: bool,
    /// Enter the store's queue if the lock is busy.
    pub queue: bool,
    /// How many fencing tokens to reserve, at least one: hand-offs inside the process use one each.
    pub tokens: u32,
}

impl AcquireRequest {
    /// Whether this request goes by the queue: a fair one, and every kind but the exclusive.
    #[must_use]
    pub fn is_fair(&self) -> bool {
        self.fair || self.mode != Mode::Exclusive
    }

    /// The lease that a grant of this request is.
    #[must_use]
    pub fn lease(&self) -> LeaseHandle {
        LeaseHandle { key: self.key.clone(), owner: self.owner, ttl: self.ttl, mode: self.mode }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Attempt {
    /// The lock is ours.
    Granted(Grant),
    /// Somebody holds it; nothing of ours is left in the store.
    Busy(Blocked),
    /// Somebody holds it, and this request stands in the store's queue.
    Queued(Blocked),
}

/// How one attempt at several locks ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttemptAll {
    /// All of them are ours: a grant for each request, in order.
    Granted(Vec<Grant>),
    /// Somebody holds one of them; nothing of ours is left in the store.
    Busy {
        /// Which request found its lock held.
        index: usize,
        /// By whom.
        blocked: Blocked,
    },
    /// The store can't take these in one step: nothing was tried, take them one after the other.
    Apart,
}

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// When the command that was granted was handed to the socket, or earlier: the lease's deadline counts from here.
    pub sent: Moment,
    /// The first token of the reserved block.
    pub token: FencingToken,
    /// How many tokens the block has, `token` included; at least one.
    pub tokens: u32,
}

/// Who is in the way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocked {
    /// The holder, as far as the store tells.
    pub holder: Option<Holder>,
}

impl Blocked {
    /// How long the holder's lease still runs.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.holder.as_ref().and_then(|holder| holder.remaining)
    }
}

/// How a wait ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Turn {
    /// Another attempt is worth making.
    Again,
    /// The store handed the lock over.
    Granted(Grant),
}

/// A lease in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseHandle {
    /// The lock.
    pub key: LockKey,
    /// The acquisition that holds it.
    pub owner: OwnerToken,
    /// Its full length.
    pub ttl: Ttl,
    /// The kind of hold.
    pub mode: Mode,
}

/// How one renewal ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Renewal {
    /// The lease runs its full ttl again, counted from `sent` at the earliest.
    Renewed {
        /// When the renewal was handed to the socket, or earlier.
        sent: Moment,
    },
    /// The lease is gone or another's, for certain.
    Gone,
    /// Not known; worth trying again until the deadline.
    Unknown(BackendError),
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Released {
    /// The lease was ours and is given back.
    Confirmed,
    /// The store had no lease of this owner: expired, taken over, or released by an earlier try.
    NotHeld,
}

/// Something about the store's settings that weakens what the lock promises.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// A stable code, such as `EVICTION`.
    pub code: &'static str,
    /// What was found and how to mend it.
    pub text: String,
    /// Whether a strict manager refuses to start.
    pub severe: bool,
}

impl Warning {
    /// A finding.
    #[must_use]
    pub fn new(code: &'static str, text: impl Into<String>, severe: bool) -> Self {
        Self { code, text: text.into(), severe }
    }
}
