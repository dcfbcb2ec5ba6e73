//! Work that runs once for each key, on memory, on Redis, and on Postgres: `LockManager::idempotent` and `#[idempotent]`.

mod attribute;
mod calls;
mod detached;
mod failures;
mod operators;
mod packing;
mod quotas;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use distlock::LockManager;
use distlock_tests::server::{RedisOptions, RedisServer, SharedPostgres};
use distlock_tests::wait;
use tokio::sync::Notify;

/// No test waits longer than this for anything.
const LIMIT: Duration = Duration::from_secs(20);

/// Where records are kept.
enum Store {
    Memory(String),
    Redis(Box<RedisServer>),
    /// A namespace of its own.
    Postgres(String),
}

impl Store {
    fn memory() -> Self {
        Self::Memory(format!("memory:idempotent-{:016x}", fastrand::u64(..)))
    }

    fn redis() -> Self {
        Self::Redis(Box::new(RedisServer::start(RedisOptions::new()).expect("redis-server starts")))
    }

    fn postgres() -> Self {
        let server = SharedPostgres::attach().expect("postgres starts");
        Self::Postgres(format!("{}?namespace=n{:016x}", server.url(), fastrand::u64(..)))
    }

    fn url(&self) -> String {
        match self {
            Self::Memory(url) | Self::Postgres(url) => url.clone(),
            Self::Redis(server) => server.url(),
        }
    }

    /// A manager of its own, as another process would have.
    async fn manager(&self) -> LockManager {
        LockManager::connect(&self.url()).await.expect("the store is up")
    }
}

/// Runs each of these `async fn(Store)` on every store.
#[macro_export]
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case($crate::Store::memory()).await; })*
        }
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case($crate::Store::redis()).await; })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() { super::$case($crate::Store::postgres()).await; })*
        }
    };
}

/// Counts its runs; a gated one goes on when told.
#[derive(Clone, Debug, Default)]
struct Work {
    runs: Arc<AtomicUsize>,
    go: Arc<Notify>,
}

impl Work {
    fn count(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn next(&self) -> usize {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    async fn gated(&self) -> usize {
        let run = self.next();
        self.go.notified().await;
        run
    }

    async fn reached(&self, runs: usize) {
        wait::until("the work runs", LIMIT, async || (self.count() >= runs).then_some(())).await.unwrap();
    }
}
