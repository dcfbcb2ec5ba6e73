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

/// It asks the store for its process, so the other tasks of the process depend on it.
#[tokio::test(start_paused = true)]
async fn a_future_that_asks_the_store_and_is_never_polled_again_is_overtaken() {
    for next_ttl in [Duration::from_secs(3), Duration::from_secs(5)] {
        let locks = memory_paused();
        let lock = |ttl| locks.mutex("job").ttl(ttl).wait(Duration::from_secs(60));
        // A fair hold stands beside the queue of the process, as another process's does.
        let holder = locks.mutex("job").fair().lock().await.unwrap();
        let mut forgotten = Box::pin(lock(Duration::from_secs(3)).lock());
        once(forgotten.as_mut()).await;
        let started = tokio::time::Instant::now();
        let next = tokio::spawn(lock(next_ttl).lock());
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(holder);
        let next = next.await.unwrap().expect("the turn of a forgotten future passes on");
        assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
        // Polled again, it doesn't take what it missed, and waits for its turn.
        let mut forgotten = tokio::spawn(forgotten);
        tokio::select! {
            biased;
            early = &mut forgotten => panic!("polled again, it must wait for its turn: {early:?}"),
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        assert!(next.is_valid());
        let token = next.fencing_token();
        drop(next);
        assert!(forgotten.await.unwrap().unwrap().fencing_token() > token);
        assert_eq!(locks.held(), 0);
    }
}

/// Its drop takes nothing from the one that overtook it.
#[tokio::test(start_paused = true)]
async fn a_forgotten_future_that_is_dropped_leaves_the_next_alone() {
    let locks = memory_paused();
    let lock = || locks.mutex("job").wait(Duration::from_secs(60));
    let holder = locks.mutex("job").fair().lock().await.unwrap();
    let mut forgotten = Box::pin(lock().lock());
    once(forgotten.as_mut()).await;
    let next = tokio::spawn(lock().lock());
    tokio::time::sleep(Duration::from_secs(10)).await;
    drop(forgotten);
    drop(holder);
    let next = next.await.unwrap().unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    next.check().unwrap();
}
