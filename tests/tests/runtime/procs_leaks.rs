//! I7 on our own side: managers that go leave no thread, file or connection behind, and none of these grows with what they did.

use std::fs;

use distlock::LockManager;
use distlock_tests::wait;

use crate::{LIMIT, connect, ms, start};

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn files() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

async fn use_it(locks: &LockManager) {
    let guard = locks.mutex("used").lock().await.unwrap();
    let waiter = tokio::spawn(locks.mutex("used").wait_forever().lock());
    crate::waiters(locks, "used", 1).await;
    drop(guard);
    drop(waiter.await.unwrap().unwrap());
    let abandoned = tokio::time::timeout(ms(1), locks.mutex("abandoned").lock()).await;
    drop(abandoned);
}

#[tokio::test]
async fn managers_that_go_leave_nothing_behind() {
    let server = start();
    for url in ["memory:", &server.url()] {
        use_it(&connect(url).await).await;
        let settled = async || (server.client_count().await.unwrap() == 0).then_some(());
        wait::until("the first to be gone", LIMIT, settled).await.unwrap();
        let before = (threads(), files());
        for round in 0..30 {
            let locks = connect(url).await;
            use_it(&locks).await;
            if round % 3 == 0 {
                locks.shutdown(ms(1_000)).await;
            }
        }
        let gone = async || {
            let now = (threads(), files());
            let clients = server.client_count().await.unwrap();
            (now.0 <= before.0 && now.1 <= before.1 && clients == 0).then_some(())
        };
        let outcome = wait::until("threads, files and connections to go", LIMIT, gone).await;
        outcome.unwrap_or_else(|error| panic!("{url}: {error}, {before:?}, now {:?}", (threads(), files())));
    }
}

#[tokio::test]
async fn a_manager_doesnt_grow_with_what_it_did() {
    let server = start();
    let locks = connect(&server.url()).await;
    use_it(&locks).await;
    let before = (threads(), files(), server.client_count().await.unwrap());
    for round in 0..3 {
        for n in 0..300 {
            let key = format!("grow-{round}-{n}");
            let guard = locks.mutex(&key).lock().await.unwrap();
            drop(guard.scope(locks.mutex(&key).reentrant().lock()).await.unwrap());
            if n % 2 == 0 {
                guard.release().await.unwrap();
            }
        }
        crate::gone(&server, &format!("grow-{round}-299")).await;
        // The test's own connections to the server may still be closing.
        let same = async || {
            let now = (threads(), files(), server.client_count().await.unwrap());
            (now.0 <= before.0 && now.1 <= before.1 && now.2 <= before.2).then_some(())
        };
        wait::until("no more threads, files and connections than before", LIMIT, same).await.unwrap();
        assert_eq!(locks.held(), 0);
        // Only counters are added, one for each of the slots' tags.
        let keys = server.keys().await.unwrap();
        assert!(keys.iter().all(|key| key.ends_with("}!f") || key.contains("}!x:")), "{keys:?}");
    }
}
