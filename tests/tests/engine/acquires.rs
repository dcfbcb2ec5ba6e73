//! Attempts whose outcome is lost, late, or a refusal.

use distlock_runtime::{
    ErrorKind,
    backend::BackendErrorKind,
    testkit::{Call, Fault},
};
use tokio::time::Instant;

use crate::{KEY, assert_kind, is_held, ms, refusals, store, until};

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_reply_is_lost_is_repeated_and_granted() {
    let (store, locks) = store();
    let unavailable = Fault::Refuse(BackendErrorKind::Unavailable);
    for fault in [Fault::LoseReply, Fault::LoseRequest, unavailable, Fault::Hang, Fault::HangApplied] {
        store.next(Call::TryAcquire, fault);
        let before = store.count(Call::TryAcquire);
        let guard = locks.mutex(KEY).ttl(ms(3_000)).lock().await.unwrap();
        assert_eq!(store.count(Call::TryAcquire), before + 2, "{fault:?}");
        guard.release().await.unwrap();
        assert!(!is_held(&store).await, "{fault:?}");
    }
}

/// Busy and down are never mixed up, whatever happens to the store and for however long.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_is_connection_within_the_budget() {
    let (store, locks) = store();
    let unavailable = Fault::Refuse(BackendErrorKind::Unavailable);
    for fault in [Fault::LoseRequest, Fault::Hang, unavailable] {
        store.always(Call::TryAcquire, fault);
        for budget in [0, 50, 3_000, 20_000] {
            let start = Instant::now();
            assert_kind(locks.mutex(KEY).wait(ms(budget)).lock().await, ErrorKind::Connection);
            let took = start.elapsed();
            assert!(took <= ms(budget.max(2_000)) + ms(25), "{fault:?} with {budget} ms: {took:?}");
        }
        store.heal();
        locks.mutex(KEY).lock().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_at_once_by_its_kind() {
    let (store, locks) = store();
    for (refusal, kind) in refusals() {
        let before = store.count(Call::TryAcquire);
        store.next(Call::TryAcquire, Fault::Refuse(refusal));
        let start = Instant::now();
        assert_kind(locks.mutex(KEY).lock().await, kind);
        assert_eq!((start.elapsed(), store.count(Call::TryAcquire)), (ms(0), before + 1));
    }
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(store.count(Call::Cancel), 0, "nothing was applied, so there is nothing to undo");
    // A refusal after an attempt whose outcome is open: that one is undone.
    store.next(Call::TryAcquire, Fault::LoseReply);
    store.next(Call::TryAcquire, Fault::Refuse(BackendErrorKind::OutOfMemory));
    assert_kind(locks.mutex(KEY).lock().await, ErrorKind::OutOfMemory);
    until("the lock to be given back", async || !is_held(&store).await).await;
}

/// A grant that comes when half of the lease is over is no grant.
#[tokio::test(start_paused = true)]
async fn a_late_grant_is_clock_drift_and_given_back() {
    let (store, locks) = store();
    store.next(Call::TryAcquire, Fault::DelayReply(ms(990)));
    assert_kind(locks.mutex(KEY).ttl(ms(2_000)).try_lock().await, ErrorKind::ClockDrift);
    until("the lock to be given back", async || !is_held(&store).await).await;
    assert_eq!(locks.held(), 0);
    // With time left, it is asked for anew, under another owner.
    store.next(Call::TryAcquire, Fault::DelayReply(ms(4_950)));
    let guard = locks.mutex(KEY).ttl(ms(10_000)).wait(ms(8_000)).lock().await.unwrap();
    tokio::time::sleep(ms(30_000)).await;
    guard.check().unwrap();
    guard.release().await.unwrap();
}

/// A grant counts from when it was asked for.
#[tokio::test(start_paused = true)]
async fn a_slow_grant_is_shorter() {
    let (store, locks) = store();
    for fault in [Fault::Delay(ms(2_000)), Fault::DelayReply(ms(2_000))] {
        store.next(Call::TryAcquire, fault);
        let guard = locks.mutex(KEY).ttl(ms(10_000)).lock().await.unwrap();
        // ttl - drift - guard - 2 s.
        assert!(guard.remaining() <= ms(10_000 - 102 - 500 - 2_000), "{:?}", guard.remaining());
        guard.release().await.unwrap();
    }
}

/// A caller that goes away leaves a cancel behind, and that is repeated until the store has heard it.
#[tokio::test(start_paused = true)]
async fn a_cancel_is_repeated_until_it_is_heard() {
    let (store, locks) = store();
    let faults = [Fault::LoseRequest, Fault::Refuse(BackendErrorKind::Unavailable), Fault::Hang];
    faults.iter().for_each(|fault| store.next(Call::Cancel, *fault));
    store.next(Call::TryAcquire, Fault::HangApplied);
    let attempt = tokio::time::timeout(ms(100), locks.mutex(KEY).lock()).await;
    assert!(attempt.is_err() && is_held(&store).await);
    until("the lock to be given back", async || !is_held(&store).await).await;
    assert_eq!(store.count(Call::Cancel), 4);
    drop(locks.mutex(KEY).try_lock().await.unwrap());
}

/// A command that is still under way when its caller has gone, or has what it wanted by another, takes no effect.
#[tokio::test(start_paused = true)]
async fn a_late_attempt_never_takes_effect() {
    let (store, locks) = store();
    // The caller went away.
    store.next(Call::TryAcquire, Fault::Late(ms(5_000)));
    assert!(tokio::time::timeout(ms(100), locks.mutex(KEY).lock()).await.is_err());
    tokio::time::sleep(ms(6_000)).await;
    assert!(!is_held(&store).await, "a ghost of a cancelled attempt");

    // It was repeated, granted, and released: awaited, dropped, kept, or by an heir.
    for way in 0..4 {
        store.next(Call::TryAcquire, Fault::Late(ms(8_000)));
        let mutex = locks.mutex(KEY).ttl(ms(3_000));
        let mutex = if way == 2 { mutex.hold_at_least(ms(1_000)) } else { mutex };
        let start = Instant::now();
        let guard = mutex.lock().await.unwrap();
        match way {
            0 => drop(guard.release().await.unwrap()),
            3 => {
                let heir = tokio::spawn(locks.mutex(KEY).ttl(ms(3_000)).lock());
                tokio::task::yield_now().await;
                drop(guard);
                drop(heir.await.unwrap().unwrap());
            }
            _ => drop(guard),
        }
        if way == 2 {
            tokio::time::sleep(ms(900)).await;
            assert!(is_held(&store).await, "kept for as long as was asked");
        }
        until("the lock to be free", async || !is_held(&store).await).await;
        assert!(start.elapsed() < ms(8_000));
        tokio::time::sleep(ms(8_000)).await;
        assert!(!is_held(&store).await, "way {way}: a ghost of a hold that is over");
    }

    // It was repeated and refused.
    store.next(Call::TryAcquire, Fault::Late(ms(8_000)));
    store.next(Call::TryAcquire, Fault::Refuse(BackendErrorKind::OutOfMemory));
    assert_kind(locks.mutex(KEY).ttl(ms(3_000)).lock().await, ErrorKind::OutOfMemory);
    tokio::time::sleep(ms(9_000)).await;
    assert!(!is_held(&store).await, "a ghost of a refused attempt");
}

/// The heir of an attempt that is under way takes it over; what was in flight is undone at the end.
#[tokio::test(start_paused = true)]
async fn an_attempt_under_way_passes_to_the_next_task() {
    let (store, locks) = store();
    store.next(Call::TryAcquire, Fault::Late(ms(8_000)));
    let first = tokio::spawn(locks.mutex(KEY).lock());
    tokio::task::yield_now().await;
    let second = tokio::spawn(locks.mutex(KEY).lock());
    tokio::task::yield_now().await;
    first.abort();
    let guard = second.await.unwrap().unwrap();
    guard.release().await.unwrap();
    tokio::time::sleep(ms(10_000)).await;
    assert!(!is_held(&store).await, "a ghost of the first task's attempt");
}
