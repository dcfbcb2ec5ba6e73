//! What the suites of the Redis store share.
#![allow(dead_code, unreachable_pub, reason = "each suite uses a part")]

use std::{sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, LockKey, OwnerToken, Ttl,
    backend::{
        AcquireRequest, Attempt, Backend, BackendErrorKind, Blocked, Grant, LeaseHandle, Mode,
        redis::{RedisBackend, RedisOptions},
    },
};
use distlock_tests::{
    server::{RedisOptions as ServerOptions, RedisServer},
    wait,
};
use redis::{FromRedisValue, aio::MultiplexedConnection};

pub const LIMIT: Duration = Duration::from_secs(10);

/// A server, a backend on it, and a connection with all rights to look from outside.
pub struct Bench {
    pub server: RedisServer,
    pub backend: Arc<RedisBackend>,
    pub admin: MultiplexedConnection,
}

impl Bench {
    pub async fn start() -> Self {
        Self::with(ServerOptions::new()).await
    }

    pub async fn with(options: ServerOptions) -> Self {
        let server = RedisServer::start(options).unwrap();
        let backend = open(&server.url());
        let admin = server.admin().await.unwrap();
        Self { server, backend, admin }
    }

    /// Another manager on the same server.
    pub fn other(&self) -> Arc<RedisBackend> {
        open(&self.server.url())
    }

    /// Makes the one counter of tokens something that none can be drawn from, in each way; what becomes of it is for `check` to see, with what
    /// an attempt must say. The counter is lost in the end.
    pub async fn break_the_counter(&self, check: impl AsyncFn(&str, BackendErrorKind)) {
        let counter = self.ask::<Vec<String>>("KEYS distlock!*!f").await.remove(0);
        for (value, kind) in [
            (format!("HSET {counter} a b"), BackendErrorKind::KeyConflict),
            (format!("SET {counter} text"), BackendErrorKind::Script),
            (format!("SET {counter} 9100000000000000"), BackendErrorKind::Script),
        ] {
            let _: i64 = self.ask(&format!("DEL {counter}")).await;
            let _: redis::Value = self.ask(&value).await;
            check(&value, kind).await;
        }
        let _: i64 = self.ask(&format!("DEL {counter}")).await;
    }

    /// A command sent as administrator, its words split at blanks.
    pub async fn ask<T: FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.admin.clone()).await.unwrap()
    }
}

pub fn open(url: &str) -> Arc<RedisBackend> {
    RedisBackend::open(&RedisOptions::from_url(url).unwrap(), Clock::System).unwrap()
}

/// Runs the backend's background work until dropped, as the engine does.
pub struct Serving(tokio::task::JoinHandle<()>);

impl Serving {
    pub fn start(backend: &Arc<RedisBackend>) -> Self {
        let backend = Arc::clone(backend);
        Self(tokio::spawn(async move { backend.serve().await }))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Until the manager of this backend is told by push: its waiters name a channel from then on.
pub async fn listening(bench: &Bench, backend: &RedisBackend) {
    let key = format!("probe-{}", OwnerToken::random().unwrap().to_hex());
    let _: String = bench.ask(&format!("SET distlock:{key} probe PX 60000")).await;
    let waiters = format!("KEYS distlock!*!w:distlock:{key}");
    wait::until("a manager that listens", LIMIT, async || {
        let probe = waiting(&key, 1_000);
        queued(backend, &probe).await;
        let waiters = bench.ask::<Vec<String>>(&waiters).await.remove(0);
        let entries: Vec<String> = bench.ask(&format!("HVALS {waiters}")).await;
        backend.cancel(&probe).await.unwrap();
        entries[0].contains("!c:").then_some(())
    })
    .await
    .unwrap();
    let _: i64 = bench.ask(&format!("DEL distlock:{key}")).await;
}

pub fn request(key: &str, ttl_ms: u64) -> AcquireRequest {
    AcquireRequest {
        key: LockKey::new(key).unwrap(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(Duration::from_millis(ttl_ms)).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: false,
        tokens: 1,
    }
}

pub fn waiting(key: &str, ttl_ms: u64) -> AcquireRequest {
    AcquireRequest { queue: true, ..request(key, ttl_ms) }
}

pub async fn granted(backend: &RedisBackend, request: &AcquireRequest) -> Grant {
    match backend.try_acquire(request).await.unwrap() {
        Attempt::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

pub async fn held(backend: &RedisBackend, key: &str, ttl_ms: u64) -> (AcquireRequest, LeaseHandle, Grant) {
    let request = request(key, ttl_ms);
    let grant = granted(backend, &request).await;
    let lease = request.lease();
    (request, lease, grant)
}

pub async fn busy(backend: &RedisBackend, request: &AcquireRequest) -> Blocked {
    match backend.try_acquire(request).await.unwrap() {
        Attempt::Busy(blocked) => blocked,
        other => panic!("not busy: {other:?}"),
    }
}

pub async fn queued(backend: &RedisBackend, request: &AcquireRequest) -> Blocked {
    match backend.try_acquire(request).await.unwrap() {
        Attempt::Queued(blocked) => blocked,
        other => panic!("not queued: {other:?}"),
    }
}

/// Waits like the engine: asks, waits for the turn, asks again.
pub async fn acquired(backend: &RedisBackend, request: &AcquireRequest) -> Grant {
    let wait = async {
        loop {
            let blocked = match backend.try_acquire(request).await.unwrap() {
                Attempt::Granted(grant) => return grant,
                Attempt::Busy(blocked) | Attempt::Queued(blocked) => blocked,
                other => panic!("unknown attempt {other:?}"),
            };
            backend.turn(request, &blocked).await.unwrap();
        }
    };
    tokio::time::timeout(LIMIT, wait).await.expect("acquired in time")
}
