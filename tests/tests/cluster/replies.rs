//! What servers of a Cluster say instead of serving. `MOVED`, `ASK` and `TRYAGAIN` are met in `moving`.

use std::time::Duration;

use distlock::ErrorKind;
use distlock_tests::server::ClusterGroup;

use super::{SECOND, manager, until};

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
