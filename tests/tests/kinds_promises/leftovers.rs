//! What stays in the store, looked at all the time while every kind of lock is used, given up, kept and dropped at random.

use std::time::Duration;

use distlock::{LockError, LockManager};
use distlock_tests::{
    contend::Contender,
    naive::{KindFlaw, NaiveKinds},
    server::RedisServer,
    wait::Deadline,
};
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::*;

/// Every key and its ttl at one moment.
const SAMPLE: &str = "local lasting = {} for _, key in ipairs(redis.call('keys', '*')) do \
                      if redis.call('pttl', key) == -1 then lasting[#lasting + 1] = key end end \
                      return { #redis.call('keys', '*'), lasting }";

/// Looks as often as it can; what it saw without a ttl, and the most keys it saw at once.
async fn watch(mut admin: MultiplexedConnection, end: Deadline) -> (Vec<String>, usize, usize) {
    let (mut lasting, mut most, mut looks) = (Vec::new(), 0, 0);
    let sample = redis::Script::new(SAMPLE);
    while !end.is_past() {
        let (keys, without): (usize, Vec<String>) = sample.invoke_async(&mut admin).await.unwrap();
        (most, looks) = (most.max(keys), looks + 1);
        lasting.extend(without);
        tokio::task::yield_now().await;
    }
    lasting.sort();
    lasting.dedup();
    (lasting, most, looks)
}

/// One random use of one random kind.
async fn use_one(locks: &LockManager) -> Result<(), LockError> {
    let key = format!("k{}", fastrand::u8(..2));
    let (wait, ttl) =
        (Duration::from_millis(fastrand::u64(1..60)), Duration::from_millis(fastrand::u64(400..1_200)));
    let work = Duration::from_micros(fastrand::u64(..4_000));
    let (rw, mutex, permits) = (format!("rw:{key}"), format!("mutex:{key}"), format!("permits:{key}"));
    match fastrand::u8(..10) {
        0 => {
            let guard = locks.mutex(&mutex).ttl(ttl).wait(wait).lock().await?;
            tokio::time::sleep(work).await;
            drop(guard);
        }
        1 => {
            let guard = locks.mutex(format!("fair:{key}")).fair().ttl(ttl).wait(wait).lock().await?;
            tokio::time::sleep(work).await;
            guard.release().await?;
        }
        2 => drop(
            locks.mutex(&mutex).ttl(ttl).wait(wait).hold_at_least(Duration::from_millis(20)).lock().await?,
        ),
        3 => {
            let reader = locks.rw_lock(&rw).ttl(ttl).wait(wait).read().await?;
            tokio::time::sleep(work).await;
            drop(reader.try_upgrade().await?);
        }
        4 => {
            let writer = locks.rw_lock(&rw).ttl(ttl).wait(wait).write().await?;
            let reader = writer.downgrade().await?;
            tokio::time::sleep(work).await;
            drop(reader);
        }
        5 => {
            let some =
                locks.semaphore(&permits, 3).ttl(ttl).wait(wait).acquire_many(fastrand::u32(1..=3)).await?;
            tokio::time::sleep(work).await;
            some.release().await?;
        }
        6 => {
            let all = locks.mutex_all([mutex.clone(), format!("{mutex}:more"), "mutex:k0".to_owned()]);
            let all = all.ttl(ttl).wait(wait).lock().await?;
            tokio::time::sleep(work).await;
            drop(all);
        }
        7 => {
            let mut candidate = locks.election(format!("election:{key}")).ttl(ttl).stand();
            let _ = tokio::time::timeout(wait, candidate.elected()).await;
        }
        8 => {
            let saga = format!("saga {}", fastrand::u8(..2));
            let guard = locks.mutex(format!("owner:{key}")).owner(saga).ttl(ttl).wait(wait).lock().await?;
            tokio::time::sleep(work).await;
            drop(guard);
        }
        // Held past what it was asked for, or given up while it is asked for.
        _ => {
            let attempt = locks.rw_lock(&rw).ttl(ttl).wait(wait).write();
            let _ = tokio::time::timeout(work, attempt).await;
        }
    }
    Ok(())
}

/// Until the time is up.
pub(crate) async fn workload(server: &RedisServer, time: Duration) -> (Vec<String>, usize, usize) {
    let end = Deadline::after(time);
    let mut tasks = JoinSet::new();
    let mut managers = Vec::new();
    for _ in 0..3 {
        let locks = connect(server).await;
        for _ in 0..5 {
            let locks = locks.clone();
            tasks.spawn(async move {
                while !end.is_past() {
                    if let Err(error) = use_one(&locks).await {
                        // What isn't had in time, or lost on a busy machine, is no matter here.
                        let wrong =
                            ["CONFIG", "DEADLOCK", "KEY_CONFLICT", "LIMIT_MISMATCH", "SCRIPT", "SHUTDOWN"];
                        assert!(!wrong.contains(&error.code()), "{error}");
                    }
                }
            });
        }
        managers.push(locks);
    }
    let seen = watch(server.admin().await.unwrap(), end).await;
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    for locks in managers {
        locks.shutdown(Duration::from_secs(2)).await;
    }
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_every_key_has_a_ttl_at_any_moment() {
    let server = start();
    let (lasting, most, looks) = workload(&server, Duration::from_secs(6)).await;
    println!("{lasting:?}, {most} keys at most, {looks} looks");
    assert!(lasting.iter().all(|key| key.ends_with("}!f")), "{lasting:?}");
    assert!(!lasting.is_empty() && most > 12 && looks > 20, "it saw little: {lasting:?} {most} {looks}");
    // And at the end nothing is left but those, and tombstones.
    let clean = async || {
        let keys = server.keys().await.unwrap();
        keys.iter().all(|key| key.ends_with("}!f") || key.contains("}!x:")).then_some(())
    };
    distlock_tests::wait::until("an empty store", LIMIT, clean).await.unwrap();
}

#[tokio::test]
async fn fault_a_naive_queue_is_seen_to_last() {
    let server = start();
    let end = Deadline::after(Duration::from_millis(500));
    let locks = NaiveKinds::connect(&server.url(), KindFlaw::EndlessQueue, 1, 1).await.unwrap();
    let _held = locks.acquire("k", TTL).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(400), locks.acquire("k", TTL));
    let (watched, waited) = tokio::join!(watch(server.admin().await.unwrap(), end), waits);
    assert!(waited.is_err());
    assert_eq!(watched.0, ["k:q"]);
}
