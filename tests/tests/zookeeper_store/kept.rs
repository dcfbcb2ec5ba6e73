//! `hold_at_least` over processes.

use std::time::Duration;

use distlock_runtime::backend::{Attempt, Backend as _, Released};
use distlock_tests::server::shared_zookeeper;

use super::{LIMIT, backend, fresh, ms, now, request};

const SESSION: Duration = Duration::from_secs(20);

/// Whoever waited before the release waits for as long as one who comes after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_is_kept_from_those_who_waited_before() {
    let server = shared_zookeeper().unwrap();
    let (holder, waiter) = (backend(server, SESSION), backend(server, SESSION));
    let (key, keep) = (fresh("kept"), ms(1_500));
    let (held, waits) = (request(&key, ms(10_000)), request(&key, ms(10_000)));
    assert!(matches!(holder.try_acquire(&held).await.unwrap(), Attempt::Granted(_)));
    let start = now();
    // For longer than what follows is kept.
    while start.elapsed() < keep + ms(500) {
        let Attempt::Queued(blocked) = waiter.try_acquire(&waits).await.unwrap() else {
            panic!("it is held")
        };
        waiter.turn(&waits, &blocked).await.unwrap();
    }
    let released = now();
    assert_eq!(holder.release(&held.lease(), Some(keep)).await.unwrap(), Released::Confirmed);
    // Nobody but the waiter is left to take it away.
    drop(holder);
    loop {
        match waiter.try_acquire(&waits).await.unwrap() {
            Attempt::Granted(_) => break,
            Attempt::Queued(blocked) => drop(waiter.turn(&waits, &blocked).await.unwrap()),
            other => panic!("neither granted nor queued: {other:?}"),
        }
        assert!(released.elapsed() < LIMIT, "it never lapsed");
    }
    let kept = released.elapsed();
    assert!(kept >= keep, "kept for {kept:?} only");
    assert!(kept < keep + ms(2_000), "kept for {kept:?}, though nobody else is there");
}
