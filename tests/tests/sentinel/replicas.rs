//! Grants that count only when replicas have them.

use distlock::{ErrorKind, LockError, LockManager};
use distlock_tests::server::SentinelGroup;

use super::{SECOND, manager, now, until};

/// Every kind of lock fails with `NOT_REPLICATED`, and nothing of it is left.
async fn refused(group: &SentinelGroup, locks: &LockManager) {
    for error in [
        locks.mutex("a").lock().await.unwrap_err(),
        locks.mutex("a").fair().lock().await.unwrap_err(),
        locks.rw_lock("b").read().await.unwrap_err(),
        locks.rw_lock("b").write().await.unwrap_err(),
        locks.semaphore("c", 2).acquire().await.unwrap_err(),
        locks.mutex_all(["d", "e"]).lock().await.unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.code()), (ErrorKind::NotReplicated, "NOT_REPLICATED"), "{error}");
        assert!(error.is_retryable() && error.to_string().contains("of 2 replicas"), "{error}");
    }
    for key in ["a", "b", "c", "d", "e"] {
        assert!(!group.servers()[0].has(&format!("distlock:{key}")).await.unwrap(), "{key} is left");
    }
}

/// Every kind is granted.
async fn granted(locks: &LockManager) {
    // Held together: kinds don't get into each other's way.
    let _exclusive = locks.mutex("a").lock().await.unwrap();
    let _reader = locks.rw_lock("b").read().await.unwrap();
    let _permit = locks.semaphore("c", 2).acquire().await.unwrap();
    let _all = locks.mutex_all(["d", "e"]).lock().await.unwrap();
}

/// A reader doesn't become a writer without replicas, and stays a reader. An execution doesn't begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_conversions_and_claims_need_replicas_too() {
    let group = SentinelGroup::start();
    let locks = manager(&group, "min_replicas=2&replica_timeout=1s").await;
    until("both replicas are in step", async || locks.mutex("warm").lock().await.is_ok()).await;
    let reader = locks.rw_lock("b").read().await.unwrap();
    group.cut_replication().await;
    let refused = reader.try_upgrade().await.unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::NotReplicated, "{}", refused.error);
    refused.guard.check().unwrap();
    let error = run(&locks).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    group.heal_replication().await;
    // Somebody else still reads beside it: it hasn't become a writer.
    until("the replicas are back", async || locks.rw_lock("b").try_read().await.is_ok()).await;
    assert_eq!(run(&locks).await.unwrap(), 7);
}

/// An execution under a key of its own.
async fn run(locks: &LockManager) -> Result<u32, LockError> {
    locks.idempotent("payment:1").run(async { Ok(7) }).await
}

/// Replicas that stop cost the time that was given, replicas that are gone cost nothing; with them back all is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_grant_without_its_replicas_is_given_back() {
    let group = SentinelGroup::start();
    let direct = group.servers()[0].url();
    for url in [group.url(""), format!("{direct}/?")] {
        let connect = async |timeout: &str| {
            let url = format!("{url}min_replicas=2&replica_timeout={timeout}");
            LockManager::connect(&url).await.unwrap()
        };
        let (locks, patient) = (connect("100ms").await, connect("1s").await);
        until("both replicas are in step", async || locks.mutex("warm").lock().await.is_ok()).await;
        granted(&patient).await;
        group.servers()[1].pause().unwrap();
        refused(&group, &locks).await;
        group.servers()[1].resume().unwrap();
        until("the replica has caught up", async || locks.mutex("warm").lock().await.is_ok()).await;
        group.cut_replication().await;
        refused(&group, &locks).await;
        let start = now();
        let error = locks.mutex("a").lock().await.unwrap_err();
        assert!(error.to_string().contains("0 of 2 replicas"), "{error}");
        assert!(now() - start < 5 * SECOND, "{:?}", now() - start);
        group.heal_replication().await;
        until("the replicas are back", async || locks.mutex("warm").lock().await.is_ok()).await;
        granted(&patient).await;
    }
}

/// Many who ask at once share the questions to the replicas.
#[tokio::test]
async fn those_who_ask_together_share_a_confirmation() {
    let group = SentinelGroup::start();
    let locks = manager(&group, "min_replicas=2&replica_timeout=1s").await;
    drop(locks.mutex("warm").lock().await.unwrap());
    group.servers()[0].reset_stats().await.unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64 {
        let locks = locks.clone();
        tasks.spawn(async move { locks.mutex(format!("order:{task}")).lock().await.unwrap() });
    }
    let guards = tasks.join_all().await;
    let stats = group.servers()[0].commandstats().await.unwrap();
    let waits = stats.get("wait").copied().unwrap_or_default();
    assert!((1..=16).contains(&waits), "{waits} for {} grants", guards.len());
}

/// Who asks the replicas and isn't polled any more holds nobody else up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_caller_that_is_not_polled_keeps_nobody_from_asking_replicas() {
    let group = SentinelGroup::start();
    let locks = manager(&group, "min_replicas=2&replica_timeout=1s").await;
    until("both replicas are in step", async || locks.mutex("warm").lock().await.is_ok()).await;
    for replica in &group.servers()[1..] {
        replica.pause().unwrap();
    }
    let mut forgotten = Box::pin(locks.mutex("a").wait(30 * SECOND).lock());
    until("the question to be under way", async || {
        let polled = tokio::time::timeout(SECOND / 100, &mut forgotten).await;
        assert!(polled.is_err(), "replicas that have stopped can't have confirmed it");
        let mut admin = group.servers()[0].admin().await.unwrap();
        let clients: String = redis::cmd("INFO").arg("clients").query_async(&mut admin).await.unwrap();
        !clients.contains("blocked_clients:0")
    })
    .await;
    for replica in &group.servers()[1..] {
        replica.resume().unwrap();
    }
    locks.mutex("b").wait(20 * SECOND).lock().await.unwrap().release().await.unwrap();
    forgotten.await.unwrap().release().await.unwrap();
}
