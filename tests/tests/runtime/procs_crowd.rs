//! A thousand tasks of one process wait for one key: to the store they are one waiter on few connections, and among themselves they
//! stand in line.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use crate::{LIMIT, connect, start, waiters};

const TASKS: u64 = 1_000;

#[allow(clippy::disallowed_methods, reason = "measures what is promised")]
fn now() -> Instant {
    Instant::now()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tasks_are_one_waiter_and_served_in_order() {
    let server = start();
    let holder = connect(&server.url()).await;
    let guard = holder.mutex("crowd").lock().await.unwrap();
    let others = server.client_count().await.unwrap();

    let locks = connect(&server.url()).await;
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..TASKS {
        let (mutex, turns) = (locks.mutex("crowd").wait_forever(), turns.clone());
        tasks.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let (token, granted) = (guard.fencing_token(), now());
            tokio::task::yield_now().await;
            turns.lock().unwrap().push((n, token, granted, now()));
            drop(guard);
        });
        waiters(&locks, "crowd", n + 1).await;
    }
    assert_eq!(holder.inspect("crowd").await.unwrap().waiters, 1, "one entry in the store");
    let clients = server.clients().await.unwrap();
    assert!(clients.len() - others <= 3, "{} connections: {clients:#?}", clients.len() - others);

    let released = now();
    guard.release().await.unwrap();
    tokio::time::timeout(LIMIT, tasks.join_all()).await.unwrap();
    let turns = turns.lock().unwrap();
    assert!(turns.iter().map(|turn| turn.0).eq(0..TASKS), "not in order");
    assert!(turns.is_sorted_by(|one, other| one.1 < other.1), "tokens don't grow");
    let ends = std::iter::once(released).chain(turns.iter().map(|turn| turn.3));
    let mut took: Vec<Duration> = ends.zip(turns.iter()).map(|(end, turn)| turn.2 - end).collect();
    took.sort();
    let (half, most) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("wake-up p50 {half:?}, p99 {most:?}");
    assert!(half <= Duration::from_millis(5), "p50 {half:?}");
    assert!(most <= Duration::from_millis(50), "p99 {most:?}");
}
