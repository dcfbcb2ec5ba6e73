//! The store goes and comes back.

use std::time::{Duration, Instant};

use distlock::{ErrorKind, LockError};
use distlock_tests::{
    proxy::{FaultProxy, Mode},
    server::{RedisOptions, RedisServer},
    wait,
};

use crate::{LIMIT, connect, ms, start};

#[allow(clippy::disallowed_methods, reason = "measures what is promised")]
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    (future.await, start.elapsed())
}

#[track_caller]
fn assert_connection(outcome: Result<impl Sized, LockError>) {
    let error = outcome.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(!error.is_busy() && error.is_retryable());
}

#[tokio::test]
async fn a_dead_server_is_connection_within_the_budget_and_its_return_is_noticed() {
    let server = start();
    let locks = connect(&server.url()).await;
    locks.mutex("before").lock().await.unwrap().release().await.unwrap();
    for round in 0..3 {
        server.kill().unwrap();
        for budget in [0, 300, 1_000] {
            let (outcome, took) = timed(locks.mutex("down").wait(ms(budget)).lock()).await;
            assert_connection(outcome);
            // A single try has 2 s to find out.
            assert!(took < ms(budget) + ms(5_000), "round {round}: {took:?} with a budget of {budget} ms");
        }
        assert_connection(locks.mutex("down").try_lock().await);
        assert_connection(locks.ping().await);
        assert_connection(locks.inspect("down").await);
        // Those who wait here behind the one that asks are told the same.
        let waits = (0..4).map(|_| locks.mutex("down").wait(ms(500)).lock());
        futures_util::future::join_all(waits).await.into_iter().for_each(assert_connection);

        // One that has the patience gets it when the server is back, without help.
        let patient = tokio::spawn(locks.mutex("down").wait(LIMIT).lock());
        server.restart().unwrap();
        let guard = tokio::time::timeout(LIMIT, patient).await.unwrap().unwrap().unwrap();
        guard.release().await.unwrap();
        locks.mutex("down").try_lock().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_silent_server_is_connection_within_the_budget_and_its_return_is_noticed() {
    let server = start();
    let locks = connect(&server.url()).await;
    locks.mutex("before").lock().await.unwrap().release().await.unwrap();
    server.pause().unwrap();
    for budget in [300, 1_000] {
        let (outcome, took) = timed(locks.mutex("silent").wait(ms(budget)).lock()).await;
        assert_connection(outcome);
        assert!(took < ms(budget) + ms(2_500), "{took:?} with a budget of {budget} ms");
    }
    let (outcome, took) = timed(locks.mutex("silent").try_lock()).await;
    assert_connection(outcome);
    assert!(took < ms(6_000), "{took:?}");
    server.resume().unwrap();
    let guard = locks.mutex("silent").wait(LIMIT).lock().await.unwrap();
    guard.release().await.unwrap();
    crate::assert_nothing_stays(&server).await;
}

#[tokio::test]
async fn nobody_to_connect_to_is_connection() {
    let server = start();
    let url = server.url();
    server.kill().unwrap();
    let (outcome, took) = timed(distlock::LockManager::connect(&url)).await;
    assert_connection(outcome);
    assert!(took < ms(12_000), "{took:?}");
    // Lazily, it is a manager all the same, and works once there is a server.
    let locks = distlock::LockManager::builder().connect_lazily(&url).unwrap();
    assert_connection(locks.mutex("lazy").wait(ms(200)).lock().await);
    server.restart().unwrap();
    locks.mutex("lazy").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
}

/// With what it had on disk, the server comes back with our leases; renewal bridges the gap.
#[tokio::test]
async fn leases_survive_a_restart_with_aof() {
    const TTL: Duration = Duration::from_secs(6);
    // Every write is on disk before its answer: what this test is about isn't how often the server syncs.
    let server = RedisServer::start(RedisOptions::new().aof().config("appendfsync always")).unwrap();
    let (locks, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut guards = Vec::new();
    for n in 0..10 {
        guards.push(locks.mutex(format!("kept-{n}")).ttl(TTL).lock().await.unwrap());
    }
    server.kill().unwrap();
    server.restart().unwrap();
    let reachable = async || rival.ping().await.ok();
    wait::until("the rival to be connected again", LIMIT, reachable).await.unwrap();
    // Past what the first grant was good for: renewed since.
    let end = wait::Deadline::after(TTL + ms(1_000));
    while !end.is_past() {
        for (n, guard) in guards.iter().enumerate() {
            guard.check().unwrap();
            let error = rival.mutex(format!("kept-{n}")).try_lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Busy, "a restart is no release: {error}");
        }
        // Between two looks, so that the machine has time for others.
        tokio::time::sleep(ms(20)).await;
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

/// Without, the lease is gone: the holder is told, and nobody makes the lock anew behind a rival's back.
#[tokio::test]
async fn leases_lost_by_a_restart_are_reported_and_never_made_anew() {
    let server = start();
    let (locks, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    let guard = locks.mutex("forgotten").ttl(ms(9_000)).lock().await.unwrap();
    server.kill().unwrap();
    server.restart().unwrap();
    let taken = rival.mutex("forgotten").wait(LIMIT).lock().await.unwrap();
    let error = tokio::time::timeout(LIMIT, guard.lost()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    taken.extend(ms(9_000)).await.unwrap();
    assert!(taken.is_valid());
}

/// A partition that heals before the deadline costs nothing; one that lasts costs the lock at its deadline, not later.
#[tokio::test]
async fn a_partition_is_survived_until_the_deadline() {
    let server = start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let locks = connect(&proxy.url()).await;
    let rival = connect(&server.url()).await;
    let ttl = ms(4_000);
    for mode in [Mode::BlackHole, Mode::LoseReplies, Mode::Refuse] {
        let key = format!("split-{mode:?}").to_lowercase();
        let guard = locks.mutex(&key).ttl(ttl).wait(LIMIT).lock().await.unwrap();
        proxy.set_mode(mode).unwrap();
        if mode == Mode::Refuse {
            proxy.cut_all();
        }
        // Long enough that a renewal falls into it.
        tokio::time::sleep(ttl / 2).await;
        guard.check().unwrap();
        proxy.set_mode(Mode::Pass).unwrap();
        wait::renewal(LIMIT, || guard.remaining()).await.unwrap();

        proxy.set_mode(mode).unwrap();
        if mode == Mode::Refuse {
            proxy.cut_all();
        }
        let (error, took) = timed(guard.lost()).await;
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        assert!(took <= ttl + ms(1_500), "{mode:?}: told only after {took:?}");
        if mode != Mode::LoseReplies {
            // The rival comes in after the holder was told.
            let next = rival.mutex(&key).wait(LIMIT).lock().await.unwrap();
            assert!(!guard.is_valid());
            next.release().await.unwrap();
        }
        proxy.set_mode(Mode::Pass).unwrap();
        drop(guard);
    }
}
