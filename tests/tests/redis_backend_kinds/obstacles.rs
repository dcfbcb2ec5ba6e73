//! Shares when something is in the way: another kind under the key, rights, memory, broken counters.

use std::time::Duration;

use distlock_runtime::{
    LockKey,
    backend::{AcquireRequest, Attempt, Backend, BackendErrorKind, Mode, Released},
};
use distlock_tests::{server::RedisOptions as ServerOptions, wait};

use super::redis_backend::*;
use super::*;

#[tokio::test]
async fn another_kind_or_limit_touches_nothing() {
    let bench = Bench::start().await;
    let all = [Mode::Exclusive, Mode::Read, permits(3, 1)];
    for stands in all {
        for fair in [false, true] {
            let holder = AcquireRequest { fair, ..shared("k", stands) };
            granted(&bench.backend, &holder).await;
            let waiter = AcquireRequest {
                fair,
                ..in_line("k", if stands == Mode::Read { Mode::Write } else { stands })
            };
            bench.backend.try_acquire(&waiter).await.unwrap();
            let before = dump(&bench).await;
            for asks in all.into_iter().filter(|asks| *asks != stands) {
                for queue in [false, true] {
                    let other = AcquireRequest { queue, ..in_line("k", asks) };
                    assert_eq!(
                        refusal(&bench.backend, &other).await,
                        BackendErrorKind::KeyConflict,
                        "{stands:?} {asks:?}"
                    );
                    let plain = AcquireRequest { queue, ..shared("k", asks) };
                    assert_eq!(
                        refusal(&bench.backend, &plain).await,
                        BackendErrorKind::KeyConflict,
                        "{stands:?} {asks:?}"
                    );
                    assert!(!renews(&bench.backend, &other.lease()).await);
                    assert_eq!(bench.backend.release(&other.lease(), None).await.unwrap(), Released::NotHeld);
                }
            }
            if stands == permits(3, 1) {
                assert_eq!(
                    refusal(&bench.backend, &shared("k", permits(4, 1))).await,
                    BackendErrorKind::LimitMismatch
                );
            } else {
                let error = bench.backend.resize(&holder.key, 9).await.unwrap_err();
                assert_eq!(error.kind(), BackendErrorKind::KeyConflict);
            }
            assert_eq!(dump(&bench).await, before);
            bench.backend.cancel(&waiter).await.unwrap();
            released(&bench.backend, &holder).await;
            assert_eq!(left(&bench).await, [""; 0]);
        }
    }
    // What isn't ours stays as it is, whatever is asked.
    let _: i64 = bench.ask("HSET distlock:k a b").await;
    let reader = shared("k", Mode::Read);
    assert_eq!(refusal(&bench.backend, &reader).await, BackendErrorKind::KeyConflict);
    assert!(!renews(&bench.backend, &reader.lease()).await);
    bench.backend.cancel(&reader).await.unwrap();
    assert_eq!(bench.backend.release(&reader.lease(), None).await.unwrap(), Released::NotHeld);
    let kind = bench.backend.convert(&reader.lease(), Mode::Write).await.unwrap_err().kind();
    assert_eq!(kind, BackendErrorKind::KeyConflict);
    assert_eq!(bench.ask::<Vec<String>>("HGETALL distlock:k").await, ["a", "b"]);
}

#[tokio::test]
async fn the_least_privileged_user_suffices() {
    let line =
        include_str!("../redis_backend/least-privilege.acl").trim().strip_prefix("ACL SETUSER ").unwrap();
    let bench = Bench::with(ServerOptions::new().user(line.replace('\n', " "))).await;
    let backend = open(&bench.server.url_with("locks", "secret", 0));
    let _serving = Serving::start(&backend);
    listening(&bench, &backend).await;
    for mode in [Mode::Exclusive, Mode::Write, permits(1, 1)] {
        let (holder, waiter) = (in_line("k", mode), in_line("k", mode));
        granted(&backend, &holder).await;
        queued(&backend, &waiter).await;
        assert!(renews(&backend, &holder.lease()).await);
        assert_eq!(backend.inspect(&holder.key).await.unwrap().waiters, 1);
        released(&backend, &holder).await;
        granted(&backend, &waiter).await;
        backend.cancel(&waiter).await.unwrap();
        granted(&backend, &in_line("k", mode)).await;
        if mode == permits(1, 1) {
            assert!(backend.resize(&holder.key, 2).await.unwrap());
        }
        backend.force_release(&holder.key).await.unwrap().unwrap();
    }
    let reader = shared("k", Mode::Read);
    granted(&backend, &reader).await;
    assert!(matches!(backend.convert(&reader.lease(), Mode::Write).await.unwrap(), Attempt::Granted(_)));
    assert_eq!(bench.ask::<Vec<redis::Value>>("ACL LOG").await.len(), 0);
}

#[tokio::test]
async fn a_full_server_takes_renewals_and_releases() {
    let bench = Bench::with(ServerOptions::new().max_memory("100mb", "noeviction")).await;
    let backend = &bench.backend;
    for (mode, cancels) in [(Mode::Read, true), (permits(2, 1), false)] {
        let (one, two, waiter) = (shared("k", mode), shared("k", mode), in_line("k", mode));
        granted(backend, &one).await;
        granted(backend, &two).await;
        let _: String = bench.ask("CONFIG SET maxmemory 1mb").await;
        for refused in [shared("new", mode), in_line("new", mode), waiter] {
            assert_eq!(refusal(backend, &refused).await, BackendErrorKind::OutOfMemory);
        }
        assert!(renews(backend, &one.lease()).await);
        assert_eq!(
            backend.release(&one.lease(), Some(Duration::from_millis(200))).await.unwrap(),
            Released::Confirmed
        );
        assert_eq!(backend.release(&one.lease(), None).await.unwrap(), Released::NotHeld);
        match cancels {
            true => backend.cancel(&two).await.unwrap(),
            false => released(backend, &two).await,
        }
        backend.cancel(&shared("never", mode)).await.unwrap();
        let lapsed = async || left(&bench).await.is_empty().then_some(());
        wait::until("what was kept to lapse", LIMIT, lapsed).await.unwrap();
        let _: String = bench.ask("CONFIG SET maxmemory 100mb").await;
    }
}

#[tokio::test]
async fn a_broken_counter_grants_nothing() {
    let bench = Bench::start().await;
    granted(&bench.backend, &shared("k", Mode::Read)).await;
    bench.backend.force_release(&LockKey::new("k").unwrap()).await.unwrap();
    bench
        .break_the_counter(async |how, kind| {
            for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(1, 1)] {
                assert_eq!(refusal(&bench.backend, &in_line("k", mode)).await, kind, "{how}");
                assert_eq!(left(&bench).await, [""; 0]);
            }
        })
        .await;
    // Lost: raised to the floor for a reader too, and the next writer's is larger.
    let reader = shared("k", Mode::Read);
    let carried = granted(&bench.backend, &reader).await.token;
    assert!(carried.get() > 1_000_000_000_000_000);
    released(&bench.backend, &reader).await;
    assert!(granted(&bench.backend, &shared("k", Mode::Write)).await.token > carried);
}
