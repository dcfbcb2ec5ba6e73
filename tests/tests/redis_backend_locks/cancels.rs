//! An attempt that was given up leaves nothing, whenever it arrives.

use std::task::Poll;

use distlock_runtime::{
    ErrorKind, LockKey, LockManager, OwnerToken,
    backend::{AcquireRequest, Applied, Backend, BackendErrorKind, Released, Renewal},
};
use distlock_tests::wait;

use super::redis_backend::*;

/// The plain form has taken the lock when the script that should draw its token fails.
#[tokio::test]
async fn a_script_that_fails_after_the_lock_was_taken_leaves_it_to_the_cancel() {
    let bench = Bench::start().await;
    for queue in [false, true] {
        let request = AcquireRequest { queue, ..request(if queue { "waits" } else { "tries" }, 30_000) };
        // A cancelled attempt shows the name of the tombstones; somebody else's value is under it from now on.
        bench.backend.cancel(&request).await.unwrap();
        let tombstones = bench.ask::<Vec<String>>("KEYS distlock!*!x:*").await.remove(0);
        let _: String = bench.ask(&format!("SET {tombstones} foreign")).await;
        let _: i64 = bench.ask("DEL distlock!*!f").await;
        let next = AcquireRequest { owner: OwnerToken::random().unwrap(), ..request.clone() };
        let error = bench.backend.try_acquire(&next).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::KeyConflict, "{error}");
        let held: bool = bench.ask(&format!("EXISTS distlock:{}", request.key)).await;
        assert_eq!(error.applied() == Applied::Unknown, held, "{error}");

        // The floors above cancel what isn't certain.
        let locks = LockManager::connect(&bench.server.url()).await.unwrap();
        let _: i64 = bench.ask(&format!("DEL distlock:{}", request.key)).await;
        let mutex = locks.mutex(&request.key);
        let outcome = if queue { mutex.lock().await } else { mutex.try_lock().await };
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::KeyConflict);
        let free =
            async || (!bench.ask::<bool>(&format!("EXISTS distlock:{}", request.key)).await).then_some(());
        wait::until("the lock to be given back", LIMIT, free).await.unwrap();
        assert_eq!(bench.ask::<String>(&format!("GET {tombstones}")).await, "foreign");
        let _: i64 = bench.ask(&format!("DEL {tombstones}")).await;
    }
}

#[tokio::test]
async fn a_cancelled_attempt_never_takes_effect_later() {
    let bench = Bench::start().await;
    // On a new server a script draws the first token, and it looks for tombstones.
    let late = request("k", 30_000);
    bench.other().cancel(&late).await.unwrap();
    bench.backend.try_acquire(&late).await.unwrap_err();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
    let (_, lease, _) = held(&bench.backend, "k", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    for queue in [false, true] {
        // The cancel overtakes the attempt on its way: what comes late doesn't stand in anybody's way.
        let late = request("k", 30_000);
        bench.other().cancel(&late).await.unwrap();
        bench.backend.try_acquire(&late).await.unwrap();
        assert_eq!(bench.backend.inspect(&late.key).await.unwrap().holder, None);
        let mut next = request("k", 30_000);
        next.queue = queue;
        granted(&bench.other(), &next).await;
        assert!(matches!(bench.backend.renew(&[late.lease()]).await[..], [Renewal::Gone]));
        // Where a script looks first, it isn't even written.
        bench.backend.release(&next.lease(), None).await.unwrap();
        let mut late = waiting("k", 30_000);
        granted(&bench.backend, &late).await;
        bench.backend.cancel(&late).await.unwrap();
        let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
        let error = bench.backend.try_acquire(&late).await.unwrap_err();
        assert_eq!((error.kind(), error.applied()), (BackendErrorKind::Unavailable, Applied::No));
        bench.backend.release(&lease, None).await.unwrap();
        late.key = LockKey::raw("raw").unwrap();
        bench.other().cancel(&late).await.unwrap();
        bench.backend.try_acquire(&late).await.unwrap_err();
        assert_eq!(bench.ask::<i64>("EXISTS raw").await, 0);
        // In order, and twice.
        let held = request("k", 30_000);
        granted(&bench.backend, &held).await;
        for _ in 0..2 {
            bench.backend.cancel(&held).await.unwrap();
            assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
        }
    }
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
}

#[tokio::test]
async fn tombstones_outlive_what_they_mark_and_are_cleared() {
    let bench = Bench::start().await;
    let name = "distlock!{*}!x:distlock:k";
    let long = request("k", 3_600_000);
    bench.backend.cancel(&long).await.unwrap();
    let name = bench.ask::<Vec<String>>(&format!("KEYS {name}")).await.remove(0);
    let ttl = async || bench.ask::<i64>(&format!("PTTL {name}")).await;
    assert!(ttl().await > 3_600_000);
    bench.backend.cancel(&request("k", 1_000)).await.unwrap();
    assert!(ttl().await > 3_600_000, "a shorter one doesn't shorten the others'");
    assert_eq!(bench.ask::<i64>(&format!("ZCARD {name}")).await, 2);
    let _: i64 = bench.ask(&format!("ZADD {name} 1000 {}", long.owner.to_hex())).await;
    bench.backend.cancel(&request("k", 1_000)).await.unwrap();
    assert_eq!(bench.ask::<i64>(&format!("ZCARD {name}")).await, 2, "what is over is removed");
}

#[test]
fn an_abandoned_attempt_is_undone_behind_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (front, engine) = (runtime(), runtime());
    let bench = engine.block_on(Bench::start());
    front.block_on(bench.backend.ping()).unwrap();
    for number in 0..100 {
        let request = request("k", 30_000);
        // Polled until it is on its way, or not even that; nothing more is done on its runtime before the cancel.
        front.block_on(async {
            let mut attempt = bench.backend.try_acquire(&request);
            for _ in 0..number % 4 {
                let _ = std::future::poll_fn(|cx| Poll::Ready(attempt.as_mut().poll(cx))).await;
                tokio::task::yield_now().await;
            }
        });
        engine.block_on(bench.backend.cancel(&request)).unwrap();
        // The front runtime goes on: what was on its way arrives, and its undoing behind it.
        front.block_on(async {
            let free =
                async || (bench.backend.ping().await.is_ok() && exists(&bench).await == 0).then_some(());
            wait::until("nothing to be left", LIMIT, free).await.unwrap();
        });
    }
}

async fn exists(bench: &Bench) -> i64 {
    let mut admin = bench.server.admin().await.unwrap();
    redis::cmd("EXISTS").arg("distlock:k").query_async(&mut admin).await.unwrap()
}

#[tokio::test]
async fn a_cancel_takes_only_its_own() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    bench.backend.cancel(&request("k", 30_000)).await.unwrap();
    assert_eq!(bench.backend.release(&lease, None).await.unwrap(), Released::Confirmed);
}
