//! Failovers: of a primary that is killed, that stops, and that is replaced as planned.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use distlock::{ErrorKind, Fault, Promise};
use distlock_tests::{load::work, server::ClusterGroup, wait::renewal};

use super::{LIMIT, SECOND, contest::Contest, manager, now, spread::channels, told_busy, until};

/// A lock that its replica has outlives its primary, and work goes on by itself on all servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_replicated_lock_outlives_its_primary_under_load() {
    const TTL: Duration = Duration::from_secs(30);
    let group = ClusterGroup::start();
    let (locks, rival) = (manager(&group, "").await, manager(&group, "").await);
    let stop = Arc::new(AtomicBool::new(false));
    let done: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
    let mut workers = Vec::new();
    for (server, done) in done.iter().enumerate() {
        for locks in [&locks, &rival] {
            let key = format!("{}:load", group.name_at(server));
            workers.push(tokio::spawn(work(locks.clone(), key, done.clone(), stop.clone())));
        }
    }
    let name = group.name_at(0);
    let guard = locks.mutex(name.as_str()).ttl(TTL).lock().await.unwrap();
    // One more write that is in step: then the grant is too.
    let mut wait = redis::pipe();
    wait.cmd("SET").arg(format!("{name}:mark")).arg(1).arg("PX").arg(1000).ignore();
    wait.cmd("WAIT").arg(1).arg(5_000);
    let confirmed: (u64,) = wait.query_async(&mut group.servers()[0].admin().await.unwrap()).await.unwrap();
    assert_eq!(confirmed, (1,));

    group.servers()[0].kill().unwrap();
    group.failed_over(0).await;
    let before: Vec<u64> = done.iter().map(|done| done.load(Ordering::Acquire)).collect();
    until("work goes on everywhere", async || {
        done.iter().zip(&before).all(|(done, before)| done.load(Ordering::Acquire) > before + 30)
    })
    .await;
    renewal(LIMIT, || guard.remaining()).await.unwrap();
    told_busy(&rival, &name).await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(rival.mutex(name.as_str()).lock().await.unwrap().fencing_token() > token);

    stop.store(true, Ordering::Release);
    for worker in workers {
        worker.await.unwrap();
    }
}

/// Processes contend while a primary is killed. Leases are shorter than a failover takes, so who lost one without a trace knows that it is over before
/// another may enter: nobody overlaps, and tokens grow over the failover.
#[tokio::test]
async fn procs_a_primary_that_is_killed_under_load_lets_nobody_overlap() {
    let group = ClusterGroup::start();
    let contest = Contest::start(&group, 6).await;
    let victim = group.server_of("distlock:key-0", None).unwrap();
    group.servers()[victim].kill().unwrap();
    group.failed_over(victim).await;
    // Also with the lock that had its server killed.
    contest.goes_on(" key-0 ", 5).await;
    let verdict = contest.end().await;
    println!("{verdict}");
    verdict.assert_clean(200);
}

/// The violation that the table admits: what the replica didn't get is gone, and two hold the lock. A resource that compares tokens is safe.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_failover_behind_a_cut_stream_lets_two_hold_a_lock_and_the_later_token_is_larger() {
    const TTL: Duration = Duration::from_secs(30);
    let group = ClusterGroup::start();
    let (locks, rival) = (manager(&group, "").await, manager(&group, "").await);
    let name = group.name_at(0);
    locks.mutex(name.as_str()).lock().await.unwrap().release().await.unwrap();
    group.replicated(0).await;

    group.cut_replication(0).await;
    let first = locks.mutex(name.as_str()).ttl(TTL).lock().await.unwrap();
    let granted = now();
    group.servers()[0].kill().unwrap();
    group.failed_over(0).await;
    let failover = now() - granted;
    let second = rival.mutex(name.as_str()).ttl(TTL).wait(30 * SECOND).lock().await.unwrap();
    assert!(first.is_valid() && second.is_valid(), "both believe in it, with good reason");
    assert_eq!(locks.guarantees().under(Fault::Failover), Promise::Violated);
    assert!(
        first.fencing_token() < second.fencing_token(),
        "{} and {}",
        first.fencing_token(),
        second.fencing_token()
    );
    assert_eq!(locks.guarantees().under(Fault::HolderPausedFenced), Promise::Fenced);

    // The first learns of it at its next renewal.
    let lost = tokio::time::timeout(TTL, first.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    let took = now() - granted;
    assert!(
        took < TTL.mul_f64(1.1 / 3.0) + failover + 5 * SECOND,
        "{took:?}, of which {failover:?} failover"
    );
    second.check().unwrap();
}

/// A primary that stops and goes on later as a replica: nobody has to restart anything, and its neighbours' locks go on all the while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_primary_that_stops_is_left_and_may_come_back() {
    let group = ClusterGroup::start();
    let locks = manager(&group, "").await;
    let (name, neighbour) = (group.name_at(0), group.name_at(1));
    let guard = locks.mutex(name.as_str()).ttl(40 * SECOND).lock().await.unwrap();
    let beside = locks.mutex(neighbour.as_str()).ttl(40 * SECOND).lock().await.unwrap();
    group.replicated(0).await;
    group.servers()[0].pause().unwrap();
    group.failed_over(0).await;
    // Whoever had asked the silent server is told when it is replaced, and asks the other.
    let failed_over = now();
    let other = locks.mutex(format!("{name}:2")).wait(20 * SECOND).lock().await;
    assert!(now() - failed_over < 10 * SECOND, "{:?}", now() - failed_over);
    guard.check().unwrap();
    group.servers()[0].resume().unwrap();
    until("the old primary follows the new one", async || {
        group.servers()[0].is_replica().await.is_ok_and(|replica| replica)
    })
    .await;
    other.unwrap().release().await.unwrap();
    beside.release().await.unwrap();
    guard.release().await.unwrap();
    drop(locks.mutex(name.as_str()).wait(LIMIT).lock().await.unwrap());
}

/// A planned failover loses nothing, and nobody notices much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_planned_failover_is_followed() {
    let group = ClusterGroup::start();
    let locks = manager(&group, "").await;
    let name = group.name_at(0);
    let guard = locks.mutex(name.as_str()).ttl(20 * SECOND).lock().await.unwrap();
    let mut failover = redis::cmd("CLUSTER");
    failover.arg("FAILOVER");
    failover.exec_async(&mut group.servers()[3].admin().await.unwrap()).await.unwrap();
    assert_eq!(group.failed_over(0).await, 3);
    let start = now();
    let other = locks.mutex(format!("{name}:2")).wait(20 * SECOND).lock().await.unwrap();
    assert!(now() - start < 5 * SECOND, "{:?}", now() - start);
    renewal(LIMIT, || guard.remaining()).await.unwrap();

    // Waiters are told by the new primary from now on.
    let heard = &group.servers()[3];
    until("the manager listens there", async || channels(heard).await == 1).await;
    let waiting = tokio::spawn(locks.mutex(name.as_str()).fair().wait(LIMIT).lock());
    until("somebody waits", async || locks.inspect(name.as_str()).await.unwrap().waiters == 1).await;
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    other.release().await.unwrap();
}

/// A grant that no replica has is given back, on the server of its slot; the others' replicas don't count for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_grant_without_its_replica_is_given_back() {
    let group = ClusterGroup::start();
    let locks = manager(&group, "min_replicas=1&replica_timeout=1s").await;
    let (name, neighbour) = (group.name_at(0), group.name_at(1));
    drop(locks.mutex(name.as_str()).lock().await.unwrap());
    group.cut_replication(0).await;
    for error in [
        locks.mutex(name.as_str()).lock().await.unwrap_err(),
        locks.mutex(name.as_str()).fair().lock().await.unwrap_err(),
        locks.rw_lock(format!("{name}:rw")).write().await.unwrap_err(),
        locks.mutex_all([format!("{name}:a"), format!("{name}:b")]).lock().await.unwrap_err(),
    ] {
        assert_eq!(error.code(), "NOT_REPLICATED", "{error}");
    }
    for key in group.servers()[0].keys().await.unwrap() {
        assert!(!key.starts_with("distlock:"), "{key} is left");
    }
    // The others' replicas confirm, but not for a slot that has come here meanwhile.
    drop(locks.mutex(neighbour.as_str()).lock().await.unwrap());
    let slot = group.slot_of(0, &neighbour).unwrap();
    group.migrate(slot, 1, 0).await.unwrap();
    let error = locks.mutex(neighbour.as_str()).lock().await.unwrap_err();
    assert_eq!(error.code(), "NOT_REPLICATED", "{error}");
}
