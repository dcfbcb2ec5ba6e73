//! No herd: a release tells the next in line, and nobody else.

use std::time::Duration;

use distlock_tests::{server::shared_zookeeper, wait::until};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode};

use super::{LIMIT, fresh, manager, raw, wire::Wire};

const WAITERS: u64 = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_at_most_two_of_two_hundred() {
    let server = shared_zookeeper().unwrap();
    let wire = Wire::to(server).await;
    let mut managers = Vec::new();
    for _ in 0..4 {
        managers.push(manager(wire.address(), Duration::from_secs(60)).await);
    }
    let key = fresh("herd");
    let mut held = managers[0].mutex(&key).fair().lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for number in 0..usize::try_from(WAITERS).unwrap() {
        let lock = managers[number % 4].mutex(&key).fair().wait_forever();
        waiting.spawn(async move { lock.lock().await.unwrap() });
    }
    let queued = async || (managers[0].inspect(&key).await.unwrap().waiters == WAITERS).then_some(());
    until("all waiters to stand in line", LIMIT, queued).await.unwrap();
    for _ in 0..10 {
        let before = wire.notifications();
        held.release().await.unwrap();
        held = waiting.join_next().await.unwrap().unwrap();
        // Whatever else was told was told before this answer, on the same connections.
        for locks in &managers {
            locks.ping().await.unwrap();
        }
        let told = wire.notifications() - before;
        assert!((1..=2).contains(&told), "one release told {told}");
    }
    drop(held);
    waiting.abort_all();
}

/// The control: where all who wait watch the same, all are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_recipe_wakes_all() {
    let server = shared_zookeeper().unwrap();
    let (wire, holder) = (Wire::to(server).await, raw(server).await);
    let lock = format!("/{}", fresh("naive"));
    let open = Acls::anyone_all();
    holder.mkdir(&lock, &CreateMode::Persistent.with_acls(open)).await.unwrap();
    let held = format!("{lock}/held");
    holder.create(&held, b"", &CreateMode::Ephemeral.with_acls(open)).await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..20 {
        let client = raw(wire.address()).await;
        let (_, watcher) = client.list_and_watch_children(&lock).await.unwrap();
        waiters.push((client, watcher));
    }
    holder.delete(&held, None).await.unwrap();
    for (_, watcher) in waiters {
        watcher.changed().await;
    }
    assert_eq!(wire.notifications(), 20);
}
