//! Renewals that fail, and replies that come late.

use distlock_runtime::{
    ErrorKind, LockEvent, LockKey,
    backend::BackendErrorKind,
    testkit::{Call, Fault},
};
use tokio::time::Instant;

use crate::{KEY, assert_kind, is_held, ms, said, store};

#[tokio::test(start_paused = true)]
async fn a_renewal_with_an_unknown_outcome_is_tried_again() {
    let (store, locks) = store();
    let mut events = locks.events();
    let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
    let unavailable = Fault::Refuse(BackendErrorKind::Unavailable);
    for fault in [Fault::LoseRequest, Fault::LoseReply, unavailable, Fault::Hang, Fault::HangApplied] {
        store.next(Call::Renew, fault);
        tokio::time::sleep(ms(9_000)).await;
        guard.check().unwrap();
        assert!(guard.remaining() > ms(4_000), "{fault:?}: {:?}", guard.remaining());
    }
    // Several in a row, counted.
    (0..3).for_each(|_| store.next(Call::Renew, Fault::LoseRequest));
    tokio::time::sleep(ms(9_000)).await;
    guard.check().unwrap();
    let failures: Vec<u32> = said(&mut events)
        .await
        .into_iter()
        .filter_map(|event| match event {
            LockEvent::RenewalFailed { failures, .. } => Some(failures),
            LockEvent::Acquired { .. } => None,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(failures, [1, 1, 1, 1, 1, 1, 2, 3]);
}

/// I6: nothing says valid after the deadline, and it is said in time.
#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_lost_at_its_deadline() {
    for fault in [
        Fault::LoseRequest,
        Fault::Hang,
        Fault::Refuse(BackendErrorKind::Unavailable),
        Fault::Refuse(BackendErrorKind::Permission),
        Fault::Refuse(BackendErrorKind::OutOfMemory),
        Fault::Refuse(BackendErrorKind::Script),
    ] {
        let (store, locks) = store();
        let mut events = locks.events();
        let start = Instant::now();
        let guard = locks.mutex(KEY).ttl(ms(10_000)).lock().await.unwrap();
        store.always(Call::Renew, fault);
        let error = guard.lost().await;
        let took = start.elapsed();
        assert_eq!(error.kind(), ErrorKind::Lost);
        // ttl - drift - guard, with drift 1 % + 2 ms and guard 5 %.
        assert!(took >= ms(9_390) && took <= ms(9_410), "{fault:?}: {took:?}");
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert!(is_held(&store).await, "the holder stops before the store lets another in");
        let tries = store.count(Call::Renew);
        assert!((5..100).contains(&tries), "{fault:?}: {tries} tries");
        let lost = said(&mut events).await.pop();
        let key = LockKey::new(KEY).unwrap();
        assert_eq!(lost, Some(LockEvent::Lost { key, reason: "expired" }));
        // A late success brings nothing back.
        store.heal();
        assert_kind(guard.extend(ms(10_000)).await, ErrorKind::Lost);
        drop(guard);
        crate::until("the lock is given back", async || !is_held(&store).await).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_gone_is_lost_at_once_and_the_next_task_goes_on() {
    let (store, locks) = store();
    let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
    let waiter = tokio::spawn(locks.mutex(KEY).wait_forever().lock());
    tokio::task::yield_now().await;
    store.inner().force_release(&LockKey::new(KEY).unwrap()).await.unwrap();
    let start = Instant::now();
    let error = guard.lost().await;
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(start.elapsed() <= ms(3_400), "at the next renewal, not at the deadline: {:?}", start.elapsed());
    let next = waiter.await.unwrap().unwrap();
    assert_eq!(store.count(Call::Renew), 1, "what is gone isn't asked for again");
    drop(guard);
    tokio::time::sleep(ms(60_000)).await;
    next.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_renewal_never_poisons_the_next_lock_on_the_key() {
    let (store, locks) = store();
    for fault in [Fault::LoseRequest, Fault::Hang, Fault::Refuse(BackendErrorKind::Permission)] {
        let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
        store.always(Call::Renew, fault);
        guard.lost().await;
        drop(guard);
        store.heal();
        for _ in 0..3 {
            let guard = locks.mutex(KEY).ttl(ms(9_000)).wait(ms(20_000)).lock().await.unwrap();
            tokio::time::sleep(ms(20_000)).await;
            guard.check().unwrap();
            guard.release().await.unwrap();
        }
    }
}

/// The absence that the renewal finds is our own doing.
#[tokio::test(start_paused = true)]
async fn a_release_while_a_renewal_is_under_way_is_no_loss() {
    let (store, locks) = store();
    let mut events = locks.events();
    for late in [Fault::Delay(ms(1_000)), Fault::DelayReply(ms(1_000))] {
        let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
        let before = store.count(Call::Renew);
        store.next(Call::Renew, late);
        crate::until("a renewal", async || store.count(Call::Renew) > before).await;
        guard.release().await.unwrap();
        tokio::time::sleep(ms(20_000)).await;
        assert_eq!(store.count(Call::Renew), before + 1);
    }
    let said = said(&mut events).await;
    assert!(
        said.iter().all(|event| matches!(event, LockEvent::Acquired { .. } | LockEvent::Released { .. })),
        "{said:?}"
    );
}

/// Replies belong to a lease, not to a key.
#[tokio::test(start_paused = true)]
async fn a_renewals_reply_after_release_and_acquire_concerns_the_old_lease_only() {
    let (store, locks) = store();
    for late in [Fault::Delay(ms(1_400)), Fault::DelayReply(ms(1_400))] {
        let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
        let before = store.count(Call::Renew);
        store.next(Call::Renew, late);
        crate::until("a renewal", async || store.count(Call::Renew) > before).await;
        guard.release().await.unwrap();
        let start = Instant::now();
        let again = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
        let lasts = again.remaining();
        tokio::time::sleep(ms(1_450)).await;
        again.check().unwrap();
        assert_eq!(again.remaining(), lasts - start.elapsed(), "the late reply is not ours");
        tokio::time::sleep(ms(20_000)).await;
        again.check().unwrap();
        again.release().await.unwrap();
    }
}

/// A late confirmation counts from its send time, never from its arrival.
#[tokio::test(start_paused = true)]
async fn a_slow_renewal_counts_from_when_it_was_sent() {
    let (store, locks) = store();
    let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
    store.next(Call::Renew, Fault::DelayReply(ms(1_400)));
    let sent = crate::until("a renewal", async || store.count(Call::Renew) == 1).await;
    let before = guard.remaining();
    crate::until("its reply", async || guard.remaining() > before).await;
    // Sent at about 3 s; valid for 9 s from then, less drift and guard.
    assert!(guard.remaining() < ms(9_000 - 92 - 450 - 1_400) + ms(10), "{:?}, {sent:?}", guard.remaining());
}

/// One hanging command doesn't cost the leases that it was to renew, however many.
#[tokio::test(start_paused = true)]
async fn many_leases_survive_a_hanging_renewal() {
    let (store, locks) = store();
    let mut guards = Vec::new();
    for n in 0..700 {
        guards.push(locks.mutex(format!("many-{n}")).ttl(ms(9_000)).lock().await.unwrap());
    }
    for _ in 0..3 {
        store.next(Call::Renew, Fault::Hang);
        tokio::time::sleep(ms(9_000)).await;
        guards.iter().for_each(|guard| guard.check().unwrap());
    }
    let calls = store.count(Call::Renew);
    assert!(calls < 100, "{calls} calls for 700 leases over 9 periods");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_knows_by_the_clock() {
    let (store, locks) = store();
    let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
    let view = guard.view();
    let steps = std::cell::Cell::new(0);
    let body = guard.run(async {
        loop {
            steps.set(steps.get() + 1);
            tokio::time::sleep(ms(100)).await;
        }
    });
    let mut body = std::pin::pin!(body);
    assert!(tokio::time::timeout(ms(1_050), &mut body).await.is_err());
    // Nothing runs while the time jumps.
    tokio::time::advance(ms(22_500)).await;
    assert!(!view.is_valid(), "before the watchdog had a chance to say so");
    let outcome: Result<(), _> = body.await;
    assert_kind(outcome, ErrorKind::Lost);
    assert_eq!(steps.get(), 11, "the body doesn't take another step");
    assert_kind(guard.release().await, ErrorKind::NotHeld);
    assert!(!is_held(&store).await);
}

#[tokio::test(start_paused = true)]
async fn extend_says_what_it_knows() {
    let (store, locks) = store();
    let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Hang, Fault::HangApplied] {
        store.next(Call::Renew, fault);
        assert_kind(guard.extend(ms(9_000)).await, ErrorKind::Connection);
        guard.check().unwrap();
    }
    for (refusal, kind) in crate::refusals() {
        store.next(Call::Renew, Fault::Refuse(refusal));
        assert_kind(guard.extend(ms(9_000)).await, kind);
        guard.check().unwrap();
    }
    // What was asked for and not confirmed, the watchdog asks for again.
    store.next(Call::Renew, Fault::LoseRequest);
    assert_kind(guard.extend(ms(90_000)).await, ErrorKind::Connection);
    crate::until("the longer lease", async || guard.remaining() > ms(60_000)).await;
    guard.release().await.unwrap();
}
