//! User: fair locks, read/write locks, semaphores, several locks at once, elections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Store;
use super::tools::{Client, eventually, free, fresh_key, in_time, manager, ms, request, ttl, waiters};
use crate::backend::{AcquireRequest, Mode};
use crate::error::ErrorKind;

const LONG: Duration = Duration::from_secs(15);

/// Fair waiters are served in the order of their arrival, over processes, one place each.
pub async fn fair_waiters_are_served_in_order_of_arrival(store: &impl Store) {
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let key = fresh_key("fair");
    let first = managers[0].mutex(&key).fair().lock().await.unwrap();
    let (report, mut order) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let (lock, report) = (managers[number % 2].mutex(&key).fair().wait(LONG), report.clone());
        tasks.spawn(async move {
            let guard = lock.lock().await.unwrap();
            report.send((number, guard.fencing_token())).unwrap();
            drop(guard);
        });
        waiters(&managers[0], &key, u64::try_from(number).unwrap() + 1).await;
    }
    assert_eq!(managers[1].mutex(&key).fair().try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    let mut last = first.fencing_token();
    drop(first);
    for number in 0..12 {
        let (served, token) = in_time("the next in line", order.recv()).await.unwrap();
        assert_eq!(served, number);
        assert!(token > last);
        last = token;
    }
    tasks.join_all().await;
    free(&managers[0], &key).await;
}

/// A fair lock and a plain one on one key exclude each other.
pub async fn fair_and_plain_exclude_each_other(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("fair-plain");
    let fair = locks.mutex(&key).fair().lock().await.unwrap();
    assert!(locks.mutex(&key).try_lock().await.unwrap_err().is_busy());
    fair.release().await.unwrap();
    let plain = locks.mutex(&key).lock().await.unwrap();
    assert!(locks.mutex(&key).fair().try_lock().await.unwrap_err().is_busy());
    drop(plain);
}

/// Readers of many processes share, a writer excludes them, and readers carry the last write's token.
pub async fn readers_share_and_a_writer_excludes(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("rw");
    let writer = one.rw_lock(&key).write().await.unwrap();
    let written = writer.fencing_token();
    assert!(two.rw_lock(&key).try_read().await.unwrap_err().is_busy());
    writer.release().await.unwrap();
    let readers = [one.rw_lock(&key).read().await.unwrap(), two.rw_lock(&key).read().await.unwrap()];
    assert!(readers.iter().all(|reader| reader.fencing_token() >= written && reader.is_valid()));
    assert!(two.rw_lock(&key).try_write().await.unwrap_err().is_busy());
    let [first, second] = readers;
    first.release().await.unwrap();
    assert!(one.rw_lock(&key).try_write().await.unwrap_err().is_busy(), "one share is left");
    second.release().await.unwrap();
    let next = two.rw_lock(&key).write().await.unwrap();
    assert!(next.fencing_token() > written);
    drop(next);
    free(&one, &key).await;
}

/// New readers wait behind a writer that waits, so a stream of readers keeps no writer out.
pub async fn a_waiting_writer_is_not_passed_by(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("intent");
    let reader = one.rw_lock(&key).read().await.unwrap();
    let writer = tokio::spawn(two.rw_lock(&key).wait(LONG).write());
    waiters(&one, &key, 1).await;
    assert!(one.rw_lock(&key).try_read().await.unwrap_err().is_busy());
    let late = tokio::spawn(one.rw_lock(&key).wait(LONG).read());
    waiters(&one, &key, 2).await;
    reader.release().await.unwrap();
    let writer = in_time("the writer", writer).await.unwrap().unwrap();
    assert!(!late.is_finished());
    let token = writer.fencing_token();
    writer.release().await.unwrap();
    let late = in_time("the late reader", late).await.unwrap().unwrap();
    assert!(late.fencing_token() >= token);
}

/// A reader that died is waited for no longer than its own lease runs, and renewing one reader never renews another.
pub async fn a_dead_readers_share_lapses_alone(store: &impl Store) {
    let (client, locks) = (Client::open(store, "dead").await, manager(store, "one").await);
    let key = fresh_key("dead-reader");
    let dead = AcquireRequest { mode: Mode::Read, ttl: ttl(600), ..request(&key) };
    client.granted(&dead).await;
    let alive = locks.rw_lock(&key).ttl(ms(600)).read().await.unwrap();
    // The living reader is renewed all the while, the dead one's share goes, and then the living one is the only one.
    let mut reader = Some(alive);
    let writer = eventually("the living reader to be the only one", async || {
        match reader.take()?.try_upgrade().await {
            Ok(writer) => Some(writer),
            Err(failed) => {
                assert!(failed.guard.is_valid());
                reader = Some(failed.guard);
                None
            }
        }
    });
    drop(writer.await);
}

/// The only reader becomes a writer; a writer becomes a reader without a gap.
pub async fn shares_are_converted_without_a_gap(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("convert");
    let (mine, other) = (one.rw_lock(&key).read().await.unwrap(), two.rw_lock(&key).read().await.unwrap());
    let failed = mine.try_upgrade().await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Busy);
    assert!(failed.guard.is_valid());
    other.release().await.unwrap();
    let writer = failed.guard.try_upgrade().await.unwrap();
    assert!(two.rw_lock(&key).try_read().await.unwrap_err().is_busy());
    let rival = tokio::spawn(two.rw_lock(&key).wait(LONG).write());
    waiters(&one, &key, 1).await;
    let token = writer.fencing_token();
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.is_valid() && reader.fencing_token() >= token);
    assert!(!rival.is_finished(), "nobody got in between");
    reader.release().await.unwrap();
    assert!(in_time("the rival", rival).await.unwrap().unwrap().fencing_token() > token);
}

/// A semaphore is never above its limit, over processes, and all its permits are used.
pub async fn permits_never_exceed_the_limit(store: &impl Store) {
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let key = fresh_key("permits");
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..24u32 {
        let gate = managers[number as usize % 2].semaphore(&key, 4).wait(LONG);
        let weight = number % 3 + 1;
        let (now, most) = (now.clone(), most.clone());
        tasks.spawn(async move {
            let permits = gate.acquire_many(weight).await.unwrap();
            most.fetch_max(now.fetch_add(weight, Ordering::SeqCst) + weight, Ordering::SeqCst);
            tokio::time::sleep(ms(20)).await;
            now.fetch_sub(weight, Ordering::SeqCst);
            permits.release().await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(most.load(Ordering::SeqCst), 4, "all permits are used, and no more");
    free(&managers[0], &key).await;
}

/// A hold that wants many permits has its turn; those that want few don't pass it.
pub async fn a_heavy_hold_is_not_passed_by(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("heavy");
    let gate = || locks.semaphore(&key, 3).wait(LONG);
    let two = gate().acquire_many(2).await.unwrap();
    let heavy = tokio::spawn(gate().acquire_many(3));
    waiters(&locks, &key, 1).await;
    assert!(gate().try_acquire().await.unwrap_err().is_busy());
    two.release().await.unwrap();
    let heavy = in_time("the heavy hold", heavy).await.unwrap().unwrap();
    assert!(gate().try_acquire().await.unwrap_err().is_busy());
    heavy.release().await.unwrap();
    gate().try_acquire().await.unwrap().release().await.unwrap();
}

/// The permits of a holder that died come back after its ttl.
pub async fn permits_of_a_dead_holder_come_back(store: &impl Store) {
    let (client, locks) = (Client::open(store, "dead").await, manager(store, "one").await);
    let key = fresh_key("dead-permits");
    let dead = Mode::Permits { limit: 2, weight: 2 };
    client.granted(&AcquireRequest { mode: dead, ttl: ttl(500), ..request(&key) }).await;
    assert!(locks.semaphore(&key, 2).try_acquire().await.unwrap_err().is_busy());
    let permit = in_time("a permit", locks.semaphore(&key, 2).wait(LONG).acquire()).await.unwrap();
    assert!(permit.is_valid());
    drop(permit);
}

/// Another limit is an error until it is changed on purpose.
pub async fn limits_are_changed_on_purpose_only(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("limit");
    let held = locks.semaphore(&key, 1).acquire().await.unwrap();
    let error = locks.semaphore(&key, 2).try_acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitMismatch, "{error}");
    assert!(error.to_string().contains("resize()"), "{error}");
    assert!(locks.semaphore(&key, 1).resize(2).await.unwrap());
    let more = locks.semaphore(&key, 2).try_acquire().await.unwrap();
    assert_eq!(locks.semaphore(&key, 1).try_acquire().await.unwrap_err().kind(), ErrorKind::LimitMismatch);
    drop((held, more));
    free(&locks, &key).await;
    assert!(!locks.semaphore(&key, 7).resize(9).await.unwrap(), "not in use");
    drop(locks.semaphore(&key, 5).acquire().await.unwrap());
}

const KEY_IN_USE: &str = ": the key is in use as another kind of lock (or by another program) (use one kind of lock for this key, or \
                          another key or namespace)";

/// Two kinds of lock on one key are a conflict, and what stands is left alone.
pub async fn two_kinds_on_one_key_are_a_conflict(store: &impl Store) {
    let locks = manager(store, "one").await;
    let key = fresh_key("kinds");
    let plain = locks.mutex(&key).lock().await.unwrap();
    let read = locks.rw_lock(&key).try_read().await.map(drop);
    let permit = locks.semaphore(&key, 2).try_acquire().await.map(drop);
    for error in [read.unwrap_err(), permit.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::KeyConflict, "{error}");
        assert!(error.to_string().ends_with(KEY_IN_USE), "{error}");
    }
    assert!(plain.is_valid());
    plain.release().await.unwrap();
    let reader = locks.rw_lock(&key).read().await.unwrap();
    let plain = locks.mutex(&key).try_lock().await.map(drop);
    let permit = locks.semaphore(&key, 2).try_acquire().await.map(drop);
    for error in [plain.unwrap_err(), permit.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::KeyConflict, "{error}");
        assert!(error.to_string().ends_with(KEY_IN_USE), "{error}");
    }
    reader.release().await.unwrap();
}

/// A wait for a share that is dropped at any poll leaves neither a share nor a place.
pub async fn a_share_dropped_at_every_poll_leaves_nothing(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("dropped-share");
    for polls in 1..12 {
        let holder = (polls % 2 == 0).then_some(()).map(|()| two.rw_lock(&key).write());
        let holder = match holder {
            Some(holder) => Some(holder.await.unwrap()),
            None => None,
        };
        let mut read = Box::pin(one.rw_lock(&key).wait(ms(200)).read());
        let mut left = polls;
        let outcome = std::future::poll_fn(|cx| {
            if left == 0 {
                return std::task::Poll::Ready(None);
            }
            left -= 1;
            read.as_mut().poll(cx).map(Some)
        })
        .await;
        drop((read, outcome, holder));
        free(&two, &key).await;
    }
}

/// Several locks at once, in whatever order they are named, never wait for each other in a circle, and come all or not at
/// all.
pub async fn several_locks_come_all_or_not_at_all(store: &impl Store) {
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let keys = [fresh_key("all"), fresh_key("all"), fresh_key("all")];
    let held = managers[1].mutex(&keys[1]).lock().await.unwrap();
    let failed = managers[0].mutex_all(&keys).try_lock().await.unwrap_err();
    assert_eq!(failed.key(), Some(&keys[1]));
    free(&managers[1], &keys[0]).await;
    free(&managers[1], &keys[2]).await;
    held.release().await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..6 {
        let mut keys = keys.to_vec();
        keys.rotate_left(number % 3);
        let locks = managers[number % 2].clone();
        tasks.spawn(async move {
            for _ in 0..5 {
                let all = locks.mutex_all(&keys).wait(LONG).lock().await.unwrap();
                all.run(tokio::task::yield_now()).await.unwrap();
                all.release().await.unwrap();
            }
        });
    }
    in_time("all of them", tasks.join_all()).await;
}

/// One candidate leads; when it resigns the next does, with a larger token.
pub async fn one_candidate_leads_at_a_time(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("election");
    let mut first = one.election(&key).stand();
    let lead = in_time("the first lead", first.elected()).await.unwrap();
    let mut second = two.election(&key).stand();
    waiters(&one, &key, 1).await;
    assert!(first.is_leader() && !second.is_leader());
    first.resign().await;
    assert!(!lead.is_valid());
    let next = in_time("the second lead", second.elected()).await.unwrap();
    assert!(next.fencing_token() > lead.fencing_token());
    drop(second);
    free(&one, &key).await;
}
