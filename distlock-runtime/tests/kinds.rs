//! The kinds of lock beside the plain one, on the memory store.
#![cfg(feature = "testkit")]

use std::time::Duration;

use distlock_runtime::testkit::{memory_paused, paused};
use distlock_runtime::{ErrorKind, LockManager};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_waiting_writer_is_not_passed_by_new_readers() {
    let locks = memory_paused();
    let catalog = || locks.rw_lock("catalog").wait(LONG);
    let reader = catalog().read().await.unwrap();
    let mut writer = tokio::spawn(catalog().write());
    tokio::task::yield_now().await;
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut writer).await.is_err());
    assert_eq!(catalog().try_read().await.unwrap_err().kind(), ErrorKind::Busy);
    let late = tokio::spawn(catalog().read());
    tokio::task::yield_now().await;
    drop(reader);
    let writer = writer.await.unwrap().unwrap();
    assert!(!late.is_finished());
    let token = writer.fencing_token();
    drop(writer);
    assert_eq!(late.await.unwrap().unwrap().fencing_token(), token, "readers carry the last write's token");
}

#[tokio::test(start_paused = true)]
async fn upgrade_needs_the_only_reader_and_downgrade_leaves_no_gap() {
    let locks = memory_paused();
    let catalog = || locks.rw_lock("catalog").wait(LONG);
    let (one, other) = (catalog().read().await.unwrap(), catalog().read().await.unwrap());
    let failed = one.try_upgrade().await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Busy);
    let as_error: &dyn std::error::Error = &failed;
    assert_eq!(as_error.to_string(), failed.error.to_string());
    assert!(failed.guard.is_valid(), "the share is kept");
    drop(other);
    let writer = failed.guard.try_upgrade().await.unwrap();
    assert!(catalog().try_read().await.is_err());
    let next = tokio::spawn(catalog().write());
    tokio::task::yield_now().await;
    let reader = writer.downgrade().await.unwrap();
    assert!(!next.is_finished(), "no writer got in between");
    tokio::time::sleep(LONG / 2).await;
    assert!(reader.is_valid(), "the share is renewed");
    drop(reader);
    drop(next.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn write_under_read_is_a_deadlock_at_once() {
    let locks = memory_paused();
    let guard = locks.rw_lock("catalog").read().await.unwrap();
    let inner = guard.run(locks.rw_lock("catalog").reentrant().write()).await.unwrap();
    assert_eq!(inner.unwrap_err().kind(), ErrorKind::Deadlock);
    let inner = guard.run(locks.rw_lock("catalog").reentrant().read()).await.unwrap();
    assert_eq!(inner.unwrap().fencing_token(), guard.fencing_token());
}

#[tokio::test(start_paused = true)]
async fn permits_never_exceed_the_limit_and_heavy_holds_have_their_turn() {
    let locks = memory_paused();
    let gpu = || locks.semaphore("gpu", 4).wait(LONG);
    let three = gpu().acquire_many(3).await.unwrap();
    let heavy = tokio::spawn(gpu().acquire_many(4));
    tokio::task::yield_now().await;
    assert!(gpu().try_acquire().await.unwrap_err().is_busy(), "nobody passes the heavy one");
    drop(three);
    let heavy = heavy.await.unwrap().unwrap();
    assert!(gpu().try_acquire().await.unwrap_err().is_busy());
    drop(heavy);
    let all = [gpu(), gpu(), gpu(), gpu()];
    let mut held = Vec::new();
    for one in all {
        held.push(one.try_acquire().await.unwrap());
    }
    assert!(gpu().try_acquire().await.unwrap_err().is_busy());
    let mismatch = locks.semaphore("gpu", 5).try_acquire().await.unwrap_err();
    assert_eq!(mismatch.kind(), ErrorKind::LimitMismatch, "{mismatch}");
    assert!(gpu().resize(5).await.unwrap());
    held.push(locks.semaphore("gpu", 5).try_acquire().await.unwrap());
    let error = gpu().acquire_many(9).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("at most all: 9 of 4"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn permits_of_all_holds_count_before_a_task_waits_for_itself() {
    let locks = memory_paused();
    let pool = || locks.semaphore("pool", 2).wait(LONG);
    let nested = async {
        let second = pool().acquire().await.expect("one is left");
        // Under the same guard twice is still one permit.
        let third = second.run(async { second.run(pool().acquire()).await.unwrap() }).await.unwrap();
        let error = third.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
        assert!(error.to_string().contains("holds 2 of 2 permits and asks for 1 more"), "{error}");
    };
    let first = pool().acquire().await.unwrap();
    first.run(first.run(nested)).await.unwrap().unwrap();
    // What was given back doesn't count.
    let second = first.run(pool().acquire()).await.unwrap().unwrap();
    drop(second);
    drop(first.run(pool().acquire()).await.unwrap().unwrap());
}

/// A hold outlives the limit under which it was taken, upwards and downwards.
#[tokio::test(start_paused = true)]
async fn a_task_waits_for_itself_by_the_limit_that_there_is_now() {
    let locks = memory_paused();
    let pool = |limit| locks.semaphore("pool", limit).wait(LONG);
    let two = pool(2).acquire_many(2).await.unwrap();
    assert!(pool(2).resize(5).await.unwrap());
    let more = two.run(pool(5).acquire_many(3)).await.unwrap().expect("there is room for them now");
    let nested = async { more.run(pool(5).acquire()).await };
    let error = two.run(nested).await.unwrap().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(error.to_string().contains("holds 5 of 5 permits"), "{error}");
    assert!(pool(5).resize(3).await.unwrap());
    // Nothing is wrong with holds beyond a lower limit: they go on, and end as others do.
    assert!(two.is_valid() && more.is_valid());
    more.extend(LONG).await.unwrap();
    let error = more.run(pool(5).acquire()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitMismatch, "{error}");
    assert!(pool(3).resize(2).await.unwrap());
    let error = two.run(pool(2).acquire()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "it can't end before this task does: {error}");
    assert!(pool(2).try_acquire().await.unwrap_err().is_busy());
    assert_eq!(locks.inspect("pool").await.unwrap().permits_in_use, Some(5));
    more.release().await.unwrap();
    assert!(pool(2).try_acquire().await.unwrap_err().is_busy());
    two.release().await.unwrap();
    drop(pool(2).try_acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_circle_says_nothing_of_a_lock_that_is_held_already() {
    let locks = memory_paused();
    let (one, other) = (locks.mutex("a").lock().await.unwrap(), locks.mutex("b").lock().await.unwrap());
    let cross = tokio::join!(
        async {
            let outcome = one.run(locks.mutex("b").wait(LONG).lock()).await.unwrap();
            drop(one);
            outcome.map(drop)
        },
        async {
            let outcome = other.run(locks.mutex("a").wait(LONG).lock()).await.unwrap();
            drop(other);
            outcome.map(drop)
        }
    );
    let error = match cross {
        (Err(error), Ok(())) | (Ok(()), Err(error)) => error,
        both => panic!("one of them is told: {both:?}"),
    };
    let text = error.to_string();
    assert!(text.starts_with("lock: would wait for itself for key"), "{text}");
    assert!(!text.contains("already holds"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn two_kinds_on_one_key_are_a_conflict() {
    let locks = memory_paused();
    let _plain = locks.mutex("k").lock().await.unwrap();
    for error in [
        locks.rw_lock("k").try_read().await.map(drop).unwrap_err(),
        locks.semaphore("k", 2).try_acquire().await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::KeyConflict, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_locks_are_all_or_none_and_never_a_circle() {
    let locks = memory_paused();
    let held = locks.mutex("b").lock().await.unwrap();
    let failed = locks.mutex_all(["c", "a", "b"]).try_lock().await.unwrap_err();
    assert_eq!(failed.key().unwrap().as_str(), "b");
    for free in ["a", "c"] {
        drop(locks.mutex(free).try_lock().await.unwrap());
    }
    drop(held);
    let transfer = |from: &'static str, to: &'static str| {
        let locks = locks.clone();
        tokio::spawn(async move {
            for _ in 0..50 {
                let both = locks.mutex_all([from, to, from]).lock().await.unwrap();
                assert_eq!(both.guards().len(), 2);
                both.run(tokio::task::yield_now()).await.unwrap();
            }
        })
    };
    let (one, other) = (transfer("a", "b"), transfer("b", "a"));
    one.await.unwrap();
    other.await.unwrap();
    assert_eq!(locks.mutex_all(Vec::<String>::new()).lock().await.unwrap_err().kind(), ErrorKind::Config);
}

async fn both(
    locks: LockManager,
    first: &'static str,
    second: &'static str,
) -> Result<(), distlock_runtime::LockError> {
    let guard = locks.mutex(first).wait(LONG).lock().await?;
    guard
        .run(async {
            // Both have their first lock before one asks for its second.
            tokio::time::sleep(Duration::from_secs(1)).await;
            locks.mutex(second).wait(LONG).lock().await.map(drop)
        })
        .await?
}

#[tokio::test(start_paused = true)]
async fn a_circle_of_waiting_tasks_is_found_and_named() {
    let locks = memory_paused();
    let started = tokio::time::Instant::now();
    let one = tokio::spawn(both(locks.clone(), "a", "b"));
    let other = tokio::spawn(both(locks.clone(), "b", "a"));
    let outcomes = [one.await.unwrap(), other.await.unwrap()];
    assert!(started.elapsed() < Duration::from_millis(1100), "{:?}", started.elapsed());
    let failed: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "one gives way, the other goes on: {outcomes:?}");
    assert_eq!(failed[0].kind(), ErrorKind::Deadlock);
    let text = failed[0].to_string();
    assert!(text.contains("holds \"a\"") || text.contains("holds \"b\""), "{text}");
}

#[tokio::test(start_paused = true)]
async fn fair_locks_are_granted_in_order_of_arrival() {
    let locks = memory_paused();
    let fair = || locks.mutex("k").fair().wait(LONG);
    let first = fair().lock().await.unwrap();
    let (report, mut order) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..20 {
        let (lock, report) = (fair(), report.clone());
        tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            report.send(number).unwrap();
            drop(guard);
        });
        tokio::task::yield_now().await;
    }
    assert!(fair().try_lock().await.unwrap_err().is_busy());
    drop(first);
    for number in 0..20 {
        assert_eq!(order.recv().await, Some(number));
    }
}

#[tokio::test(start_paused = true)]
async fn one_candidate_leads_and_the_next_follows_it() {
    let locks = memory_paused();
    let election = || locks.election("scheduler").ttl(Duration::from_secs(3));
    let mut one = election().stand();
    let first = one.elected().await.unwrap();
    let mut other = election().stand();
    assert!(tokio::time::timeout(LONG, other.elected()).await.is_err());
    assert!(one.is_leader() && !other.is_leader());
    // A pause longer than the ttl: the lead is lost, and both stand for it again.
    tokio::time::advance(Duration::from_secs(10)).await;
    assert!(!one.is_leader(), "judged by the clock, before anybody was told");
    let mut leads = Vec::new();
    for _ in 0..2 {
        let next = tokio::select! {
            lead = one.elected() => { let lead = lead.unwrap(); one = election().stand(); lead }
            lead = other.elected() => { let lead = lead.unwrap(); other = election().stand(); lead }
        };
        assert!(next.fencing_token() > first.fencing_token());
        leads.push(next.fencing_token());
    }
    assert!(leads[0] < leads[1], "each lead has its own, larger token");
}

#[tokio::test(start_paused = true)]
async fn work_of_a_lead_that_is_lost_is_stopped_and_begun_anew() {
    let locks = memory_paused();
    let mut candidate = locks.election("scheduler").ttl(Duration::from_secs(3)).stand();
    let mut starts = 0;
    let outcome = candidate
        .while_leading(|_| {
            starts += 1;
            let run = starts;
            async move {
                if run == 1 {
                    tokio::time::advance(Duration::from_secs(10)).await;
                    std::future::pending::<()>().await;
                }
                run
            }
        })
        .await;
    assert_eq!(outcome.unwrap(), 2);
    let report = locks.shutdown(Duration::ZERO).await;
    assert_eq!(report.left.len(), 1, "the lead was still held");
    assert_eq!(candidate.elected().await.unwrap_err().kind(), ErrorKind::Shutdown);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_every_kind_are_bounded() {
    let locks = paused(LockManager::builder().max_waiters(2, 4));
    let wait = Duration::from_secs(1);
    let fair = locks.mutex("fair").fair().lock().await.unwrap();
    let permit = locks.semaphore("permits", 1).acquire().await.unwrap();
    let writer = locks.rw_lock("rw").write().await.unwrap();
    let owner = locks.mutex("owned").owner("one").lock().await.unwrap();
    for kind in ["fair", "permits", "rw", "owned"] {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let locks = locks.clone();
            tasks.spawn(async move {
                match kind {
                    "fair" => locks.mutex(kind).fair().wait(wait).lock().await.map(drop),
                    "permits" => locks.semaphore(kind, 1).wait(wait).acquire().await.map(drop),
                    "rw" => locks.rw_lock(kind).wait(wait).read().await.map(drop),
                    _ => locks.mutex(kind).owner("two").wait(wait).lock().await.map(drop),
                }
                .unwrap_err()
                .kind()
            });
        }
        let outcomes = tasks.join_all().await;
        let refused = outcomes.iter().filter(|kind| **kind == ErrorKind::TooManyWaiters).count();
        let waited = outcomes.iter().filter(|kind| **kind == ErrorKind::Timeout).count();
        assert_eq!((refused, waited), (4, 2), "{kind}");
    }
    drop((fair, permit, writer, owner));
    // Nobody is counted any more, and who needn't wait never is.
    let mut permits = Vec::new();
    for _ in 0..5 {
        permits.push(locks.semaphore("wide", 5).acquire().await.unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_outlives_its_hold_closes_no_circle() {
    let locks = memory_paused();
    let second = Duration::from_secs(1);
    let b = locks.mutex("b").lock().await.unwrap();
    let a = locks.mutex("a").lock().await.unwrap();
    let waiting = locks.mutex("b").wait(10 * second);
    let outlives = a.run(async { [tokio::spawn(locks.inherit(waiting.lock()))] }).await.unwrap();
    tokio::time::sleep(second).await;
    a.release().await.unwrap();
    let other = locks.mutex("a").lock().await.unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(second).await;
        drop(other);
    });
    // The task that waits for b was started under a, and isn't under it any more.
    let a = b.run(locks.mutex("a").wait(5 * second).lock()).await.unwrap().unwrap();
    drop((a, b));
    let [outlives] = outlives;
    drop(outlives.await.unwrap().unwrap());
}
