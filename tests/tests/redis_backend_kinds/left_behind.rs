//! What is left of a line whose lock somebody deleted, or whose waiters all died: more than one call clears away.

use std::time::Duration;

use distlock_runtime::{
    OwnerId,
    backend::{AcquireRequest, Attempt, Backend, BackendErrorKind, Blocked, Mode},
};

use super::redis_backend::*;
use super::*;

/// Whether asking again is worth it now. One script may look at the clock twice.
fn is_at_once(blocked: &Blocked) -> bool {
    blocked.remaining().is_some_and(|remaining| remaining < Duration::from_millis(250))
}

#[tokio::test]
async fn the_line_of_a_deleted_lock_conflicts_with_nobody() {
    let bench = Bench::start().await;
    let owned = Mode::Owned { owner: OwnerId::new("one").unwrap() };
    for mode in [Mode::Write, permits(1, 1), owned] {
        for next in [Mode::Read, permits(3, 2), Mode::Exclusive] {
            granted(&bench.backend, &shared("k", mode)).await;
            let other =
                if mode == owned { Mode::Owned { owner: OwnerId::new("two").unwrap() } } else { mode };
            let waiters: Vec<_> = (0..250).map(|_| in_line("k", other)).collect();
            for waiter in &waiters {
                queued(&bench.backend, waiter).await;
            }
            let _: i64 = bench.ask("DEL distlock:k").await;
            let asks = AcquireRequest { fair: true, ..shared("k", next) };
            let mut tries = 0;
            while let Attempt::Busy(blocked) = bench.backend.try_acquire(&asks).await.unwrap() {
                tries += 1;
                assert!(tries <= 2, "{mode:?} {next:?}");
                assert!(is_at_once(&blocked), "there is nothing to wait for");
            }
            released(&bench.backend, &asks).await;
            // Shares concern an exclusive lock as little as their line; they end by themselves.
            let shares = |key: &String| next == Mode::Exclusive && key.contains("!s:");
            assert!(left(&bench).await.iter().all(shares), "{mode:?} {next:?}");
        }
    }
}

#[tokio::test]
async fn who_waited_for_a_deleted_lock_and_lives_keeps_the_place() {
    let bench = Bench::start().await;
    granted(&bench.backend, &shared("k", Mode::Write)).await;
    let waiters: Vec<_> = (0..150).map(|_| in_line("k", Mode::Write)).collect();
    for waiter in &waiters {
        queued(&bench.backend, waiter).await;
    }
    let _: i64 = bench.ask("DEL distlock:k").await;
    let (early, late) = (&waiters[120], &waiters[149]);
    queued(&bench.backend, late).await;
    granted(&bench.backend, early).await;
    queued(&bench.backend, late).await;
    released(&bench.backend, early).await;
    granted(&bench.backend, late).await;
}

/// Those who wait for an exclusive lock behind many that are dead are still those who wait for an exclusive lock.
#[tokio::test]
async fn an_exclusive_line_conflicts_however_many_died_in_it() {
    let bench = Bench::start().await;
    let holder = shared("k", Mode::Exclusive);
    granted(&bench.backend, &holder).await;
    let waiters: Vec<_> = (0..151).map(|_| in_line("k", Mode::Exclusive)).collect();
    for waiter in &waiters {
        queued(&bench.backend, waiter).await;
    }
    let hash = bench.ask::<Vec<String>>("KEYS distlock!*!w:distlock:k").await.remove(0);
    for dead in &waiters[..150] {
        let _: i64 = bench.ask(&format!("HDEL {hash} {}", dead.owner.to_hex())).await;
    }
    let _: i64 = bench.ask("DEL distlock:k").await;
    let reader = in_line("k", Mode::Read);
    assert!(is_at_once(&busy(&bench.backend, &reader).await));
    assert_eq!(refusal(&bench.backend, &reader).await, BackendErrorKind::KeyConflict);
    granted(&bench.backend, &waiters[150]).await;
}

/// Nobody holds it and all who wait are dead: what kind it was counts for nobody, however long it takes to clear them away.
#[tokio::test]
async fn many_dead_waiters_conflict_with_nobody() {
    let bench = Bench::start().await;
    let holder = shared("k", permits(2, 2));
    granted(&bench.backend, &holder).await;
    for _ in 0..250 {
        queued(&bench.backend, &in_line("k", permits(2, 1))).await;
    }
    let entries: Vec<(String, String)> = bench.ask("HGETALL distlock:k").await;
    for (field, entry) in
        entries.iter().filter(|(field, _)| field.len() == 32 && *field != holder.owner.to_hex())
    {
        let (_, rest) = entry.split_once(' ').unwrap();
        let mut set = redis::cmd("HSET");
        set.arg("distlock:k").arg(field).arg(format!("1 {rest}"));
        set.exec_async(&mut bench.admin.clone()).await.unwrap();
    }
    released(&bench.backend, &holder).await;
    let other = shared("k", permits(3, 1));
    assert!(is_at_once(&busy(&bench.backend, &other).await));
    granted(&bench.backend, &other).await;
}
