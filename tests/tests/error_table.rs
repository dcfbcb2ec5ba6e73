//! Every reply that Redis may give, and what becomes of an acquire, a renewal and a release that meets it: scripted through the proxy,
//! and for each that a server can be brought to, from a server. Where each reply comes from a server:
//!
//! | reply | test |
//! |---|---|
//! | NOSCRIPT, READONLY, MASTERDOWN, NOREPLICAS, MISCONF, OOM, NOPERM, "can't run this command", NOAUTH | `real_servers_in_trouble_are_what_the_table_says_and_holds_survive_them`, here |
//! | BUSY | `a_busy_server_is_waited_for`, here |
//! | LOADING | `a_server_that_loads_is_waited_for`, here |
//! | CROSSSLOT; MOVED to a client that knows no Cluster | `a_server_of_a_cluster_tells_a_client_of_one_server_so`, here |
//! | MOVED, ASK, TRYAGAIN | `cluster::moving`, whose tests count them at the servers |
//! | CLUSTERDOWN | `cluster::replies::fault_a_cluster_that_is_down_is_an_outage_that_passes` |
//! | WRONGPASS | `bad_input::servers_that_say_no_say_why`, `redis_credentials::a_rotated_password_is_used_from_the_next_connection_on` |
//! | WRONGTYPE | `bad_input::what_is_somebody_elses_is_neither_taken_nor_deleted` |
//! | I/O error, end of the stream, no answer | `fault_sweep`, at every step of every scenario |
//! | "can't access at least one of the keys", UNKILLABLE, replies that nobody knows | none: all keys of our scripts are declared and none runs on. Scripted here |

use std::{fs, time::Duration};

use distlock::{
    ErrorKind, Guard, LockError, LockKey, LockManager, Mutex,
    backend::{AcquireRequest, Applied, Backend as _, BackendErrorKind, Clock, Mode, redis as store},
};
use distlock_runtime::{OwnerToken, Ttl};
use distlock_tests::{
    proxy::{FaultProxy, Rule, When, refusal},
    server::{ClusterGroup, RedisOptions, RedisServer},
    wait,
};
use redis::{RedisResult, Value, aio::MultiplexedConnection};

const LIMIT: Duration = Duration::from_secs(20);
const TTL: Duration = Duration::from_millis(1_500);

/// What an acquire does about a reply. Renewals and releases go on trying after every one of them, until the lease would have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acquire {
    /// Asks again within its budget; this is what it says at the end.
    Repeats(ErrorKind),
    /// Says this at once.
    Fails(ErrorKind),
    /// Nobody notices.
    Mends,
}

use Acquire::{Fails, Mends, Repeats};

const TABLE: &[(&str, Acquire)] = &[
    (refusal::NOSCRIPT, Mends),
    ("-MOVED 3999 127.0.0.1:6381", Repeats(ErrorKind::Connection)),
    ("-ASK 3999 127.0.0.1:6381", Repeats(ErrorKind::Connection)),
    (refusal::TRYAGAIN, Repeats(ErrorKind::Connection)),
    ("-CROSSSLOT Keys in request don't hash to the same slot", Fails(ErrorKind::Script)),
    (refusal::CLUSTERDOWN, Repeats(ErrorKind::Connection)),
    (refusal::LOADING, Repeats(ErrorKind::Connection)),
    (refusal::BUSY, Repeats(ErrorKind::Connection)),
    (refusal::NOREPLICAS, Repeats(ErrorKind::Connection)),
    (refusal::READONLY, Repeats(ErrorKind::Connection)),
    (refusal::MASTERDOWN, Repeats(ErrorKind::Connection)),
    (refusal::MISCONF, Repeats(ErrorKind::Connection)),
    ("-UNKILLABLE Sorry the script already executed write commands", Repeats(ErrorKind::Connection)),
    ("-ERR max number of clients reached", Repeats(ErrorKind::Connection)),
    (refusal::OOM, Fails(ErrorKind::OutOfMemory)),
    (refusal::NOAUTH, Fails(ErrorKind::Permission)),
    ("-WRONGPASS invalid username-password pair or user is disabled.", Fails(ErrorKind::Permission)),
    (refusal::NOPERM, Fails(ErrorKind::Permission)),
    (
        "-ERR The user executing the script can't run this command or subcommand script: 5",
        Fails(ErrorKind::Permission),
    ),
    (
        "-ERR The user executing the script can't access at least one of the keys mentioned",
        Fails(ErrorKind::Permission),
    ),
    ("-WRONGTYPE Operation against a key holding the wrong kind of value", Fails(ErrorKind::KeyConflict)),
    ("-ERR unknown command 'EVALSHA', with args beginning with: ", Fails(ErrorKind::Unsupported)),
    ("-ERR something that nobody has foreseen", Fails(ErrorKind::Script)),
];

struct Scripted {
    server: RedisServer,
    proxy: FaultProxy,
    locks: LockManager,
}

impl Scripted {
    async fn start() -> Self {
        let server = RedisServer::start(RedisOptions::new()).unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let locks = LockManager::connect(&proxy.url()).await.unwrap();
        locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
        Self { server, proxy, locks }
    }

    /// Locks are taken plainly by SET, by all else through scripts.
    fn answers(&self, line: &str) -> Rule {
        let work = When::matches(|command| ["SET", "EVALSHA"].iter().any(|name| command.is(name)));
        Rule::new(work, distlock_tests::proxy::Fault::Answer(line.to_owned()))
    }

    async fn held(&self, key: &str) -> bool {
        self.server.keys().await.unwrap().contains(&format!("distlock:{key}"))
    }
}

/// One reply that passes, and one that stays; for a plain lock, which is taken without a script at first, and for a fair one.
#[tokio::test]
async fn acquires_do_what_the_table_says() {
    let bench = Scripted::start().await;
    for (line, acquire) in TABLE {
        acquires(&bench, line, *acquire, bench.locks.mutex("fair").fair()).await;
        if *acquire != Mends {
            acquires(&bench, line, *acquire, bench.locks.mutex("plain")).await;
        }
        assert!(!bench.held("fair").await && !bench.held("plain").await, "{line} left a lock behind");
    }
}

async fn acquires(bench: &Scripted, line: &str, acquire: Acquire, lock: Mutex) {
    let once = bench.proxy.rules().add(bench.answers(line).once());
    let outcome = lock.clone().wait(LIMIT).lock().await;
    assert_eq!(once.hits(), 1, "{line}");
    match acquire {
        Repeats(_) | Mends => drop(outcome.unwrap().release().await.unwrap()),
        Fails(kind) => assert_eq!(outcome.unwrap_err().kind(), kind, "{line}"),
    }
    once.remove();

    let always = bench.proxy.rules().add(bench.answers(line));
    let error = lock.wait(Duration::from_millis(400)).lock().await.unwrap_err();
    match acquire {
        Repeats(kind) => {
            assert_eq!(error.kind(), kind, "{line}: {error}");
            assert!(error.is_retryable() && always.hits() > 2, "{line}: {} tries", always.hits());
        }
        Fails(kind) => {
            assert_eq!(error.kind(), kind, "{line}: {error}");
            assert_eq!(always.hits(), 1, "{line} was asked again");
        }
        // A script cache that forgets at once is a server that can't be used.
        Mends => assert_eq!(error.kind(), ErrorKind::Script, "{line}: {error}"),
    }
    says_why(&error, line);
    always.remove();
}

/// The text has the server's own words, also if the last try had no time for an answer; of another type under the key it says
/// what that means.
fn says_why(error: &LockError, line: &str) {
    let text = error.to_string();
    let words = match line[1..].split(' ').next().unwrap() {
        "WRONGTYPE" => "another kind of lock (or by another program)",
        code => code,
    };
    assert!(text.contains(words), "{line}: {text}");
    assert!(error.key().is_some(), "{line}: {text}");
}

/// Whatever a renewal is answered, the hold isn't over until its deadline, and the first that gets through saves it.
#[tokio::test]
async fn renewals_go_on_until_the_deadline_whatever_they_are_told() {
    let rows = TABLE.iter().map(|(line, _)| async move {
        let bench = Scripted::start().await;
        let guard = bench.locks.mutex("k").ttl(TTL).lock().await.unwrap();
        let refused = bench.proxy.rules().add(bench.answers(line));
        refused.wait_hits(2, LIMIT).await.unwrap();
        guard.check().unwrap();
        refused.remove();
        outlives_its_first_lease(&guard).await;
        guard.release().await.unwrap();
        assert!(!bench.held("k").await, "{line}");

        // One that never gets through costs the lock at its deadline, and says so.
        let guard = bench.locks.mutex("k").ttl(TTL).lock().await.unwrap();
        let refused = bench.proxy.rules().add(bench.answers(line));
        let lost = tokio::time::timeout(LIMIT, guard.lost()).await.unwrap();
        assert_eq!(lost.kind(), ErrorKind::Lost, "{line}: {lost}");
        assert!(refused.hits() > 1, "{line}");
    });
    futures_util::future::join_all(rows).await;
}

/// Renewed: valid for longer than the ttl after now.
async fn outlives_its_first_lease(guard: &Guard) {
    let end = wait::Deadline::after(TTL + TTL / 4);
    while !end.is_past() {
        guard.check().unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A release that is refused is made again until it gets through: the lock isn't held for its whole ttl.
#[tokio::test]
async fn releases_get_through_in_the_end() {
    let bench = Scripted::start().await;
    for (line, acquire) in TABLE {
        let guard = bench.locks.mutex("k").ttl(Duration::from_secs(60)).lock().await.unwrap();
        let refused = bench.proxy.rules().add(bench.answers(line).once());
        match (guard.release().await, acquire) {
            (Ok(_), _) => {}
            // What doesn't pass by itself is told, and not insisted on.
            (Err(error), Fails(kind)) => {
                assert_eq!(error.kind(), *kind, "{line}: {error}");
                bench.locks.force_release("k", "the test's next row").await.unwrap();
            }
            (Err(error), Repeats(kind)) => assert_eq!(error.kind(), *kind, "{line}: {error}"),
            (Err(error), Mends) => panic!("{line}: {error}"),
        }
        let free = async || (!bench.held("k").await).then_some(());
        wait::until("the lock to be free", LIMIT, free)
            .await
            .unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(refused.hits(), 1, "{line}");
        refused.remove();
    }
}

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
        let end = wait::Deadline::after(TTL * 5 / 2);
        while !end.is_past() {
            guard.check().unwrap_or_else(|error| panic!("{name}: {error}"));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
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
