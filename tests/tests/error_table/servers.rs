//! Servers that are brought to a reply, and back.

use std::{fs, time::Duration};

use distlock::{
    ErrorKind, LockKey, LockManager,
    backend::{AcquireRequest, Applied, Backend as _, BackendErrorKind, Clock, Mode, redis as store},
};
use distlock_runtime::{OwnerToken, Ttl};
use distlock_tests::{
    server::{ClusterGroup, RedisOptions, RedisServer},
    wait,
};
use redis::{RedisResult, Value, aio::MultiplexedConnection};

use super::{
    Acquire::{self, Fails, Mends, Repeats},
    LIMIT, TTL, says_why,
};

/// How a server is brought to a reply, and back.
struct Real {
    name: &'static str,
    break_it: &'static [&'static str],
    mend_it: &'static [&'static str],
    acquire: Acquire,
}

const REAL: &[Real] = &[
    Real { name: "NOSCRIPT", break_it: &["SCRIPT FLUSH"], mend_it: &[], acquire: Mends },
    Real {
        name: "READONLY",
        break_it: &["REPLICAOF 127.0.0.1 1"],
        mend_it: &["REPLICAOF NO ONE"],
        acquire: Repeats(ErrorKind::Connection),
    },
    Real {
        name: "MASTERDOWN",
        break_it: &["CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"],
        mend_it: &["REPLICAOF NO ONE"],
        acquire: Repeats(ErrorKind::Connection),
    },
    Real {
        name: "NOREPLICAS",
        break_it: &["CONFIG SET min-replicas-to-write 1"],
        mend_it: &["CONFIG SET min-replicas-to-write 0"],
        acquire: Repeats(ErrorKind::Connection),
    },
    Real {
        name: "MISCONF",
        break_it: &["CONFIG SET save '3600 1000000'", "BGSAVE"],
        mend_it: &["CONFIG SET stop-writes-on-bgsave-error no"],
        acquire: Repeats(ErrorKind::Connection),
    },
    Real {
        name: "OOM",
        break_it: &["CONFIG SET maxmemory 1"],
        mend_it: &["CONFIG SET maxmemory 0"],
        acquire: Fails(ErrorKind::OutOfMemory),
    },
    Real {
        name: "NOPERM",
        break_it: &["ACL SETUSER default -evalsha -set"],
        mend_it: &["ACL SETUSER default +@all"],
        acquire: Fails(ErrorKind::Permission),
    },
    Real {
        name: "in a script",
        break_it: &["ACL SETUSER default -set"],
        mend_it: &["ACL SETUSER default +@all"],
        acquire: Fails(ErrorKind::Permission),
    },
    Real {
        name: "keys",
        break_it: &["ACL SETUSER default resetkeys ~nothing"],
        mend_it: &["ACL SETUSER default allkeys"],
        acquire: Fails(ErrorKind::Permission),
    },
    Real {
        name: "NOAUTH",
        break_it: &["CONFIG SET requirepass rotated", "CLIENT KILL TYPE normal SKIPME yes"],
        mend_it: &["CONFIG SET requirepass ''"],
        acquire: Fails(ErrorKind::Permission),
    },
];

/// The same from servers that are in trouble in the middle of a hold. It is over before the lease is, and the hold survives it.
#[tokio::test]
async fn real_servers_in_trouble_are_what_the_table_says_and_holds_survive_them() {
    let rows = REAL.iter().map(|real| async move {
        let name = real.name;
        let options = RedisOptions::new().config("enable-protected-configs yes");
        let server = RedisServer::start(options).unwrap();
        let mut admin = server.admin().await.unwrap();
        let locks = LockManager::connect(&server.url()).await.unwrap();
        let guard = locks.mutex("k").ttl(TTL * 2).lock().await.unwrap();
        if name == "MISCONF" {
            // Nowhere to write to.
            let folder = server.folder().join("gone");
            fs::create_dir(&folder).unwrap();
            let set = format!("CONFIG SET dir {}", folder.display());
            tell(&mut admin, &set).await.unwrap();
            fs::remove_dir(&folder).unwrap();
        }
        for command in real.break_it {
            tell(&mut admin, command).await.unwrap_or_else(|error| panic!("{name}: {command}: {error}"));
        }
        if name == "MISCONF" {
            let failed = async || {
                let info: Value = tell(&mut admin.clone(), "INFO persistence").await.ok()?;
                format!("{info:?}").contains("rdb_last_bgsave_status:err").then_some(())
            };
            wait::until("the save to fail", LIMIT, failed).await.unwrap();
        }
        // Raw keys and fair requests take the script's way, others the plain one.
        for lock in [locks.mutex("other"), locks.mutex("fair").fair()] {
            let outcome = lock.wait(Duration::from_millis(200)).lock().await;
            match real.acquire {
                Mends => drop(outcome.unwrap()),
                Repeats(kind) | Fails(kind) => {
                    let error = outcome.unwrap_err();
                    assert_eq!(error.kind(), kind, "{name}: {error}");
                }
            }
        }
        guard.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        for command in real.mend_it {
            tell(&mut admin, command).await.unwrap_or_else(|error| panic!("{name}: {command}: {error}"));
        }
        wait::renewal(LIMIT, || guard.remaining()).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        guard.release().await.unwrap_or_else(|error| panic!("{name}: {error}"));
        locks.mutex("other").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    });
    futures_util::future::join_all(rows).await;
}

/// A script of somebody else that runs for too long.
#[tokio::test]
async fn a_busy_server_is_waited_for() {
    let server = RedisServer::start(RedisOptions::new().config("busy-reply-threshold 10")).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.mutex("k").ttl(TTL * 2).lock().await.unwrap();
    let mut admin = server.admin().await.unwrap();
    let mut looping = server.admin().await.unwrap();
    let endless = tokio::spawn(async move { tell(&mut looping, "EVAL 'while true do end' 0").await });
    let busy = async || tell(&mut admin.clone(), "PING").await.is_err().then_some(());
    wait::until("the server to be busy", LIMIT, busy).await.unwrap();
    let error = locks.mutex("other").wait(Duration::from_millis(200)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    let patient = tokio::spawn(locks.mutex("other").wait(LIMIT).lock());
    tell(&mut admin, "SCRIPT KILL").await.unwrap();
    assert!(endless.await.unwrap().is_err());
    patient.await.unwrap().unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// A server that reads its data answers nothing else; it has been started again, or has got them from its primary.
#[tokio::test]
async fn a_server_that_loads_is_waited_for() {
    let options = RedisOptions::new()
        .config("enable-debug-command yes")
        .config("key-load-delay 1000")
        .config("loading-process-events-interval-bytes 1024");
    let server = RedisServer::start(options).unwrap();
    let mut admin = server.admin().await.unwrap();
    tell(&mut admin, "DEBUG POPULATE 2000 data 100").await.unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.mutex("k").ttl(TTL * 8).lock().await.unwrap();
    let mut reloading = server.admin().await.unwrap();
    let reload = tokio::spawn(async move { tell(&mut reloading, "DEBUG RELOAD").await });
    let loading = async || {
        let error = tell(&mut admin.clone(), "GET nothing").await.err()?;
        (error.code() == Some("LOADING")).then_some(())
    };
    wait::until("the server to load", LIMIT, loading).await.unwrap();
    let error = locks.mutex("other").wait(Duration::from_millis(200)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    says_why(&error, "-LOADING");
    let patient = locks.mutex("other").wait(LIMIT).lock().await.unwrap();
    reload.await.unwrap().unwrap();
    patient.release().await.unwrap();
    guard.release().await.unwrap();
}

/// Locks of different slots in one script are asked for only by who takes a server of a Cluster for a lone one. It is told so at once and
/// has nothing of them. One after the other they are to be had: all keys of a lock share a slot.
#[tokio::test]
async fn a_server_of_a_cluster_tells_a_client_of_one_server_so() {
    let group = ClusterGroup::start_with(2, 0, RedisOptions::new());
    let here = |key: &String| group.server_of(&format!("distlock:{key}"), None).unwrap() == 0;
    let keys: Vec<String> = (0..).map(|number| format!("k-{number}")).filter(here).take(2).collect();
    let url = group.servers()[0].url();
    let one =
        store::RedisBackend::open(&store::RedisOptions::from_url(&url).unwrap(), Clock::System).unwrap();
    let request = |key: &str| AcquireRequest {
        key: LockKey::new(key).unwrap(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(TTL).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: false,
        tokens: 1,
    };
    let error = one.try_acquire_all(&[request(&keys[0]), request(&keys[1])]).await.unwrap_err();
    assert_eq!((error.kind(), error.applied()), (BackendErrorKind::Script, Applied::No), "{error}");
    assert!(error.to_string().contains("CROSSSLOT") && !error.is_transient(), "{error}");
    let mut admin = group.servers()[0].admin().await.unwrap();
    let stats: String = redis::cmd("INFO").arg("errorstats").query_async(&mut admin).await.unwrap();
    assert!(
        stats.contains("errorstat_CROSSSLOT:count=1"),
        "asked once, and the reply is the server's: {stats}"
    );
    for key in group.servers()[0].keys().await.unwrap() {
        assert!(!key.starts_with("distlock:"), "{key} is left");
    }
    for url in [url, group.url("")] {
        let locks = LockManager::connect(&url).await.unwrap();
        locks.mutex(&keys[0]).fair().lock().await.unwrap().release().await.unwrap();
        locks.mutex_all(&keys).lock().await.unwrap().release().await.unwrap();
    }

    let locks = LockManager::connect(&group.servers()[0].url()).await.unwrap();
    let error = locks.mutex(group.name_at(1)).wait(Duration::from_millis(300)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("MOVED") && error.to_string().contains("redis+cluster://"), "{error}");
}

/// A command line, its words split at blanks that aren't between quotes.
async fn tell(redis: &mut MultiplexedConnection, line: &str) -> RedisResult<Value> {
    let mut command = redis::Cmd::new();
    for (at, part) in line.split('\'').enumerate() {
        if at % 2 == 1 {
            command.arg(part);
        } else {
            for word in part.split_whitespace() {
                command.arg(word);
            }
        }
    }
    command.query_async(redis).await
}
