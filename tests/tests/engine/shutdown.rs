//! Shutting down on a store that doesn't answer.

use std::task::Poll;

use distlock_runtime::{
    ErrorKind,
    testkit::{Call, Fault},
};
use tokio::time::Instant;

use crate::{KEY, assert_kind, ms, store};

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_though_the_store_is_silent_and_says_what_it_left() {
    let (store, locks) = store();
    let mut guards = Vec::new();
    for n in 0..5 {
        guards.push(locks.mutex(format!("left-{n}")).lock().await.unwrap());
    }
    let waiter = tokio::spawn(locks.mutex("left-0").wait_forever().lock());
    tokio::task::yield_now().await;
    for call in [Call::Release, Call::Renew, Call::Cancel] {
        store.always(call, Fault::Hang);
    }
    guards.truncate(3);
    let start = Instant::now();
    let report = locks.shutdown(ms(1_000)).await;
    assert!(start.elapsed() <= ms(1_500), "{:?}", start.elapsed());
    assert_eq!(report.left.len(), 3);
    assert!(!report.flushed && !report.is_clean());
    assert_kind(waiter.await.unwrap(), ErrorKind::Shutdown);
    for guard in &guards {
        assert_kind(guard.check(), ErrorKind::Lost);
    }
    // Once the store answers, what was left is given back after all.
    store.heal();
    drop(guards);
    crate::until("all locks to be free", async || store.inner().list("left-", 10).await.unwrap().is_empty())
        .await;
    assert!(start.elapsed() < ms(25_000), "before the ttl is over: {:?}", start.elapsed());
}

/// The reply that grants arrives in the moment of the shutdown: what nobody would look after isn't held.
#[tokio::test(start_paused = true)]
async fn a_grant_that_meets_the_shutdown_is_undone() {
    for fair in [false, true] {
        let (store, locks) = store();
        store.next(Call::TryAcquire, Fault::DelayReply(ms(100)));
        let lock = locks.mutex(KEY);
        let mut acquire = Box::pin(if fair { lock.fair() } else { lock }.lock());
        // The command is sent, and the reply under way.
        let first = std::future::poll_fn(|cx| Poll::Ready(acquire.as_mut().poll(cx).is_pending()));
        assert!(first.await);
        assert!(locks.shutdown(ms(0)).await.is_clean());
        // The reply is there before the task looks again.
        tokio::time::sleep(ms(200)).await;
        assert_kind(acquire.await, ErrorKind::Shutdown);
        crate::until("the lock to be free", async || !crate::is_held(&store).await).await;
    }
}
