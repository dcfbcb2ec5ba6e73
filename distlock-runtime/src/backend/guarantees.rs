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

    const fn bit(self) -> u32 {
        1 << self as u32
    }
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
    /// One bit a capability.
    lacks: u32,
}

impl Guarantees {
    /// One promise a fault, in the order of [`Fault::ALL`].
    #[must_use]
    pub const fn new(store: &'static str, promises: [Promise; Fault::ALL.len()]) -> Self {
        Self { store, promises, lacks: 0 }
    }

    /// No promise under any fault, and nothing beyond exclusive locks: for a store of your own, which adds what it keeps with
    /// [`promise`](Self::promise) and [`can_also`](Self::can_also). Faults and capabilities that a later version knows are then neither
    /// promised nor claimed before somebody has thought about them.
    ///
    /// ```
    /// # mod distlock { pub use distlock_runtime::{Fault, Guarantees, Promise}; pub mod backend { pub use distlock_runtime::backend::*; } }
    /// use distlock::backend::Capability;
    /// use distlock::{Fault, Guarantees, Promise};
    ///
    /// const MINE: Guarantees = Guarantees::none("files of one host")
    ///     .promise(Fault::HolderPausedFenced, Promise::Fenced)
    ///     .promise(Fault::Partition, Promise::NotApplicable)
    ///     .can_also(Capability::ReadWrite);
    /// assert_eq!(MINE.under(Fault::Deletion), Promise::Violated);
    /// assert!(MINE.can(Capability::ReadWrite) && !MINE.can(Capability::Queue));
    /// ```
    #[must_use]
    pub const fn none(store: &'static str) -> Self {
        Self { store, promises: [Promise::Violated; Fault::ALL.len()], lacks: u32::MAX }
    }

    /// The same, with this promise under this fault.
    #[must_use]
    pub const fn promise(mut self, fault: Fault, promise: Promise) -> Self {
        self.promises[fault as usize] = promise;
        self
    }

    /// The same, of a store that can do this too.
    #[must_use]
    pub const fn can_also(mut self, capability: Capability) -> Self {
        self.lacks &= !capability.bit();
        self
    }

    /// The store can't do these; asked for one, it says `UNSUPPORTED`.
    #[must_use]
    pub const fn without(mut self, lacks: &[Capability]) -> Self {
        self.lacks = 0;
        let mut index = 0;
        while index < lacks.len() {
            self.lacks |= lacks[index].bit();
            index += 1;
        }
        self
    }

    /// Whether the store can do this.
    #[must_use]
    pub const fn can(&self, capability: Capability) -> bool {
        self.lacks & capability.bit() == 0
    }

    /// What holds under this fault.
    #[must_use]
    pub const fn under(&self, fault: Fault) -> Promise {
        self.promises[fault as usize]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_stand_in_the_order_of_the_faults() {
        for (index, fault) in Fault::ALL.iter().enumerate() {
            let store = Guarantees::none("store").promise(*fault, Promise::Fenced);
            assert_eq!((*fault as usize, store.promises[index]), (index, Promise::Fenced));
            let others = Fault::ALL.iter().filter(|other| *other != fault);
            assert!(others.into_iter().all(|other| store.under(*other) == Promise::Violated));
        }
    }

    #[test]
    fn what_a_store_lacks_is_told_either_way() {
        let all = Guarantees::new("store", [Promise::Holds; Fault::ALL.len()]);
        for capability in Capability::ALL {
            assert!(all.can(*capability) && !Guarantees::none("store").can(*capability));
            let (without, only) =
                (all.clone().without(&[*capability]), Guarantees::none("store").can_also(*capability));
            for other in Capability::ALL {
                assert_eq!(
                    (without.can(*other), only.can(*other)),
                    (other != capability, other == capability)
                );
            }
        }
    }
}
