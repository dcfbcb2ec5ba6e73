//! A lock on a raw key excludes other libraries' locks on the same key and is excluded by them: redis-py from PyPI, node-redlock from
//! npm, rslock from crates.io. What isn't Rust runs as a program that is told its steps line by line.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use distlock::{ErrorKind, LockKey, LockManager};
use distlock_tests::{
    procs::Worker,
    server::{RedisOptions, RedisServer},
    wait,
};
use redis::{AsyncTypedCommands, aio::MultiplexedConnection};

const KEY: &str = "stock:42";
const LIMIT: Duration = Duration::from_secs(60);
const TURNS: u32 = 20;

/// Another library's lock on the key.
enum Peer {
    Program(Worker),
    Rslock(rslock::LockManager, Mutex<Option<rslock::Lock>>),
}

#[derive(Clone, Copy, Debug)]
enum Library {
    RedisPy,
    NodeRedlock,
    Rslock,
}

impl Peer {
    async fn start(library: Library, server: &RedisServer) -> Self {
        let port = server.port().to_string();
        let (program, script) = match library {
            Library::RedisPy => (python(), "redis_py.py"),
            Library::NodeRedlock => (PathBuf::from("node"), "node_redlock.js"),
            Library::Rslock => {
                let mut locks = rslock::LockManager::new(vec![server.url()]);
                locks.set_retry(1, Duration::ZERO);
                return Self::Rslock(locks, Mutex::default());
            }
        };
        if matches!(library, Library::NodeRedlock) {
            check_node();
        }
        // node looks for packages beside the script and above it.
        let copy = cache().join(script);
        fs::copy(sources().join(script), &copy).unwrap();
        let worker = Worker::spawn(program, [copy.as_os_str(), port.as_ref(), KEY.as_ref()]).unwrap();
        worker.wait_line("its start", LIMIT, |line| (line == "ready").then_some(())).await.unwrap();
        Self::Program(worker)
    }

    /// Whether a single try had it.
    async fn lock(&self, ttl: Duration) -> bool {
        match self {
            Self::Program(worker) => ask(worker, &format!("lock {}", ttl.as_millis())).await == "held",
            Self::Rslock(locks, held) => {
                let lock = locks.lock(KEY, ttl).await;
                let had = lock.is_ok();
                *held.lock().unwrap() = lock.ok();
                had
            }
        }
    }

    /// Gives back what it took; whether it found it still its own. rslock doesn't say.
    async fn unlock(&self) -> Option<bool> {
        match self {
            Self::Program(worker) => Some(ask(worker, "unlock").await == "released"),
            Self::Rslock(_, held) => {
                let lock = held.lock().unwrap().take().unwrap();
                lock.release().await;
                None
            }
        }
    }

    /// Counts under its lock.
    async fn count(&self, mut redis: MultiplexedConnection) {
        match self {
            Self::Program(worker) => assert_eq!(ask(worker, &format!("count {TURNS}")).await, "counted"),
            Self::Rslock(locks, _) => {
                for _ in 0..TURNS {
                    let lock = loop {
                        match locks.lock(KEY, Duration::from_secs(30)).await {
                            Ok(lock) => break lock,
                            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                        }
                    };
                    count_on(&mut redis).await;
                    lock.release().await;
                }
            }
        }
    }
}

async fn ask(worker: &Worker, line: &str) -> String {
    let before = worker.lines().len();
    worker.send(line).unwrap();
    let answer = async || worker.lines().get(before).cloned();
    wait::until("the library's answer", LIMIT, answer).await.unwrap()
}

/// Loses counts if two do it at once.
async fn count_on(redis: &mut MultiplexedConnection) {
    let seen = redis.get_int("counter").await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(2)).await;
    redis.set("counter", seen + 1).await.unwrap();
}

struct Bench {
    server: RedisServer,
    locks: LockManager,
    redis: MultiplexedConnection,
}

impl Bench {
    async fn start() -> Self {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let redis =
            redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        Self { server, locks, redis }
    }

    async fn value(&self) -> Option<Vec<u8>> {
        redis::cmd("GET").arg(KEY).query_async(&mut self.redis.clone()).await.unwrap()
    }
}

fn raw() -> LockKey {
    LockKey::raw(KEY).unwrap()
}

/// Every step of two clients that share a key, in both directions.
async fn shares_the_key(library: Library) {
    let bench = Bench::start().await;
    let peer = Peer::start(library, &bench.server).await;
    let mine = bench.locks.mutex(raw()).ttl(Duration::from_secs(30));

    // Ours keeps it out.
    let guard = mine.clone().try_lock().await.unwrap();
    assert!(!peer.lock(Duration::from_secs(30)).await, "{library:?} took what was held");
    guard.release().await.unwrap();

    // Its keeps us out, also as the holder that we can see; and we get it soon after.
    assert!(peer.lock(Duration::from_secs(30)).await, "{library:?} didn't get a free lock");
    let busy = mine.clone().try_lock().await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    let holder = busy.holder().unwrap();
    assert!(holder.label.is_none() && holder.remaining.unwrap() > Duration::from_secs(25), "{holder:?}");
    let waiting = tokio::spawn(mine.clone().wait(LIMIT).lock());
    wait::until("our waiter", LIMIT, async || {
        let state = bench.locks.inspect(raw()).await.ok()?;
        (state.waiters > 0).then_some(())
    })
    .await
    .unwrap();
    assert_ne!(peer.unlock().await, Some(false));
    let guard = waiting.await.unwrap().unwrap();
    guard.release().await.unwrap();

    // Its late release leaves our lock alone.
    assert!(peer.lock(Duration::from_millis(200)).await);
    let guard = mine.clone().wait(LIMIT).lock().await.unwrap();
    let value = bench.value().await.unwrap();
    assert_ne!(peer.unlock().await, Some(true), "{library:?} released our lock");
    assert_eq!(bench.value().await, Some(value));
    assert!(guard.is_valid());

    // Our late release leaves its lock alone.
    bench.redis.clone().del(KEY).await.unwrap();
    assert!(peer.lock(Duration::from_secs(30)).await);
    let value = bench.value().await.unwrap();
    let late = guard.release().await.unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::NotHeld | ErrorKind::Lost), "{late}");
    assert_eq!(bench.value().await, Some(value), "we released {library:?}'s lock");
    assert_ne!(peer.unlock().await, Some(false));
    assert_eq!(bench.value().await, None);
}

#[tokio::test]
async fn interop_redis_py_shares_the_key() {
    shares_the_key(Library::RedisPy).await;
}

#[tokio::test]
async fn interop_node_redlock_shares_the_key() {
    shares_the_key(Library::NodeRedlock).await;
}

#[tokio::test]
async fn interop_rslock_shares_the_key() {
    shares_the_key(Library::Rslock).await;
}

/// All of them at once, each with turns of a count that two at a time would spoil.
#[tokio::test]
async fn interop_no_count_is_lost_among_four_libraries() {
    let bench = Bench::start().await;
    let mut redis = bench.redis.clone();
    redis.set("counter", 0).await.unwrap();
    let python = Peer::start(Library::RedisPy, &bench.server).await;
    let node = Peer::start(Library::NodeRedlock, &bench.server).await;
    let rslock = Peer::start(Library::Rslock, &bench.server).await;
    let mut own = redis.clone();
    let ours = async {
        for _ in 0..TURNS {
            let guard = bench.locks.mutex(raw()).wait(LIMIT).lock().await.unwrap();
            count_on(&mut own).await;
            guard.release().await.unwrap();
        }
    };
    tokio::join!(python.count(redis.clone()), node.count(redis.clone()), rslock.count(redis.clone()), ours);
    assert_eq!(redis.get_int("counter").await.unwrap(), Some(isize::try_from(4 * TURNS).unwrap()));
}

/// The packages' folder, which `scripts/interop` fills.
fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    // The test target's own folder lies in the target folder.
    CACHE.get_or_init(|| Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("interop"))
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("interop")
}

fn python() -> PathBuf {
    let python = cache().join("python/bin/python");
    assert!(python.exists(), "redis-py is missing in {}: run scripts/interop", cache().display());
    python
}

fn check_node() {
    let node = Command::new("node").arg("--version").output();
    let there = node.is_ok_and(|node| node.status.success()) && cache().join("node_modules/redlock").exists();
    assert!(there, "node or node-redlock is missing in {}: run scripts/interop", cache().display());
}
