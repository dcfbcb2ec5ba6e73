//! A waiter that is granted the lock and dropped before it notices must not take it from the one it is handed on to.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    task::Poll,
};

use distlock::{ErrorKind, Guard, LockError};

use crate::{LIMIT, connect, gone, ms, start, waiters};

type Waiting = Pin<Box<dyn Future<Output = Result<Guard, LockError>> + Send>>;

/// Polls once.
async fn poll_once(future: &mut Waiting) -> Poll<Result<Guard, LockError>> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// In one process: the lease is the same, and so is its owner token. A cancel for the dropped waiter would end the heir's hold.
#[tokio::test]
async fn a_dropped_heir_of_this_process_takes_the_lock_from_nobody() {
    let server = start();
    let (locks, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    for round in 0..60 {
        let key = format!("heir-{round}");
        let guard = locks.mutex(&key).lock().await.unwrap();
        let mut waiting: Vec<Waiting> = Vec::new();
        for _ in 0..3 {
            let mut wait: Waiting = Box::pin(locks.mutex(&key).wait_forever().lock());
            assert!(poll_once(&mut wait).await.is_pending());
            waiting.push(wait);
        }
        // By hand-off for the first rounds' short holds, through the store for those that outlast the slice.
        if round % 2 == 1 {
            tokio::time::sleep(ms(8)).await;
        }
        drop(guard);
        // Now the first has it, and nobody has polled it. The next two get it and go the same way; the last one asks.
        let last = waiting.pop().unwrap();
        for heir in waiting {
            drop(heir);
        }
        let last = tokio::time::timeout(LIMIT, last).await.unwrap().unwrap();
        last.extend(ms(30_000)).await.expect("the store still has it");
        assert_eq!(rival.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
        // A late cancel would come by now: the background has done something else since.
        drop(locks.mutex(format!("other-{round}")).lock().await.unwrap());
        gone(&server, &format!("other-{round}")).await;
        last.extend(ms(30_000)).await.expect("nobody took it");
        last.release().await.unwrap();
    }
    crate::assert_nothing_stays(&server).await;
}

/// Between processes: the store has written the waiter's value into the lock, and the waiter goes away just then.
#[tokio::test]
async fn a_dropped_heir_of_another_process_takes_the_lock_from_nobody() {
    let server = start();
    let managers = [connect(&server.url()).await, connect(&server.url()).await, connect(&server.url()).await];
    for round in 0..40 {
        let key = format!("between-{round}");
        let guard = managers[0].mutex(&key).lock().await.unwrap();
        let mut first: Waiting = Box::pin(managers[1].mutex(&key).wait_forever().lock());
        while managers[2].inspect(&key).await.unwrap().waiters < 1 {
            assert!(poll_once(&mut first).await.is_pending());
        }
        let second = tokio::spawn(managers[2].mutex(&key).wait_forever().lock());
        waiters(&managers[0], &key, 2).await;
        guard.release().await.unwrap();
        if round % 2 == 0 {
            // It may notice, and be in the middle of confirming.
            let _ = poll_once(&mut first).await;
        }
        drop(first);
        let second = tokio::time::timeout(LIMIT, pin!(second)).await.unwrap().unwrap().unwrap();
        for _ in 0..5 {
            second.extend(ms(30_000)).await.expect("nobody took it");
        }
        second.release().await.unwrap();
    }
    crate::assert_nothing_stays(&server).await;
}
