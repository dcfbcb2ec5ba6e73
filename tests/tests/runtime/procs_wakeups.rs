//! How long it takes from the end of one hold to the next, between processes: I4 and I5.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use distlock_tests::procs::Worker;

use crate::{LIMIT, connect, ms, start, waiters};

#[allow(clippy::disallowed_methods, reason = "measures what is promised")]
fn now() -> Instant {
    Instant::now()
}

/// Half of the hand-overs within 5 ms, nearly all within 50 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_handed_to_another_process_within_milliseconds() {
    let server = start();
    let managers = [connect(&server.url()).await, connect(&server.url()).await];
    let mut took: Vec<Duration> = Vec::new();
    let mut guard = managers[0].mutex("ball").lock().await.unwrap();
    for turn in 1..=200 {
        let waiter = tokio::spawn({
            let mutex = managers[turn % 2].mutex("ball").wait(LIMIT);
            async move { (mutex.lock().await.unwrap(), now()) }
        });
        waiters(&managers[(turn + 1) % 2], "ball", 1).await;
        let released = now();
        guard.release().await.unwrap();
        let (next, granted) = waiter.await.unwrap();
        took.push(granted - released);
        guard = next;
    }
    // The first ones may come before the subscriptions stand.
    let mut took = took.split_off(20);
    took.sort();
    let (half, most) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("hand-over p50 {half:?}, p99 {most:?}");
    assert!(half <= ms(5), "p50 {half:?}");
    assert!(most <= ms(50), "p99 {most:?}");
}

/// A process whose tasks hand a lock on among themselves lets the others have it after each slice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_process_leaves_the_others_their_turn() {
    let server = start();
    let (busy, other) = (connect(&server.url()).await, connect(&server.url()).await);
    let sections = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (locks, sections) = (busy.clone(), sections.clone());
        tasks.spawn(async move {
            loop {
                let guard = locks.mutex("contested").wait(LIMIT).lock().await.unwrap();
                sections.fetch_add(1, Ordering::SeqCst);
                drop(guard);
            }
        });
    }
    let count = || sections.load(Ordering::SeqCst);
    let crowded = async || (count() > 100).then_some(());
    distlock_tests::wait::until("the busy ones to be at it", LIMIT, crowded).await.unwrap();
    let mut took = Vec::new();
    let before = count();
    for _ in 0..60 {
        let asked = now();
        let guard = other.mutex("contested").wait(LIMIT).lock().await.unwrap();
        took.push(now() - asked);
        guard.release().await.unwrap();
    }
    let meanwhile = count() - before;
    tasks.shutdown().await;
    took.sort();
    println!("p50 {:?}, max {:?}, {meanwhile} sections meanwhile", took[30], took[59]);
    assert!(took[30] <= ms(50) && took[59] <= ms(500), "{took:?}");
    assert!(meanwhile > 60, "the busy ones had turns too: {meanwhile}");
}

/// A holder that is killed is in the way for its ttl and no longer.
#[tokio::test]
async fn a_killed_holders_lock_is_had_within_its_ttl() {
    let server = start();
    let locks = connect(&server.url()).await;
    let ttl = ms(1_500);
    for round in 0..3 {
        let url = server.url();
        let millis = ttl.as_millis().to_string();
        let args = ["--url", &url, "--keys", "1", "--ttl-ms", &millis, "hold"];
        let worker = Worker::spawn(env!("CARGO_BIN_EXE_lock-worker"), args).unwrap();
        worker.wait_line("a hold", LIMIT, |line| line.starts_with("holding ").then_some(())).await.unwrap();
        let waiter = tokio::spawn(locks.mutex("key-0").wait(LIMIT).lock());
        waiters(&locks, "key-0", 1).await;
        worker.kill().unwrap();
        let killed = now();
        let guard = waiter.await.unwrap().unwrap();
        let took = now() - killed;
        assert!(took <= ttl + ms(250), "round {round}: {took:?}");
        guard.release().await.unwrap();
    }
}
