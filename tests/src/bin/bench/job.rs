//! One measurement, as a child process is told.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contender::Kind;

/// What is measured, by name.
pub(crate) type Figures = BTreeMap<String, f64>;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) work: Work,
    pub(crate) contender: Kind,
    pub(crate) seconds: f64,
    pub(crate) tasks: usize,
    /// How many leases are held ([`Work::Held`]).
    pub(crate) locks: usize,
    pub(crate) ttl: Duration,
    /// Where to write the sections down, for several processes that have one key.
    pub(crate) log: Option<PathBuf>,
    pub(crate) store: Store,
    pub(crate) url: String,
    /// Which of the processes.
    pub(crate) process: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Work {
    /// One task, 64 keys in turn, every pair timed.
    Alone,
    /// One task, one key, nothing timed but the whole: for what takes nanoseconds.
    Tight,
    /// Every task has a key of its own.
    Distinct,
    /// All tasks have the same key; who followed whom after how long.
    Contend,
    /// The same, counted only.
    TightContend,
    /// Many leases held.
    Held,
    /// Round trips of the bare client.
    RoundTrip,
    /// Requests through tower layers.
    Layer,
    /// Requests over HTTP.
    Http,
    /// What the attribute adds to a future.
    Size,
}

/// Where the locks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Store {
    Redis,
    Etcd,
    ZooKeeper,
    PostgresRow,
    PostgresAdvisory,
}

impl Job {
    pub(crate) fn on(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    pub(crate) fn new(work: Work, contender: Kind) -> Self {
        Self {
            work,
            contender,
            seconds: 1.0,
            tasks: 1,
            locks: 0,
            ttl: Duration::from_secs(30),
            log: None,
            store: Store::Redis,
            url: String::new(),
            process: 0,
        }
    }

    pub(crate) fn tasks(mut self, tasks: usize) -> Self {
        self.tasks = tasks;
        self
    }
}
