//! Leases that end without their holders.

use std::time::Duration;

use distlock_runtime::backend::Backend as _;
use distlock_tests::{
    arena::{Duel, regained},
    contend::{Contender, Held as _},
    naive::{EtcdFlaw, NaiveEtcd},
    server::{EtcdCluster, EtcdSetup},
};
use etcd_client::WatchOptions;
use tokio::time::{Instant, timeout};

use super::tools::{Client, LIMIT, eventually, key, manager, ms, naive, names, request};

/// How soon a waiter must be told of a release.
const PROMPT: Duration = Duration::from_secs(5);

/// A lease that is revoked by somebody ends the locks on it, and their holders are told with the next renewal. The control
/// never asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_revoked_lease_is_told_to_its_holder() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = (manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await);
    // Of ours, the next one is in before the loss is told: whoever revokes a lease takes it from its holder.
    let guard = one.mutex("revoked").ttl(ms(3_000)).lock().await.unwrap();
    let naive = naive(&cluster, EtcdFlaw::ByName).await;
    let control = Duel::begin(&naive, "revoked", ms(3_000)).await;
    let line = names(&cluster, "distlock/lock/revoked/").await;
    let naive_line = names(&cluster, &NaiveEtcd::name("revoked")).await;
    let start = Instant::now();
    for (_, lease) in [&line[0], &naive_line[0]] {
        cluster.client().await.unwrap().lease_revoke(*lease).await.unwrap();
    }
    let next = two.mutex("revoked").lock().await.unwrap();
    timeout(ms(3_000), guard.lost()).await.unwrap();
    assert!(!guard.is_valid() && start.elapsed() < ms(3_000));
    assert!(next.fencing_token() > guard.fencing_token());
    control.end(&naive, LIMIT).await.assert_caught();
    // A new lease is taken for what comes next.
    one.mutex("other").ttl(ms(3_000)).lock().await.unwrap().release().await.unwrap();
}

/// The lock of a process that died is had again when what the store granted is over, and 1.5 s at most: three waiters in a row. The
/// control has no lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_dead_holders_lock_is_regained() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "alive").await;
    let ttl = ms(2_000);
    let bound = ttl + ms(1_500);
    let endless = naive(&cluster, EtcdFlaw::NoLease).await;
    drop(Contender::acquire(&endless, "dead", ttl).await.unwrap());
    let control = tokio::spawn(async move { regained(&endless, "dead", ttl, bound).await });
    for n in 0..3 {
        let name = key(&format!("dead{n}"));
        let dead = Client::open(&cluster, "dead");
        let asked = Instant::now();
        dead.granted(&request(&name, 2_000)).await;
        // Nothing of it is left that could renew or delete.
        drop(dead);
        let took = regained(&locks, name.as_str(), ttl, bound).await;
        assert!(took.is_some(), "not had within {bound:?}");
        assert!(asked.elapsed() >= ttl, "had too early, after {:?}", asked.elapsed());
    }
    assert_eq!(control.await.unwrap(), None, "the naive lock must be missed");
}

/// A history that is compacted while somebody waits costs nothing but a look: the waiter is told all the same. The control
/// watches from where it was, and is told nothing any more.
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
        let naive = naive(&cluster, EtcdFlaw::ByName).await;
        let held = Contender::acquire(&naive, "compacted", LIMIT).await.unwrap();
        let told = naive_watch(cluster.client().await.unwrap(), if restarted { 1 } else { 0 }).await;
        guard.release().await.unwrap();
        held.release().await.unwrap();
        let (waiting, told) = tokio::join!(timeout(PROMPT, waiting), timeout(PROMPT, told));
        assert!(waiting.expect("the waiter is told").unwrap().unwrap().is_valid());
        assert_eq!(told.is_ok(), !restarted, "the naive waiter is told only where nothing was compacted");
    }
}

/// As a waiter mostly does it: watches the name from a revision on, and waits for an event. Ready once it watches.
async fn naive_watch(mut client: etcd_client::Client, revision: i64) -> impl Future<Output = ()> {
    let options = WatchOptions::new().with_start_revision(revision);
    let mut events = client.watch(NaiveEtcd::name("compacted"), Some(options)).await.unwrap();
    async move { while events.message().await.unwrap().is_some_and(|message| message.events().is_empty()) {} }
}

/// Killed and started again, the store has all that was granted. The control's renewals end with its connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_restart_keeps_what_is_held() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let guard = locks.mutex("kept").ttl(Duration::from_secs(10)).lock().await.unwrap();
    let (ttl, rival) = (ms(2_000), manager(&cluster.url(), "rival").await);
    let naive = naive(&cluster, EtcdFlaw::ByName).await;
    let duel = Duel::begin(&locks, "short", ttl).await;
    let control = Duel::begin(&naive, "short", ttl).await;
    cluster.restart(0).await.unwrap();
    let two = Client::open(&cluster, "two");
    let outcome = two.try_acquire(&request(&key("kept"), 5_000)).await.unwrap();
    assert!(matches!(outcome, distlock_runtime::backend::Attempt::Busy(_)), "{outcome:?}");
    guard.extend(Duration::from_secs(10)).await.unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    two.granted(&request(&key("kept"), 5_000)).await;
    // Longer than the lease: it must have been renewed, or have ended for its holder too.
    let (verdict, control) = tokio::join!(duel.end(&rival, 2 * ttl), control.end(&naive, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}
