//! What a replica that takes over hasn't heard of.

use distlock::ErrorKind;
use distlock_tests::server::ClusterGroup;

use super::{LIMIT, SECOND, manager, until};

/// Locks that were given back while the replica was cut off stand on it when it takes over. They are given back there too, and nobody
/// waits for their ttl; but for those of a process that has gone meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_what_was_given_back_is_given_back_to_the_new_primary_too() {
    let ttl = 120 * SECOND;
    let group = ClusterGroup::start();
    let (locks, rival, gone) =
        (manager(&group, "").await, manager(&group, "").await, manager(&group, "").await);
    let name = group.name_at(0);
    let key = |kind: &str| format!("{name}:{kind}");
    let awaited = locks.mutex(key("awaited")).ttl(ttl).lock().await.unwrap();
    let dropped = locks.mutex(key("dropped")).ttl(ttl).lock().await.unwrap();
    let writer = locks.rw_lock(key("writer")).ttl(ttl).write().await.unwrap();
    let permit = locks.semaphore(key("permit"), 1).ttl(ttl).acquire().await.unwrap();
    let control = gone.mutex(key("control")).ttl(ttl).lock().await.unwrap();
    group.replicated(0).await;
    group.cut_replication(0).await;
    awaited.release().await.unwrap();
    drop(dropped);
    writer.release().await.unwrap();
    permit.release().await.unwrap();
    control.release().await.unwrap();
    assert!(gone.shutdown(SECOND).await.is_clean());
    drop(gone);
    let standing = async |server: usize| {
        let mut admin = group.servers()[server].admin().await.unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("distlock:*").query_async(&mut admin).await.unwrap();
        keys.len()
    };
    until("all are given back", async || standing(0).await == 0).await;
    assert_eq!(standing(3).await, 5, "the replica knows nothing of it");

    let mut takeover = redis::cmd("CLUSTER");
    takeover.arg("FAILOVER").arg("TAKEOVER");
    takeover.exec_async(&mut group.servers()[3].admin().await.unwrap()).await.unwrap();
    assert_eq!(group.failed_over(0).await, 3);
    for kind in ["awaited", "dropped"] {
        let again = rival.mutex(key(kind)).wait(LIMIT).lock().await.unwrap_or_else(|error| panic!("{error}"));
        again.release().await.unwrap();
    }
    drop(rival.rw_lock(key("writer")).wait(LIMIT).read().await.unwrap());
    drop(rival.semaphore(key("permit"), 1).wait(LIMIT).acquire().await.unwrap());
    let error = rival.mutex(key("control")).wait(SECOND).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}
