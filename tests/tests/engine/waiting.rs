//! Waiting on a store that stumbles.

use distlock_runtime::{
    ErrorKind, LockKey,
    backend::{AcquireRequest, BackendErrorKind, Mode},
    testkit::{Call, Fault},
};
use distlock_runtime::{OwnerToken, Ttl};
use tokio::time::Instant;

use crate::{KEY, assert_kind, is_held, ms, refusals, store};

/// Somebody else's hold, past all faults.
fn rival(length: u64) -> AcquireRequest {
    AcquireRequest {
        key: LockKey::new(KEY).unwrap(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(ms(length)).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: false,
        tokens: 1,
    }
}

/// A wait that fails for a moment is no end of the waiting, nor of the place in line.
#[tokio::test(start_paused = true)]
async fn a_stumbling_wait_goes_on() {
    let (store, locks) = store();
    let rival = rival(60_000);
    store.inner().try_acquire(&rival).await.unwrap();
    let unavailable = Fault::Refuse(BackendErrorKind::Unavailable);
    for fault in [Fault::LoseRequest, unavailable, Fault::LoseReply] {
        store.next(Call::Turn, fault);
        store.next(Call::TryAcquire, Fault::LoseReply);
        store.pass(Call::TryAcquire);
        store.next(Call::TryAcquire, fault);
    }
    let waiter = tokio::spawn(locks.mutex(KEY).ttl(ms(5_000)).wait_forever().lock());
    tokio::time::sleep(ms(20_000)).await;
    let state = store.inner().inspect(&rival.key).await.unwrap();
    assert_eq!(state.waiters, 1, "still in line, and once");
    let start = Instant::now();
    store.inner().release(&rival.lease(), None).await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(start.elapsed() < ms(1_100), "{:?}", start.elapsed());
    guard.release().await.unwrap();
    assert!(!is_held(&store).await);
}

#[tokio::test(start_paused = true)]
async fn a_refused_wait_is_reported_and_leaves_the_line() {
    let (store, locks) = store();
    let rival = rival(600_000);
    store.inner().try_acquire(&rival).await.unwrap();
    for (refusal, kind) in refusals() {
        store.next(Call::Turn, Fault::Refuse(refusal));
        assert_kind(locks.mutex(KEY).wait_forever().lock().await, kind);
        crate::until("no waiter", async || store.inner().inspect(&rival.key).await.unwrap().waiters == 0)
            .await;
    }
}

/// A budget that ends while a rival holds is `LOCK_TIMEOUT`; one that ends while the store is silent is `CONNECTION`, for the task that
/// asks and for those behind it.
#[tokio::test(start_paused = true)]
async fn held_and_down_are_told_apart_for_everyone_in_line() {
    let (store, locks) = store();
    let rival = rival(600_000);
    store.inner().try_acquire(&rival).await.unwrap();
    let wait = || {
        let waits = (0..4).map(|_| tokio::spawn(locks.mutex(KEY).ttl(ms(2_000)).wait(ms(10_000)).lock()));
        waits.collect::<Vec<_>>()
    };
    for (n, waiter) in wait().into_iter().enumerate() {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        // The one that asks the store knows by whom.
        let holder = error.holder().and_then(|holder| holder.label.as_deref());
        assert!(n > 0 || holder == Some("here"), "{error}");
    }
    store.always(Call::TryAcquire, Fault::Hang);
    store.always(Call::Turn, Fault::LoseRequest);
    for waiter in wait() {
        assert_kind(waiter.await.unwrap(), ErrorKind::Connection);
    }
    store.heal();
    crate::until("no waiter", async || store.inner().inspect(&rival.key).await.unwrap().waiters == 0).await;
}
