//! What a store promises under which fault: the one source of the table in README and rustdoc.

use std::fmt;

/// A fault that a promise is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The holder pauses for longer than its ttl, and the resource compares nothing.
    HolderPausedUnchecked,
    /// The holder pauses for longer than its ttl, and the resource compares the fencing token.
    HolderPausedFenced,
    /// Client and server can't reach each other.
    Partition,
    /// The server is killed and restarted with its append-only file or log.
    RestartPersistent,
    /// The server restarts without persistence.
    RestartEmpty,
    /// Power is lost within the store's flush period.
    PowerLoss,
    /// A replica takes over.
    Failover,
    /// The server's wall clock jumps forward.
    ClockJump,
    /// Eviction, a flush, or a deletion by others.
    Deletion,
}

impl Fault {
    /// Every fault, in the table's order.
    pub const ALL: &'static [Self] = &[
        Self::HolderPausedUnchecked,
        Self::HolderPausedFenced,
        Self::Partition,
        Self::RestartPersistent,
        Self::RestartEmpty,
        Self::PowerLoss,
        Self::Failover,
        Self::ClockJump,
        Self::Deletion,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HolderPausedUnchecked => "holder paused for longer than the ttl, resource compares nothing",
            Self::HolderPausedFenced => "holder paused for longer than the ttl, resource compares the token",
            Self::Partition => "partition between client and server",
            Self::RestartPersistent => "server killed and restarted, append-only file on",
            Self::RestartEmpty => "restart without persistence",
            Self::PowerLoss => "power loss, flushed every second",
            Self::Failover => "failover to a replica",
            Self::ClockJump => "server's wall clock jumps forward",
            Self::Deletion => "eviction, flush, or deletion by others",
        })
    }
}

/// What holds under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Promise {
    /// Two holders never overlap.
    Holds,
    /// Two holders may overlap in time, but a resource that compares the fencing token stays safe.
    Fenced,
    /// Two holders may overlap.
    Violated,
    /// The fault can't happen to this store.
    NotApplicable,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "Y",
            Self::Fenced => "F",
            Self::Violated => "N",
            Self::NotApplicable => "-",
        })
    }
}

/// What not every store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Capability {
    /// Waiters stand in line in the store, over processes, and are told when it is their turn.
    Queue,
    /// Fair locks: first come, first served over processes.
    Fair,
    /// Read/write locks.
    ReadWrite,
    /// Semaphores.
    Semaphore,
    /// Explicit owners, who enter a lock from wherever they work.
    Owners,
    /// Count-down latches.
    Latches,
    /// Circles of waiting tasks over processes are found, if the manager looks for them.
    Circles,
    /// Idempotency records.
    Records,
}

impl Capability {
    /// Every one, in the table's order.
    pub const ALL: &'static [Self] = &[
        Self::Queue,
        Self::Fair,
        Self::ReadWrite,
        Self::Semaphore,
        Self::Owners,
        Self::Latches,
        Self::Circles,
        Self::Records,
    ];
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "waiting in line over processes",
            Self::Fair => "fair locks",
            Self::ReadWrite => "read/write locks",
            Self::Semaphore => "semaphores",
            Self::Owners => "explicit owners",
            Self::Latches => "count-down latches",
            Self::Circles => "circles of waiting tasks over processes",
            Self::Records => "idempotency records",
        })
    }
}

/// A store's promises, and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// The store and its topology, as the table's column head.
    pub store: &'static str,
    promises: [Promise; Fault::ALL.len()],
    lacks: &'static [Capability],
}

impl Guarantees {
    /// One promise a fault, in the order of [`Fault::ALL`].
    #[must_use]
    pub const fn new(store: &'static str, promises: [Promise; Fault::ALL.len()]) -> Self {
        Self { store, promises, lacks: &[] }
    }

    /// The store can't do these; asked for one, it says `UNSUPPORTED`.
    #[must_use]
    pub const fn without(mut self, lacks: &'static [Capability]) -> Self {
        self.lacks = lacks;
        self
    }

    /// Whether the store can do this.
    #[must_use]
    pub fn can(&self, capability: Capability) -> bool {
        !self.lacks.contains(&capability)
    }

    /// What holds under this fault.
    #[must_use]
    pub fn under(&self, fault: Fault) -> Promise {
        let index = Fault::ALL.iter().position(|other| *other == fault).expect("every fault is in ALL");
        self.promises[index]
    }

    /// The Markdown table of several stores. A single one's is also its `Display`.
    #[must_use]
    pub fn table(stores: &[Self]) -> String {
        let mut text = String::from("| fault |");
        for store in stores {
            text.push_str(&format!(" {} |", store.store));
        }
        text.push_str("\n|---|");
        text.push_str(&"---|".repeat(stores.len()));
        for fault in Fault::ALL {
            text.push_str(&format!("\n| {fault} |"));
            for store in stores {
                text.push_str(&format!(" {} |", store.under(*fault)));
            }
        }
        text.push('\n');
        text
    }

    /// The Markdown table of what several stores can do.
    #[must_use]
    pub fn capabilities(stores: &[Self]) -> String {
        let mut text = String::from("| can do |");
        for store in stores {
            text.push_str(&format!(" {} |", store.store));
        }
        text.push_str("\n|---|");
        text.push_str(&"---|".repeat(stores.len()));
        for capability in Capability::ALL {
            text.push_str(&format!("\n| {capability} |"));
            for store in stores {
                text.push_str(if store.can(*capability) { " yes |" } else { " no |" });
            }
        }
        text.push('\n');
        text
    }
}

impl fmt::Display for Guarantees {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::table(std::slice::from_ref(self)).trim_end())
    }
}
