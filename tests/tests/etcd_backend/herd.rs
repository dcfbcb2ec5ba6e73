//! One release wakes those whose turn it is, and nobody else.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

use distlock_tests::server::{EtcdCluster, EtcdSetup};
use etcd_client::WatchOptions;

use super::tools::{eventually, key, manager};

/// A number that the server tells of itself.
fn metric(cluster: &EtcdCluster, name: &str) -> u64 {
    let mut stream = TcpStream::connect(cluster.address(0)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: etcd\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let value = answer.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    value.trim().parse::<f64>().unwrap() as u64
}

/// How many events the server has told those who watch, since its start.
fn told(cluster: &EtcdCluster) -> u64 {
    metric(cluster, "etcd_debugging_mvcc_events_total ")
}

/// How many watch.
pub(super) fn watchers(cluster: &EtcdCluster) -> u64 {
    metric(cluster, "etcd_debugging_mvcc_watcher_total ")
}

/// 200 tasks of four processes in line: a release is told to two of them at most, each time. The control watches the whole
/// line, as a naive waiter does, and everybody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_two_of_200_at_most() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let mut managers = Vec::new();
    for n in 0..4 {
        managers.push(manager(&cluster.url(), &format!("m{n}")).await);
    }
    let lock = key("herd");
    let held = managers[0].mutex(&lock).fair().lock().await.unwrap();
    let (report, mut served) = tokio::sync::mpsc::unbounded_channel();
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..200 {
        let (mutex, report) = (managers[n % 4].mutex(&lock).fair().wait_forever(), report.clone());
        waiting.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            report.send(guard).unwrap();
        });
    }
    let all = async || (managers[0].inspect(&lock).await.unwrap().waiters == 200).then_some(());
    eventually("200 waiters", all).await;
    eventually("their watches", async || (watchers(&cluster) == 200).then_some(())).await;
    let mut client = cluster.client().await.unwrap();
    let mut last = client.watch("last", None).await.unwrap();
    let mut guard = held;
    for round in 0..5 {
        let before = told(&cluster);
        guard.release().await.unwrap();
        guard = served.recv().await.unwrap();
        // Events are told in order, so those of the release and of the grant are told before this one is.
        client.put("last", "", None).await.unwrap();
        while last.message().await.unwrap().unwrap().events().is_empty() {}
        let woken = told(&cluster) - before - 1;
        assert!((1..=2).contains(&woken), "round {round}: {woken} were told");
    }
    drop(guard);
    waiting.shutdown().await;

    client.put("naive/0", "", None).await.unwrap();
    let mut watches = Vec::new();
    for _ in 0..200 {
        watches.push(client.watch("naive/", Some(WatchOptions::new().with_prefix())).await.unwrap());
    }
    let before = told(&cluster);
    client.delete("naive/0", None).await.unwrap();
    eventually("the herd", async || (told(&cluster) - before >= 200).then_some(())).await;
}
