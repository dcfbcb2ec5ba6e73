//! Shutting down on a store that doesn't answer.

use distlock_runtime::{
    ErrorKind,
    testkit::{Call, Fault},
};
use tokio::time::Instant;

use crate::{assert_kind, ms, store};

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
