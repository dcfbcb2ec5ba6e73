//! The faults of the table of guarantees that hit the servers: where the table says that two may hold a lock they do, and what a
//! resource has of comparing tokens; where it says that they never do, they don't.
//!
//! Failovers are in `sentinel` and `cluster` (a primary that is killed is replaced there before it is back), paused holders in `fault_paused_holder`, partitions in `fault_sweep`.

use std::{cell::RefCell, fs, path::PathBuf, slice::from_ref, time::Duration};

use distlock::{Fault, FencingToken, LockManager, Promise};
use distlock_tests::{
    server::{ClusterGroup, RedisOptions, RedisServer, RedlockNodes, SentinelGroup},
    wait,
};

const LIMIT: Duration = Duration::from_secs(20);
/// The next renewal, by which a holder would learn of its loss, is far away.
const TTL: Duration = Duration::from_secs(60);

/// What came of a fault.
#[derive(Debug)]
struct Verdict {
    first: FencingToken,
    /// Of the rival, if it got the lock while the first holder believed with good reason to have it.
    second: Option<FencingToken>,
    promises: distlock::Guarantees,
}

impl Verdict {
    /// A resource that compares tokens takes nothing from the first holder once it has heard of the second.
    fn is_fenced(&self) -> bool {
        self.second.is_none_or(|second| second > self.first)
    }

    fn agrees_with(&self, fault: Fault) -> &Self {
        let expected = if self.second.is_some() { Promise::Violated } else { Promise::Holds };
        assert_eq!(self.promises.under(fault), expected, "{fault}: {self:?}");
        self
    }
}

/// One holds a lock, something `happens` to the servers, a rival tries for it. `before`: right before the first one's grant.
async fn after(url: &str, before: impl AsyncFnOnce(), happens: impl AsyncFnOnce()) -> Verdict {
    let (locks, rival) = (LockManager::connect(url).await.unwrap(), LockManager::connect(url).await.unwrap());
    for _ in 0..3 {
        locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    }
    before().await;
    let guard = locks.mutex("k").ttl(TTL).lock().await.unwrap();
    assert_eq!(rival.mutex("k").try_lock().await.unwrap_err().code(), "BUSY");
    happens().await;
    let tried = async || match rival.mutex("k").ttl(TTL).try_lock().await {
        Ok(second) => Some(Some(second)),
        Err(error) if error.is_busy() => Some(None),
        Err(_) => None,
    };
    let second = wait::until("an answer", LIMIT, tried).await.unwrap();
    assert!(guard.is_valid(), "the first holder can't know yet");
    let promises = locks.guarantees();
    Verdict { first: guard.fencing_token(), second: second.map(|guard| guard.fencing_token()), promises }
}

async fn happens_to(url: &str, servers: &[RedisServer], what: impl AsyncFn(&RedisServer)) -> Verdict {
    let each = async || {
        for server in servers {
            what(server).await;
        }
    };
    after(url, async || (), each).await
}

/// What a server keeps through a power cut: the bytes that were on disk by then. `kill` alone loses nothing, the kernel has the rest.
fn log_of(server: &RedisServer) -> PathBuf {
    let folder = fs::read_dir(server.folder().join("appendonlydir")).unwrap();
    let mut files = folder.map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(".incr.aof")).unwrap()
}

/// The power goes; what was written since `before` wasn't flushed yet.
async fn power_loss(url: &str, servers: &[RedisServer]) -> Verdict {
    let flushed = RefCell::new(Vec::new());
    let lengths = async || {
        // While the disk is busy the server holds back what it writes, the last release among it.
        for server in servers {
            let written = async || {
                let mut info = redis::cmd("INFO");
                let mut admin = server.admin().await.unwrap();
                let info: String = info.arg("persistence").query_async(&mut admin).await.unwrap();
                info.contains("aof_buffer_length:0").then_some(())
            };
            wait::until("all to be written so far", LIMIT, written).await.unwrap();
        }
        let length = |server| fs::metadata(log_of(server)).unwrap().len();
        flushed.replace(servers.iter().map(length).collect());
    };
    let cut = async || {
        for (server, length) in servers.iter().zip(flushed.take()) {
            server.kill().unwrap();
            fs::OpenOptions::new().write(true).open(log_of(server)).unwrap().set_len(length).unwrap();
            server.restart().unwrap();
        }
    };
    after(url, lengths, cut).await
}

async fn restart(server: &RedisServer) {
    server.restart().unwrap();
}

async fn evict_all(server: &RedisServer) {
    let mut admin = server.admin().await.unwrap();
    let mut set = async |name: &str, value: &str| {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec_async(&mut admin).await.unwrap();
    };
    set("maxmemory-policy", "allkeys-random").await;
    set("maxmemory", "1").await;
    let empty = async || server.keys().await.unwrap().is_empty().then_some(());
    wait::until("everything to be evicted", LIMIT, empty).await.unwrap();
    set("maxmemory", "0").await;
}

fn aof() -> RedisOptions {
    RedisOptions::new().aof()
}

#[tokio::test]
async fn fault_one_server_under_every_fault_is_as_the_table_says() {
    let server = || RedisServer::start(RedisOptions::new()).unwrap();
    let one = server();
    let emptied = happens_to(&one.url(), &[one], restart).await;
    assert!(emptied.agrees_with(Fault::RestartEmpty).is_fenced(), "{emptied:?}");

    let one = RedisServer::start(aof().config("appendfsync always")).unwrap();
    happens_to(&one.url(), &[one], restart).await.agrees_with(Fault::RestartPersistent);

    let one = server();
    let evicted = happens_to(&one.url(), &[one], evict_all).await;
    assert!(evicted.agrees_with(Fault::Deletion).is_fenced(), "{evicted:?}");
    let one = server();
    let flushed = happens_to(&one.url(), &[one], async |server| server.flush().await.unwrap()).await;
    assert!(flushed.agrees_with(Fault::Deletion).is_fenced(), "{flushed:?}");

    let one = RedisServer::start(RedisOptions::new().movable_clock()).unwrap();
    let jumped = happens_to(&one.url(), &[one], async |server| server.shift_clock(3_600)).await;
    assert!(jumped.agrees_with(Fault::ClockJump).is_fenced(), "{jumped:?}");
}

/// The counter of tokens goes back too, so the table's N is meant: not even the token helps. Drawn above the clock it does.
#[tokio::test]
async fn fault_a_power_loss_takes_the_counter_along_unless_tokens_lie_above_the_clock() {
    let one = RedisServer::start(aof()).unwrap();
    let lost = power_loss(&one.url(), from_ref(&one)).await;
    assert!(!lost.agrees_with(Fault::PowerLoss).is_fenced(), "{lost:?}");
    let one = RedisServer::start(aof()).unwrap();
    let url = format!("{}?strict_failover=on", one.url());
    let lost = power_loss(&url, from_ref(&one)).await;
    assert!(lost.agrees_with(Fault::PowerLoss).is_fenced(), "{lost:?}");
}

/// Leases last longer then, nothing else.
#[tokio::test]
async fn fault_a_clock_that_goes_back_ends_no_lease() {
    let one = RedisServer::start(RedisOptions::new().movable_clock()).unwrap();
    let back = happens_to(&one.url(), &[one], async |server| server.shift_clock(-3_600)).await;
    assert!(back.second.is_none(), "{back:?}");
}

/// A primary behind Sentinels and one of a Cluster, at which no replica takes over: as one server, and tokens grow whatever it has lost.
async fn in_a_group(options: RedisOptions, fault: Fault, what: impl AsyncFn(&str, &RedisServer) -> Verdict) {
    let start = |options: RedisOptions| {
        let cluster = ClusterGroup::start_with(1, 0, options.clone());
        (SentinelGroup::start_with(0, 1, options, RedisOptions::new()), cluster)
    };
    let (sentinels, cluster) = tokio::task::spawn_blocking(move || start(options)).await.unwrap();
    for (url, server) in
        [(sentinels.url(""), &sentinels.servers()[0]), (cluster.url(""), &cluster.servers()[0])]
    {
        let verdict = what(&url, server).await;
        assert!(verdict.agrees_with(fault).is_fenced(), "{fault}, {url}: {verdict:?}");
    }
}

#[tokio::test]
async fn fault_sentinel_and_cluster_under_every_fault_are_as_the_table_says() {
    let emptied = in_a_group(RedisOptions::new(), Fault::RestartEmpty, async |url, server| {
        happens_to(url, from_ref(server), restart).await
    });
    let flushed = in_a_group(RedisOptions::new(), Fault::Deletion, async |url, server| {
        happens_to(url, from_ref(server), async |server| server.flush().await.unwrap()).await
    });
    let evicted = in_a_group(RedisOptions::new(), Fault::Deletion, async |url, server| {
        happens_to(url, from_ref(server), evict_all).await
    });
    let jumped = in_a_group(RedisOptions::new().movable_clock(), Fault::ClockJump, async |url, server| {
        happens_to(url, from_ref(server), async |server| server.shift_clock(3_600)).await
    });
    let lost =
        in_a_group(aof(), Fault::PowerLoss, async |url, server| power_loss(url, from_ref(server)).await);
    tokio::join!(emptied, flushed, evicted, jumped, lost);
}

/// What a fault of a majority does, and that a minority does nothing.
async fn redlock(options: RedisOptions, fault: Fault, what: impl AsyncFn(&RedisServer)) {
    for hit in [2, 1] {
        let nodes = RedlockNodes::start_with(3, options.clone());
        let verdict = happens_to(&nodes.url("node_timeout=1s"), &nodes.nodes()[..hit], &what).await;
        if hit == 1 {
            assert!(verdict.second.is_none(), "{fault} of a minority: {verdict:?}");
        } else {
            assert!(verdict.agrees_with(fault).is_fenced(), "{fault}: {verdict:?}");
        }
    }
}

#[tokio::test]
async fn fault_redlock_under_every_fault_is_as_the_table_says() {
    redlock(aof().config("appendfsync always"), Fault::RestartPersistent, restart).await;
    redlock(RedisOptions::new(), Fault::RestartEmpty, restart).await;
    redlock(RedisOptions::new(), Fault::Deletion, async |server| server.flush().await.unwrap()).await;
    redlock(RedisOptions::new(), Fault::Deletion, evict_all).await;
    redlock(RedisOptions::new().movable_clock(), Fault::ClockJump, async |server| server.shift_clock(3_600))
        .await;
    for hit in [2, 1] {
        let nodes = RedlockNodes::start_with(3, aof());
        let verdict = power_loss(&nodes.url("node_timeout=1s"), &nodes.nodes()[..hit]).await;
        if hit == 1 {
            assert!(verdict.second.is_none(), "{verdict:?}");
        } else {
            verdict.agrees_with(Fault::PowerLoss);
        }
    }
}
