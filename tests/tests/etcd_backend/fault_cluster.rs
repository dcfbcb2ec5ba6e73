//! Three members, and what happens to them.

use std::{sync::Arc, time::Duration};

use distlock_runtime::ErrorKind;
use distlock_tests::{
    arena::{Contest, Duel},
    naive::EtcdFlaw,
    server::{EtcdCluster, EtcdSetup},
};
use tokio::time::Instant;

use super::tools::{LIMIT, eventually, manager, ms, naive, naive_of};

const TTL: Duration = Duration::from_secs(2);

/// The leader is killed, twice, with others taking over: the lock goes on changing hands, never two have it, tokens grow. The control
/// looks and then puts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_killed_leader_costs_no_exclusion() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let managers = [manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await].map(Arc::new);
    let naives = [naive(&cluster, EtcdFlaw::LooksFirst).await, naive(&cluster, EtcdFlaw::LooksFirst).await];
    let turns = Contest::begin(&managers, 6, "section", Duration::from_secs(5));
    let control = Contest::begin(&naives.map(Arc::new), 4, "section", TTL);
    turns.more(20).await;
    for _ in 0..2 {
        let leader = cluster.leader().await.unwrap();
        cluster.kill(leader).unwrap();
        turns.more(20).await;
        cluster.restart(leader).await.unwrap();
        turns.more(20).await;
    }
    turns.end().await.assert_clean(100);
    control.end().await.assert_caught();
}

/// A holder whose every word went by the leader, which is killed. The control has a lease there and passes over that it can't be renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_killed_leaders_holder_keeps_its_lock_or_stops() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let leader = cluster.leader().await.unwrap();
    let (one, two) = (manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await);
    let (first, second) = (
        naive_of(&cluster, leader, EtcdFlaw::ByName).await,
        naive_of(&cluster, (leader + 1) % 3, EtcdFlaw::ByName).await,
    );
    let duel = Duel::begin(&one, "held", TTL).await;
    let control = Duel::begin(&first, "held", TTL).await;
    cluster.kill(leader).unwrap();
    let (verdict, control) = tokio::join!(duel.end(&two, 3 * TTL), control.end(&second, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// A leader that is cut off from the other two serves nobody: its client's lease ends by its own clock while nobody else is there who could
/// tell, and a new lock there is a connection error, not a busy lock. The control believes in what the leader granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_minority_serves_nobody() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let leader = cluster.leader().await.unwrap();
    let others: Vec<usize> = (0..3).filter(|member| *member != leader).collect();
    let cut_off = manager(&cluster.url_of([leader]), "minority").await;
    let duel = Duel::begin(&cut_off, "split", ms(3_000)).await;
    let rival = manager(&cluster.url_of(others.clone()), "majority").await;
    let naive_rival = naive_of(&cluster, others[0], EtcdFlaw::ByName).await;
    let control = Duel::begin(&naive_of(&cluster, leader, EtcdFlaw::ByName).await, "split", ms(3_000)).await;

    for member in &others {
        cluster.pause(*member).unwrap();
    }
    let error = cut_off.mutex("other").wait(ms(1_500)).lock().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Connection), "{error}");
    tokio::time::timeout(Duration::from_secs(6), duel.held().lost()).await.unwrap();
    // Now the leader is the one that is gone, and the others elect another.
    cluster.pause(leader).unwrap();
    for member in &others {
        cluster.resume(*member).unwrap();
    }
    let (verdict, control) = tokio::join!(duel.end(&rival, LIMIT), control.end(&naive_rival, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
    let heir = rival.mutex("split").wait(LIMIT).lock().await.unwrap();
    cluster.resume(leader).unwrap();
    eventually("the member that was cut off to serve again", async || {
        let error = cut_off.mutex("split").try_lock().await.err()?;
        error.is_busy().then_some(())
    })
    .await;
    assert!(heir.is_valid());
}

/// A member that goes silent, with its connections open, costs its clients no lock: renewals go by another. The control's go by the
/// silent one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_silent_member_costs_no_lock() {
    let cluster = EtcdCluster::start(EtcdSetup::new(3)).await.unwrap();
    let leader = cluster.leader().await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let guard = locks.mutex("held").ttl(Duration::from_secs(6)).lock().await.unwrap();
    let second = naive_of(&cluster, leader, EtcdFlaw::ByName).await;
    let control =
        Duel::begin(&naive_of(&cluster, (leader + 1) % 3, EtcdFlaw::ByName).await, "held", ms(1_000)).await;
    let control = tokio::spawn(async move { control.end(&second, LIMIT).await });
    for member in [1, 2, 3].map(|step| (leader + step) % 3) {
        cluster.pause(member).unwrap();
        // For longer than the lease lasts that was there when it fell silent.
        let until = Instant::now() + Duration::from_secs(7);
        while Instant::now() < until {
            assert!(guard.is_valid(), "lost while member {member} was silent");
            tokio::time::sleep(ms(50)).await;
        }
        locks.mutex("fresh").wait(Duration::from_secs(15)).lock().await.unwrap().release().await.unwrap();
        cluster.resume(member).unwrap();
    }
    guard.release().await.unwrap();
    control.await.unwrap().assert_caught();
}
