//! Notifications are at most once: waiters that aren't told find out by themselves.

use std::time::{Duration, Instant};

use distlock::{ErrorKind, LockManager};
use distlock_tests::{
    proxy::{FaultProxy, Mode},
    server::RedisServer,
    wait,
};

use crate::{LIMIT, connect, gone, ms, start, waiters};

/// How long a waiter of `locks` takes to get what `holder` gives back.
#[allow(clippy::disallowed_methods, reason = "measures what is promised")]
async fn hand_over(holder: &LockManager, locks: &LockManager, key: &str) -> Duration {
    let guard = holder.mutex(key).lock().await.unwrap();
    let waiter = tokio::spawn(locks.mutex(key).wait(LIMIT).lock());
    waiters(holder, key, 1).await;
    guard.release().await.unwrap();
    let start = Instant::now();
    let guard = waiter.await.unwrap().unwrap();
    let took = start.elapsed();
    guard.release().await.unwrap();
    took
}

async fn pair() -> (RedisServer, FaultProxy, LockManager, LockManager) {
    let server = start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (holder, locks) = (connect(&server.url()).await, connect(&proxy.url()).await);
    // Until the subscription stands and hands over quickly.
    let told = async || (hand_over(&holder, &locks, "warm").await < ms(100)).then_some(());
    wait::until("a quick hand-over", LIMIT, told).await.unwrap();
    (server, proxy, holder, locks)
}

#[tokio::test]
async fn dropped_messages_cost_a_fallback_and_not_the_lock() {
    let (server, proxy, holder, locks) = pair().await;
    proxy.set_mode(Mode::LosePushes).unwrap();
    for round in 0..6 {
        let took = hand_over(&holder, &locks, &format!("silent-{round}")).await;
        assert!(took < ms(2_000), "round {round}: {took:?}");
    }
    assert!(proxy.pushes_lost() >= 6, "only {} messages were lost", proxy.pushes_lost());
    proxy.set_mode(Mode::Pass).unwrap();
    let took = hand_over(&holder, &locks, "told").await;
    assert!(took < ms(1_000), "{took:?}");
    gone(&server, "told").await;
}

#[tokio::test]
async fn a_killed_subscription_comes_back() {
    let (server, _proxy, holder, locks) = pair().await;
    let mut admin = server.admin().await.unwrap();
    for round in 0..3 {
        let mut kill = redis::cmd("CLIENT");
        let killed: usize = kill.arg("KILL").arg("TYPE").arg("pubsub").query_async(&mut admin).await.unwrap();
        assert!(killed >= 1, "there is a subscription to kill");
        let took = hand_over(&holder, &locks, &format!("killed-{round}")).await;
        assert!(took < ms(3_000), "round {round}: {took:?}");
        let told = async || (hand_over(&holder, &locks, "again").await < ms(100)).then_some(());
        wait::until("a quick hand-over again", LIMIT, told).await.unwrap();
    }
}

/// Every connection is cut while tasks wait: they stay in line, and get the lock.
#[tokio::test]
async fn waiters_survive_their_connections() {
    let (_server, proxy, holder, locks) = pair().await;
    for round in 0..4 {
        let key = format!("cut-{round}");
        let guard = holder.mutex(&key).lock().await.unwrap();
        let tasks: Vec<_> = (0..5).map(|_| tokio::spawn(locks.mutex(&key).wait(LIMIT).lock())).collect();
        waiters(&holder, &key, 1).await;
        proxy.cut_all();
        if round % 2 == 0 {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        for task in tasks {
            task.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// The patience of an extension comes from the lease that there is, not from the one that is asked for.
#[tokio::test]
async fn an_extension_that_nobody_answers_gives_up_before_its_lease_ends() {
    let server = start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let locks = connect(&proxy.url()).await;
    let guard = locks.mutex("extend").ttl(ms(3_000)).lock().await.unwrap();
    proxy.set_mode(Mode::BlackHole).unwrap();
    let day = Duration::from_secs(24 * 3_600);
    let outcome = tokio::time::timeout(LIMIT, guard.extend(day)).await.expect("it gives up");
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Connection);
    assert!(guard.is_valid(), "there is time to act on it");
}
