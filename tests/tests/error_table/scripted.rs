//! Replies that a proxy gives in the server's place.

use std::time::Duration;

use distlock::{ErrorKind, LockManager, Mutex};
use distlock_tests::{
    proxy::{FaultProxy, Rule, When, refusal},
    server::{RedisOptions, RedisServer},
    wait,
};

use super::{
    Acquire::{self, Fails, Mends, Repeats},
    LIMIT, TTL, says_why,
};

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
        wait::renewal(LIMIT, || guard.remaining()).await.unwrap_or_else(|error| panic!("{line}: {error}"));
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
