//! Releases that the store doesn't hear, or whose reply is lost.

use distlock_runtime::{
    ErrorKind, Unlocked,
    backend::BackendErrorKind,
    testkit::{Call, Fault},
};
use tokio::time::Instant;

use crate::{KEY, assert_kind, is_held, ms, store, until};

const OPEN: [Fault; 5] = [
    Fault::LoseRequest,
    Fault::LoseReply,
    Fault::Hang,
    Fault::HangApplied,
    Fault::Refuse(BackendErrorKind::Unavailable),
];

/// An open outcome is `CONNECTION`, never that it wasn't held; the background finishes it long before the ttl does.
#[tokio::test(start_paused = true)]
async fn a_release_with_an_open_outcome_is_finished_in_the_background() {
    let (store, locks) = store();
    for fault in OPEN {
        for awaited in [true, false] {
            store.next(Call::Release, fault);
            store.next(Call::Release, Fault::LoseRequest);
            let guard = locks.mutex(KEY).ttl(ms(60_000)).lock().await.unwrap();
            let start = Instant::now();
            if awaited {
                assert_kind(guard.release().await, ErrorKind::Connection);
            } else {
                drop(guard);
            }
            until("the lock to be given back", async || !is_held(&store).await).await;
            assert!(start.elapsed() < ms(8_000), "{fault:?}: {:?}", start.elapsed());
            // The other try is used up too before the next round.
            tokio::time::sleep(ms(8_000)).await;
            store.heal();
        }
    }
    assert!(locks.shutdown(ms(0)).await.is_clean());
}

/// Also when the caller goes away in the middle.
#[tokio::test(start_paused = true)]
async fn a_release_that_is_dropped_midway_is_finished() {
    let (store, locks) = store();
    for fault in [Fault::Hang, Fault::Delay(ms(3_000))] {
        store.next(Call::Release, fault);
        let guard = locks.mutex(KEY).ttl(ms(60_000)).lock().await.unwrap();
        assert!(tokio::time::timeout(ms(100), guard.release()).await.is_err());
        let took = until("the lock to be given back", async || !is_held(&store).await).await;
        assert!(took < ms(1_000), "{fault:?}: {took:?}");
    }
}

/// What the store refuses for good isn't hammered: the lease lapses.
#[tokio::test(start_paused = true)]
async fn a_refused_release_leaves_the_lease_to_lapse() {
    let (store, locks) = store();
    store.always(Call::Release, Fault::Refuse(BackendErrorKind::Permission));
    let guard = locks.mutex(KEY).ttl(ms(9_000)).lock().await.unwrap();
    assert_kind(guard.release().await, ErrorKind::Permission);
    let took = until("the lease to lapse", async || !is_held(&store).await).await;
    assert!(took <= ms(9_010), "{took:?}: it isn't renewed any more");
    assert!(store.count(Call::Release) <= 3, "{} tries", store.count(Call::Release));
}

/// The next task of the process doesn't overtake the release, nor wait for its reply.
#[tokio::test(start_paused = true)]
async fn the_next_task_asks_after_the_release_was_sent() {
    let (store, locks) = store();
    let guard = locks.mutex(KEY).lock().await.unwrap();
    let next = tokio::spawn(locks.mutex(KEY).lock());
    tokio::time::sleep(ms(100)).await;
    store.next(Call::Release, Fault::DelayReply(ms(4_000)));
    let start = Instant::now();
    let (released, next) = tokio::join!(guard.release(), next);
    assert_eq!(released.unwrap(), Unlocked::Released);
    let next = next.unwrap().unwrap();
    assert_eq!(start.elapsed(), ms(4_000));
    next.check().unwrap();
    next.release().await.unwrap();
}

/// It was sent before the release, and finds nothing of its own any more: what is kept lapses when it was to.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_arrives_after_the_release_lengthens_nothing_that_is_kept() {
    for fair in [false, true] {
        let (store, locks) = store();
        store.next(Call::Renew, Fault::Late(ms(1_000)));
        let lock = locks.mutex(KEY).ttl(ms(9_000)).hold_at_least(ms(6_000));
        let start = Instant::now();
        let guard = if fair { lock.fair() } else { lock }.lock().await.unwrap();
        until("a renewal under way", async || store.count(Call::Renew) > 0).await;
        drop(guard);
        until("the lock to be free", async || !is_held(&store).await).await;
        let held = start.elapsed();
        assert!(held >= ms(6_000) && held < ms(6_100), "{held:?}");
    }
}
