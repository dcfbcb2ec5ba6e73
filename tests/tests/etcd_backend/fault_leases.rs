//! Leases that end without their holders.

use std::time::Duration;

use distlock_runtime::backend::Backend as _;
use distlock_tests::server::{EtcdCluster, EtcdSetup};
use tokio::time::Instant;

use super::tools::{Client, eventually, key, manager, ms, names, request};

/// A lease that is revoked by somebody ends the locks on it, and their holders are told with the next renewal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_revoked_lease_is_told_to_its_holder() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = (manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await);
    let guard = one.mutex("revoked").ttl(ms(3_000)).lock().await.unwrap();
    let line = names(&cluster, "distlock/lock/revoked/").await;
    let start = Instant::now();
    cluster.client().await.unwrap().lease_revoke(line[0].1).await.unwrap();
    let next = two.mutex("revoked").lock().await.unwrap();
    tokio::time::timeout(ms(3_000), guard.lost()).await.unwrap();
    assert!(!guard.is_valid() && start.elapsed() < ms(3_000));
    assert!(next.fencing_token() > guard.fencing_token());
    // A new lease is taken for what comes next.
    one.mutex("other").ttl(ms(3_000)).lock().await.unwrap().release().await.unwrap();
}

/// The lock of a process that died is had again when what the store granted is over, and 1.5 s at most: three waiters in a row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_dead_holders_lock_is_regained() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "alive").await;
    for n in 0..3 {
        let name = key(&format!("dead{n}"));
        let dead = Client::open(&cluster, "dead");
        dead.granted(&request(&name, 2_000)).await;
        let start = Instant::now();
        // Nothing of it is left that could renew or delete.
        drop(dead);
        let guard = locks.mutex(&name).wait(Duration::from_secs(20)).lock().await.unwrap();
        let took = start.elapsed();
        assert!(took >= ms(1_900), "had too early, after {took:?}");
        assert!(took <= ms(2_000) + ms(1_500), "had only after {took:?}");
        drop(guard);
    }
}

/// A history that is compacted while somebody waits costs nothing but a look: the waiter is told all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_compaction_under_a_watch_loses_nothing() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = (manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await);
    let mut client = cluster.client().await.unwrap();
    for restarted in [false, true] {
        let guard = one.mutex("compacted").lock().await.unwrap();
        let waiting = tokio::spawn(two.mutex("compacted").wait(Duration::from_secs(20)).lock());
        let waits = async || (one.inspect("compacted").await.unwrap().waiters == 1).then_some(());
        eventually("the waiter", waits).await;
        for n in 0..50 {
            client.put("noise", format!("{n}"), None).await.unwrap();
        }
        let revision = client.get("noise", None).await.unwrap().header().unwrap().revision();
        client.compact(revision, None).await.unwrap();
        if restarted {
            // The watch is made anew, from a revision that is gone.
            cluster.restart(0).await.unwrap();
        }
        let start = Instant::now();
        guard.release().await.unwrap();
        assert!(waiting.await.unwrap().unwrap().is_valid());
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}

/// Killed and started again, the store has all that was granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_restart_keeps_what_is_held() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let guard = locks.mutex("kept").ttl(Duration::from_secs(10)).lock().await.unwrap();
    cluster.restart(0).await.unwrap();
    let two = Client::open(&cluster, "two");
    let outcome = two.try_acquire(&request(&key("kept"), 5_000)).await.unwrap();
    assert!(matches!(outcome, distlock_runtime::backend::Attempt::Busy(_)), "{outcome:?}");
    guard.extend(Duration::from_secs(10)).await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    two.granted(&request(&key("kept"), 5_000)).await;
}
