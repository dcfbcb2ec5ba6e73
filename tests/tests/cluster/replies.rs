//! What servers of a Cluster say instead of serving. `MOVED`, `ASK` and `TRYAGAIN` are met in `moving`.

use std::time::Duration;

use distlock::ErrorKind;
use distlock_tests::{
    server::{ClusterGroup, RedisOptions},
    wait::renewal,
};

use super::{LIMIT, SECOND, manager, now, until};

/// A part that is away is away for whoever needs it, also from the start; the others go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_part_that_is_away_is_away_for_itself() {
    let options = RedisOptions::new().config("cluster-require-full-coverage no");
    let group = ClusterGroup::start_with(3, 0, options);
    let before = manager(&group, "").await;
    let (away, name) = (group.name_at(0), group.name_at(1));
    let (guard, lost) = (
        before.mutex(name.as_str()).ttl(6 * SECOND).lock().await.unwrap(),
        before.mutex(format!("{away}:lost")).ttl(6 * SECOND).lock().await.unwrap(),
    );
    group.servers()[0].pause().unwrap();
    let start = now();
    let after = manager(&group, "connect_timeout=2s").await;
    assert!(now() - start < 15 * SECOND, "{:?}", now() - start);
    for locks in [&before, &after] {
        let lock = locks.mutex(format!("{name}:other")).lock();
        drop(tokio::time::timeout(5 * SECOND, lock).await.expect("its server answers").unwrap());
        let error = locks.mutex(away.as_str()).wait(Duration::from_millis(300)).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }
    // Renewals leave together, and only those of the silent server fail.
    assert_eq!(lost.lost().await.kind(), ErrorKind::Lost);
    renewal(LIMIT, || guard.remaining()).await.unwrap();
    group.servers()[0].resume().unwrap();
    drop(after.mutex(away.as_str()).wait(20 * SECOND).lock().await.unwrap());
    guard.release().await.unwrap();
}

/// `CLUSTERDOWN`: an outage that is told within the wait and passes by itself; holds last as long as their leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_cluster_that_is_down_is_an_outage_that_passes() {
    let group = ClusterGroup::start_with(3, 0, Default::default());
    let locks = manager(&group, "").await;
    let (away, name) = (group.name_at(0), group.name_at(1));
    let guard = locks.mutex(name.as_str()).ttl(30 * SECOND).lock().await.unwrap();
    group.servers()[0].kill().unwrap();
    until("the others refuse to serve", async || {
        let mut get = redis::cmd("GET");
        get.arg(format!("distlock:{name}"));
        let said = get.query_async::<Option<String>>(&mut group.servers()[1].admin().await.unwrap()).await;
        said.is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    })
    .await;
    for name in [&away, &name] {
        let lock = locks.mutex(format!("{name}:other"));
        let error = lock.wait(Duration::from_millis(300)).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }
    guard.check().unwrap();
    group.servers()[0].restart().unwrap();
    let back = locks.mutex(format!("{name}:other")).wait(20 * SECOND).lock().await.unwrap();
    guard.check().unwrap();
    guard.release().await.unwrap();
    back.release().await.unwrap();
}
