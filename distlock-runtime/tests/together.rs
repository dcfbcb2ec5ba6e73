//! Several locks at once on a store that loses commands and replies: all in the end, or none of them.
#![cfg(feature = "testkit")]

use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::backend::{BackendErrorKind, memory::MemoryBackend};
use distlock_runtime::testkit::{Call, Fault, Faulty, paused_on};
use distlock_runtime::{Clock, ErrorKind, LockKey, LockManager};

const KEYS: [&str; 3] = ["a", "b", "c"];

fn start() -> (Arc<Faulty>, LockManager) {
    let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "tests"), Clock::Tokio);
    let locks = paused_on(store.clone(), LockManager::builder());
    (store, locks)
}

async fn held(store: &Faulty) -> usize {
    let mut held = 0;
    for key in KEYS {
        let state = store.inner().inspect(&LockKey::new(key).unwrap()).await.unwrap();
        held += usize::from(state.holder.is_some());
    }
    held
}

/// Waits until the background has undone what has to be undone.
async fn all_free(store: &Faulty) {
    for _ in 0..1_000 {
        if held(store).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} are still held", held(store).await);
}

/// Whatever becomes of the step for all, the call has them all in the end, and gives them all back.
#[tokio::test(start_paused = true)]
async fn a_step_that_is_lost_is_made_up_for() {
    let second = Duration::from_secs(1);
    for fault in [
        Fault::LoseRequest,
        Fault::LoseReply,
        Fault::Delay(second),
        Fault::DelayReply(second),
        Fault::Late(second),
        Fault::Refuse(BackendErrorKind::Unavailable),
    ] {
        let (store, locks) = start();
        store.next(Call::TryAcquire, fault);
        let all =
            locks.mutex_all(KEYS).ttl(Duration::from_secs(30)).wait(Duration::from_secs(40)).lock().await;
        let all = all.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(all.is_valid(), "{fault:?}");
        assert_eq!(held(&store).await, KEYS.len());
        tokio::time::sleep(Duration::from_secs(90)).await;
        all.check().unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        all.release().await.unwrap();
        all_free(&store).await;
        // Nothing comes back later.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(held(&store).await, 0, "{fault:?}");
        assert_eq!(locks.held(), 0);
    }
}

/// A single try says what is wrong, and nothing of it stays, applied or not.
#[tokio::test(start_paused = true)]
async fn a_single_try_that_is_lost_leaves_nothing() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Hang, Fault::HangApplied] {
        let (store, locks) = start();
        store.next(Call::TryAcquire, fault);
        let error = locks.mutex_all(KEYS).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{fault:?}: {error}");
        all_free(&store).await;
        locks.mutex_all(KEYS).try_lock().await.unwrap().release().await.unwrap();
    }
}

/// Three steps, and what is held is told by its own name.
#[tokio::test(start_paused = true)]
async fn more_than_fit_in_one_step_are_taken_too() {
    let (_store, locks) = start();
    let keys: Vec<String> = (0..300).map(|number| format!("k{number}")).collect();
    let all = locks.mutex_all(&keys).lock().await.unwrap();
    assert_eq!(all.guards().len(), 300);
    assert_eq!(locks.held(), 300);
    let held = locks.mutex_all(&keys[7..9]).try_lock().await.unwrap_err();
    assert_eq!(held.kind(), ErrorKind::Busy);
    all.release().await.unwrap();
    assert_eq!(locks.held(), 0);
}

/// What a call for several has taken already counts as held: a circle with it is found.
#[tokio::test(start_paused = true)]
async fn a_circle_with_a_call_for_several_is_found() {
    let (_store, locks) = start();
    let long = Duration::from_secs(60);
    let last = locks.mutex("c").lock().await.unwrap();
    let several = tokio::spawn({
        let locks = locks.clone();
        async move { locks.mutex_all(KEYS).wait(long).lock().await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(locks.mutex("a").try_lock().await.unwrap_err().is_busy(), "those before it are held meanwhile");
    let started = tokio::time::Instant::now();
    let error = last.run(locks.mutex("a").wait(long).lock()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
    assert!(error.to_string().contains("holds \"a\" and waits for \"c\""), "{error}");
    drop(last);
    several.await.unwrap().unwrap();
}
