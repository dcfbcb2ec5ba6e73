//! The table of guarantees in the documents is what the stores say of themselves, and where it says that two may hold a lock, they do.

mod docs;

use std::{
    fs,
    io::Write as _,
    process::{self, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use distlock::{
    Fault, Guarantees, LockManager, Promise,
    backend::{
        Backend as _, Clock,
        etcd::EtcdBackend,
        memory::MemoryBackend,
        postgres::{AdvisoryBackend, PostgresBackend},
        redis::{RedisBackend, RedisOptions},
        redlock::{RedlockBackend, RedlockOptions},
        zookeeper::ZooKeeperBackend,
    },
};
use distlock_tests::{
    server::{RedisOptions as ServerOptions, RedisServer},
    wait::until_blocking,
};
use docs::{read, root, section};

const DOCUMENTS: &[&str] = &["README.md", "distlock/src/guide/guarantees.md"];

fn redlock() -> Arc<RedlockBackend> {
    RedlockBackend::open(&RedlockOptions::from_url("redlock://a,b,c").unwrap(), Clock::System).unwrap()
}

fn sentinel() -> Arc<RedisBackend> {
    RedisBackend::open(&RedisOptions::sentinel([("a", 26379)], "m"), Clock::System).unwrap()
}

fn cluster() -> Arc<RedisBackend> {
    RedisBackend::open(&RedisOptions::cluster([("a", 6379)]), Clock::System).unwrap()
}

#[test]
fn the_table_is_what_the_stores_say() {
    let memory = MemoryBackend::new(Clock::System, "docs");
    let redis = RedisBackend::open(&RedisOptions::new("localhost"), Clock::System).unwrap();
    let stores = [
        memory.guarantees(),
        redis.guarantees(),
        sentinel().guarantees(),
        cluster().guarantees(),
        redlock().guarantees(),
        EtcdBackend::promises(),
        ZooKeeperBackend::promises(),
        PostgresBackend::promises(),
        AdvisoryBackend::promises(),
    ];
    let table = format!("{}\n{}", Guarantees::table(&stores), Guarantees::capabilities(&stores));
    for path in DOCUMENTS {
        let mut text = read(path);
        let (start, end) = section(&text, "guarantees");
        if text[start..end] == table {
            continue;
        }
        assert!(
            std::env::var_os("DISTLOCK_BLESS").is_some(),
            "{path} tells another story than the stores; run this test with DISTLOCK_BLESS=1\n{table}"
        );
        text.replace_range(start..end, &table);
        fs::write(root().join(path), text).unwrap();
    }
}

#[test]
fn a_store_prints_its_column_of_the_table() {
    let memory = MemoryBackend::new(Clock::System, "docs");
    let redis = RedisBackend::open(&RedisOptions::new("localhost"), Clock::System).unwrap();
    for promises in [
        memory.guarantees(),
        redis.guarantees(),
        sentinel().guarantees(),
        cluster().guarantees(),
        redlock().guarantees(),
        EtcdBackend::promises(),
        ZooKeeperBackend::promises(),
        PostgresBackend::promises(),
        AdvisoryBackend::promises(),
    ] {
        let printed = promises.to_string();
        let mut lines = printed.lines();
        assert_eq!(lines.next(), Some(&*format!("| fault | {} |", promises.store)));
        assert_eq!(lines.next(), Some("|---|---|"));
        for fault in Fault::ALL {
            assert_eq!(lines.next(), Some(&*format!("| {fault} | {} |", promises.under(*fault))));
        }
        assert_eq!(lines.next(), None);
    }
}

/// Everything in one process, and yet: what is stopped between two awaits goes on, when its lease is another's already.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_a_stopped_process_may_overlap_with_itself() {
    const LIMIT: Duration = Duration::from_secs(20);
    const TTL: Duration = Duration::from_millis(900);
    let mut stopper = Command::new("sh")
        .args(["-c", &format!("read go; kill -STOP {0}; sleep 2.5; kill -CONT {0}", process::id())])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut go = stopper.stdin.take().unwrap();

    let locks = LockManager::connect("memory:").await.unwrap();
    let paused = locks.mutex("k").ttl(TTL).lock().await.unwrap();
    let entered = Arc::new(AtomicBool::new(false));
    let next = tokio::spawn({
        let (locks, entered) = (locks.clone(), entered.clone());
        async move {
            let guard = locks.mutex("k").ttl(TTL).wait(LIMIT).lock().await.unwrap();
            entered.store(true, Ordering::SeqCst);
            guard.fencing_token()
        }
    });
    let token = paused.fencing_token();
    let body = paused.run(async {
        writeln!(go, "now").unwrap();
        // No await in here: nothing can stop this.
        until_blocking("the next holder comes in", LIMIT, || entered.load(Ordering::SeqCst).then_some(()))
            .unwrap();
    });
    assert_eq!(body.await.unwrap_err().code(), "WATCHDOG_RENEWAL_FAILED");
    assert!(next.await.unwrap() > token, "a resource that compares tells them apart");
    stopper.wait().unwrap();

    let promises = locks.guarantees();
    assert_eq!(promises.under(Fault::HolderPausedUnchecked), Promise::Violated);
    assert_eq!(promises.under(Fault::HolderPausedFenced), Promise::Fenced);
}

/// A lock that goes while its holder can't know of it: for up to a third of the ttl, two believe with good reason that it is theirs.
async fn two_hold_it_after(fault: Fault, happens: impl AsyncFnOnce(&RedisServer)) {
    let server = RedisServer::start(ServerOptions::new()).unwrap();
    let (locks, rival) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    let guard = locks.mutex("k").ttl(Duration::from_secs(30)).lock().await.unwrap();
    assert_eq!(rival.mutex("k").try_lock().await.unwrap_err().code(), "BUSY");
    happens(&server).await;
    let second = rival.mutex("k").wait(Duration::from_secs(5)).lock().await.unwrap();
    assert!(guard.is_valid() && second.is_valid());
    assert_eq!(locks.guarantees().under(fault), Promise::Violated);
}

#[tokio::test]
async fn a_deletion_by_others_lets_two_hold_a_lock() {
    two_hold_it_after(Fault::Deletion, async |server| server.flush().await.unwrap()).await;
}

#[tokio::test]
async fn fault_a_restart_without_persistence_lets_two_hold_a_lock() {
    two_hold_it_after(Fault::RestartEmpty, async |server| {
        server.kill().unwrap();
        server.restart().unwrap();
    })
    .await;
}
