//! What a look at a lock finds.

use std::time::Duration;

use super::request::{Kind, Mode};
use crate::key::LockKey;
use crate::token::{FencingToken, OwnerToken};

/// The state of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockState {
    /// The lock.
    pub key: LockKey,
    /// Who holds it; `None` if it is free. Of several, the one whose lease ends last unless it is renewed.
    pub holder: Option<HolderState>,
    /// All who hold it, those whose leases end last first: at most [`MOST_HOLDERS`](Self::MOST_HOLDERS), in a list of locks
    /// [`MOST_LISTED`](Self::MOST_LISTED).
    pub holders: Vec<HolderState>,
    /// How many holds there are, also those that aren't among `holders`.
    pub holder_count: u64,
    /// What kind of lock it is, and of a semaphore the limit; `None` if nobody holds it or waits.
    pub kind: Option<Kind>,
    /// Of a semaphore, how many of its permits are taken: more than the limit, where that was lowered meanwhile.
    pub permits_in_use: Option<u64>,
    /// How many processes (or tasks, where the store queues tasks) wait in the store's queue.
    pub waiters: u64,
}

impl LockState {
    /// How many of the holders are shown when one lock is looked at.
    pub const MOST_HOLDERS: usize = 100;
    /// How many of the holders are shown of each lock in a list.
    pub const MOST_LISTED: usize = 10;

    /// The state of an exclusive lock, or of one that nobody holds, as a store found it.
    #[must_use]
    pub fn new(key: LockKey, holder: Option<HolderState>, waiters: u64) -> Self {
        let holder = holder.map(|holder| holder.holding(Mode::Exclusive));
        Self {
            key,
            holders: holder.iter().cloned().collect(),
            holder_count: u64::from(holder.is_some()),
            kind: holder.is_some().then_some(Kind::Exclusive),
            holder,
            permits_in_use: None,
            waiters,
        }
    }

    /// The state of a lock of which several may have a share: the first of its `count` holders, those whose leases end last first.
    #[must_use]
    pub fn shared(key: LockKey, kind: Kind, holders: Vec<HolderState>, count: u64, waiters: u64) -> Self {
        Self {
            key,
            holder: holders.first().cloned(),
            holders,
            holder_count: count,
            kind: Some(kind),
            permits_in_use: None,
            waiters,
        }
    }

    /// The same, of a semaphore with so many of its permits taken.
    #[must_use]
    pub fn with_permits_in_use(mut self, permits: u64) -> Self {
        self.permits_in_use = Some(permits);
        self
    }
}

/// The holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderState {
    /// Who, for people (by default `host:pid`); `None` for a client that isn't distlock.
    pub label: Option<String>,
    /// How long the lease still runs unless renewed; `None` if it never expires.
    pub remaining: Option<Duration>,
    /// The hold's fencing token, where it is known (the store need not keep it).
    pub token: Option<FencingToken>,
    /// How many guards share the hold, where it is held by this process, as `Guard::hold_count` has it. Of an explicit owner: how
    /// many holds it has in all processes, whatever the number of guards that share each.
    pub hold_count: Option<u32>,
    /// How it is held: for reading or writing, or how many permits.
    pub mode: Option<Mode>,
    /// The owner token, where it is one of ours.
    pub owner: Option<OwnerToken>,
}

impl HolderState {
    /// A holder as a store found it.
    #[must_use]
    pub fn new(label: Option<String>, remaining: Option<Duration>, owner: Option<OwnerToken>) -> Self {
        Self { label, remaining, token: None, hold_count: None, mode: None, owner }
    }

    /// The same, of an explicit owner that has so many holds.
    #[must_use]
    pub fn with_holds(mut self, count: u32) -> Self {
        self.hold_count = Some(count);
        self
    }

    /// The same, holding it so.
    #[must_use]
    pub fn holding(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }
}
