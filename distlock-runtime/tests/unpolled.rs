//! A task that is kept without being polled doesn't keep the lock.
#![cfg(feature = "testkit")]

use std::time::Duration;

use distlock_runtime::testkit::memory_paused;

/// Polls a future once.
async fn once<F: Future>(future: std::pin::Pin<&mut F>) {
    let mut future = Some(future);
    std::future::poll_fn(|cx| {
        assert!(future.take().expect("once").poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_handed_to_a_future_that_is_never_polled_again_lapses() {
    let locks = memory_paused();
    let lock = || locks.mutex("job").ttl(Duration::from_secs(3)).wait(Duration::from_secs(60));
    // The first hold has one token; the second, with a waiter behind it, reserves a block to hand on.
    let first = lock().lock().await.unwrap();
    let mut second = Box::pin(lock().lock());
    once(second.as_mut()).await;
    let mut forgotten = Box::pin(lock().lock());
    once(forgotten.as_mut()).await;
    drop(first);
    let second = second.await.unwrap();
    drop(second);
    // `forgotten` has the lease now, and nobody polls it.
    let next = lock().lock().await.expect("the lease of a forgotten future lapses");
    assert!(next.is_valid());
    let mut forgotten = tokio::spawn(forgotten);
    tokio::select! {
        biased;
        early = &mut forgotten => panic!("polled again, it must wait for its turn: {early:?}"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let token = next.fencing_token();
    drop(next);
    assert!(forgotten.await.unwrap().unwrap().fencing_token() > token);
}
