//! A raw key is etcd's own recipe: `etcdctl lock` stands in the same line.

use std::{process::Stdio, time::Duration};

use distlock_runtime::LockKey;
use distlock_tests::server::{EtcdCluster, EtcdSetup, find_program};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use super::tools::{eventually, manager};

/// Holds the lock until it is killed, and says its name as soon as it does.
fn etcdctl(cluster: &EtcdCluster, name: &str) -> Child {
    Command::new(find_program("etcdctl", "etcd-client").unwrap())
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &cluster.address(0).to_string(), "lock", "--ttl", "5", name])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn says(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await.unwrap().unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_excludes_us_and_is_excluded() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let raw = LockKey::raw("jobs/nightly").unwrap();
    let mut theirs = etcdctl(&cluster, raw.as_str());
    assert!(says(&mut theirs).await.starts_with("jobs/nightly/"));
    assert!(locks.mutex(&raw).try_lock().await.unwrap_err().is_busy());
    let holder = locks.inspect(&raw).await.unwrap().holder.unwrap();
    assert_eq!((holder.label, holder.owner), (None, None));

    let waiting = tokio::spawn(locks.mutex(&raw).wait(Duration::from_secs(20)).lock());
    let waits = async || (locks.inspect(&raw).await.unwrap().waiters == 1).then_some(());
    eventually("ours in their line", waits).await;
    let mut behind = etcdctl(&cluster, raw.as_str());
    let two = async || (locks.inspect(&raw).await.unwrap().waiters == 2).then_some(());
    eventually("theirs behind ours", two).await;
    theirs.kill().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert_eq!(locks.inspect(&raw).await.unwrap().waiters, 1, "the one behind waits still");
    guard.release().await.unwrap();
    assert!(says(&mut behind).await.starts_with("jobs/nightly/"));
    assert!(locks.mutex(&raw).try_lock().await.unwrap_err().is_busy());
}
