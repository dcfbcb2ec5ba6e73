//! What is compared.

mod distlock;
mod etcd;
mod local;
mod postgres;
mod raw;
mod rslock;
mod zookeeper;

use serde::{Deserialize, Serialize};

pub(crate) use self::distlock::{Attribute, Awaited, Dropped, Strict, added_bytes};
pub(crate) use self::etcd::RawEtcd;
pub(crate) use self::local::TokioMutex;
pub(crate) use self::postgres::{RawAdvisory, RawRow};
pub(crate) use self::raw::Raw;
pub(crate) use self::rslock::Rslock;
pub(crate) use self::zookeeper::RawZookeeper;
use crate::job::Job;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// `SET NX PX`, then a compare-and-delete script, over one multiplexed connection: no token, renewal or waiting.
    Raw,
    /// The peer.
    Rslock,
    /// A key made and deleted by transactions, under one lease.
    RawEtcd,
    /// An ephemeral node with a number, a look at the others, and its deletion.
    RawZookeeper,
    /// A row with a deadline, taken by an upsert, given back by an update.
    RawRow,
    /// A session's advisory lock.
    RawAdvisory,
    /// `lock().await`, `release().await`.
    Awaited,
    /// `lock().await`, then the guard is dropped.
    Dropped,
    /// A function with the attribute.
    Attribute,
    /// As `Dropped`, but leases aren't handed on inside the process: every section asks the store.
    Strict,
    /// As `Dropped`, on `memory:`.
    Memory,
    /// As `Attribute`, on `memory:`.
    MemoryAttribute,
    /// `tokio::sync::Mutex`.
    TokioMutex,
    /// A handler without a layer.
    Bare,
    /// A handler without a layer that asks the store once.
    Working,
    /// Behind the idempotency layer on `memory:`; every request has a key of its own.
    Keyed,
    /// The same, requests without a key.
    Keyless,
    /// The same, all requests with one key: one execution, then replays.
    Replayed,
    /// Behind the lock layer on `memory:`.
    Locked,
}

impl Kind {
    /// What the client itself sends. The server counts the commands inside of scripts too, so this is rather too many.
    pub(crate) fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Raw | Self::Rslock => &["set", "eval", "evalsha"],
            _ => &["set", "incr", "incrby", "evalsha"],
        }
    }
}

/// A lock under measurement.
pub(crate) trait Contender: Sized + Send + Sync + 'static {
    fn connect(job: &Job) -> impl Future<Output = anyhow::Result<Self>> + Send;

    /// Runs `body` under the lock of this key.
    fn section<T: Send>(
        &self,
        key: &str,
        body: impl FnOnce() -> T + Send,
    ) -> impl Future<Output = anyhow::Result<T>> + Send;
}

/// A lock that renews what is held.
pub(crate) trait Holder: Contender {
    /// Gives the lock back when dropped.
    type Guard: Send + 'static;

    fn hold(&self, key: String) -> impl Future<Output = anyhow::Result<Self::Guard>> + Send;

    /// For how long the lock is still good without another renewal, if it knows.
    fn remaining(guard: &Self::Guard) -> Option<std::time::Duration>;
}
