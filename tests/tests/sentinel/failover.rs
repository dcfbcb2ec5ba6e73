//! Failovers: of a primary that is killed, that stops, and that is replaced as planned.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use distlock::{ErrorKind, Fault, Promise};
use distlock_tests::{
    load::work,
    server::{GROUP, SentinelGroup},
    wait::renewal,
};

use super::{LIMIT, SECOND, manager, now, told_busy, until};

/// A lock that replicas have outlives its primary, and work goes on by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_replicated_lock_outlives_its_primary_under_load() {
    const TTL: Duration = Duration::from_secs(30);
    let group = SentinelGroup::start();
    let (locks, rival) = (manager(&group, "").await, manager(&group, "").await);
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let workers: Vec<_> = [&locks, &rival, &locks, &rival]
        .into_iter()
        .enumerate()
        .map(|(index, locks)| {
            let key = format!("load:{}", index / 2);
            tokio::spawn(work(locks.clone(), key, done.clone(), stop.clone()))
        })
        .collect();
    let guard = locks.mutex("order:1").ttl(TTL).lock().await.unwrap();
    group.replicated("distlock:order:1").await;

    group.servers()[0].kill().unwrap();
    group.failed_over().await;
    let before = done.load(Ordering::Acquire);
    until("work goes on", async || done.load(Ordering::Acquire) > before + 50).await;
    renewal(LIMIT, || guard.remaining()).await.unwrap();
    told_busy(&rival, "order:1").await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(rival.mutex("order:1").lock().await.unwrap().fencing_token() > token);

    stop.store(true, Ordering::Release);
    for worker in workers {
        worker.await.unwrap();
    }
}

/// The violation that the table admits: what replicas didn't get is gone, and two hold the lock. A resource that compares tokens is
/// safe; with a counter that only counts on, it wouldn't be.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_failover_behind_a_cut_stream_lets_two_hold_a_lock_and_the_later_token_is_larger() {
    const TTL: Duration = Duration::from_secs(30);
    let group = SentinelGroup::start();
    let (locks, rival) = (manager(&group, "").await, manager(&group, "").await);
    locks.mutex("order:1").lock().await.unwrap().release().await.unwrap();
    let count = async |server: usize| {
        let mut connection = group.servers()[server].admin().await.unwrap();
        redis::cmd("INCR").arg("naive").query_async::<u64>(&mut connection).await.unwrap()
    };
    count(0).await;
    group.replicated("naive").await;

    group.cut_replication().await;
    let naive = count(0).await;
    let first = locks.mutex("order:1").ttl(TTL).lock().await.unwrap();
    let granted = now();
    group.servers()[0].kill().unwrap();
    let primary = group.failed_over().await;
    let failover = now() - granted;
    let second = rival.mutex("order:1").ttl(TTL).wait(30 * SECOND).lock().await.unwrap();
    assert!(first.is_valid() && second.is_valid(), "both believe in it, with good reason");
    assert_eq!(locks.guarantees().under(Fault::Failover), Promise::Violated);

    // The resource has seen the later holder.
    let mut seen = second.fencing_token();
    assert!(first.fencing_token() < seen, "{} and {seen}", first.fencing_token());
    assert_eq!(locks.guarantees().under(Fault::HolderPausedFenced), Promise::Fenced);
    // The control: a resource couldn't tell two that counted on.
    assert_eq!(count(primary).await, naive);

    // The first learns of it at its next renewal.
    let lost = tokio::time::timeout(TTL, first.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    let took = now() - granted;
    assert!(
        took < TTL.mul_f64(1.1 / 3.0) + failover + 5 * SECOND,
        "{took:?}, of which {failover:?} failover"
    );
    second.check().unwrap();
    drop(second);
    let third = locks.mutex("order:1").wait(30 * SECOND).lock().await.unwrap();
    assert!(third.fencing_token() > std::mem::replace(&mut seen, third.fencing_token()));
}

/// Locks that were given back while the replicas were cut off stand on the new primary. They are given back there too, and nobody waits for
/// their ttl; but for those of a process that has gone meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_what_was_given_back_is_given_back_to_the_new_primary_too() {
    const TTL: Duration = Duration::from_secs(120);
    let group = SentinelGroup::start();
    let (locks, rival, gone) =
        (manager(&group, "").await, manager(&group, "").await, manager(&group, "").await);
    let awaited = locks.mutex("awaited").ttl(TTL).lock().await.unwrap();
    let dropped = locks.mutex("dropped").ttl(TTL).lock().await.unwrap();
    let control = gone.mutex("control").ttl(TTL).lock().await.unwrap();
    for key in ["awaited", "dropped", "control"] {
        group.replicated(&format!("distlock:{key}")).await;
    }
    group.cut_replication().await;
    awaited.release().await.unwrap();
    drop(dropped);
    control.release().await.unwrap();
    assert!(gone.shutdown(SECOND).await.is_clean());
    drop(gone);
    until("the dropped one is given back", async || {
        !group.servers()[0].has("distlock:dropped").await.unwrap()
    })
    .await;
    group.servers()[0].kill().unwrap();
    let primary = group.failed_over().await;
    assert!(group.servers()[primary].has("distlock:control").await.unwrap(), "it knows nothing of it");
    for key in ["awaited", "dropped"] {
        let again = rival.mutex(key).wait(30 * SECOND).lock().await;
        again.unwrap_or_else(|error| panic!("{error}")).release().await.unwrap();
    }
    let error = rival.mutex("control").wait(SECOND).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

/// A primary that stops and goes on later as a replica: nobody has to restart anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_primary_that_stops_is_left_and_may_come_back() {
    let group = SentinelGroup::start();
    let locks = manager(&group, "").await;
    let guard = locks.mutex("order:1").ttl(40 * SECOND).lock().await.unwrap();
    group.replicated("distlock:order:1").await;
    group.servers()[0].pause().unwrap();
    group.failed_over().await;
    let other = locks.mutex("order:2").ttl(40 * SECOND).wait(20 * SECOND).lock().await.unwrap();
    guard.check().unwrap();
    group.servers()[0].resume().unwrap();
    until("the old primary follows the new one", async || {
        group.servers()[0].is_replica().await.is_ok_and(|replica| replica)
    })
    .await;
    other.release().await.unwrap();
    guard.release().await.unwrap();
    drop(locks.mutex("order:1").try_lock().await.unwrap());
}

/// A planned failover: the old primary takes writes for up to ten seconds more, and is left long before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_planned_failover_is_noticed_while_the_old_primary_still_takes_writes() {
    let group = SentinelGroup::start();
    group.leave_old_primaries();
    let locks = manager(&group, "").await;
    let guard = locks.mutex("order:1").ttl(30 * SECOND).lock().await.unwrap();
    group.replicated("distlock:order:1").await;
    let mut failover = redis::cmd("SENTINEL");
    failover.arg("FAILOVER").arg(GROUP);
    failover.exec_async(&mut group.sentinels()[0].admin().await.unwrap()).await.unwrap();
    let primary = group.failed_over().await;
    let switched = now();
    until("new locks are where the new primary is", async || {
        let other = locks.mutex("order:2").wait(20 * SECOND).lock().await.unwrap();
        let exists = group.servers()[primary].has("distlock:order:2").await.is_ok_and(|exists| exists);
        drop(other);
        exists
    })
    .await;
    assert!(now() - switched < 7 * SECOND, "{:?}", now() - switched);
    renewal(LIMIT, || guard.remaining()).await.unwrap();
    // Confirmed: the new primary has it too.
    guard.release().await.unwrap();
}

/// Strict: a lease from before the failover is lost, also if the new primary has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_strict_mode_ends_leases_with_the_primary_that_granted_them() {
    let group = SentinelGroup::start();
    let (strict, lenient) = (manager(&group, "strict_failover=on").await, manager(&group, "").await);
    let ended = strict.mutex("order:1").ttl(40 * SECOND).lock().await.unwrap();
    let kept = lenient.mutex("order:2").ttl(40 * SECOND).lock().await.unwrap();
    group.replicated("distlock:order:1").await;
    group.replicated("distlock:order:2").await;
    // Through some renewals nothing happens.
    let brief = strict.mutex("order:3").ttl(4 * SECOND).lock().await.unwrap();
    for _ in 0..2 {
        renewal(LIMIT, || brief.remaining()).await.unwrap();
    }
    brief.release().await.unwrap();
    ended.check().unwrap();
    group.servers()[0].kill().unwrap();
    group.failed_over().await;
    let lost = tokio::time::timeout(30 * SECOND, ended.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::Lost, "{lost}");
    kept.check().unwrap();
    // What is granted after it belongs to the new history. Another lock: the first one may stand on the new primary until it lapses.
    let again = strict.mutex("order:4").ttl(6 * SECOND).wait(20 * SECOND).lock().await.unwrap();
    renewal(LIMIT, || again.remaining()).await.unwrap();
}
