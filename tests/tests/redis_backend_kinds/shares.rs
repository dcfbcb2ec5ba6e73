//! Read/write locks and semaphores.

use std::time::Duration;

use distlock_runtime::{
    LockKey,
    backend::{AcquireRequest, Attempt, Backend, BackendErrorKind, LeaseHandle, Mode, Released, Renewal},
};
use distlock_tests::{server::RedisOptions as ServerOptions, wait};

use super::redis_backend::*;
use super::*;

#[tokio::test]
async fn readers_share_and_a_writer_excludes() {
    let bench = Bench::start().await;
    let (one, two) = (shared("k", Mode::Read), shared("k", Mode::Read));
    let first = granted(&bench.backend, &one).await;
    let second = granted(&bench.other(), &two).await;
    assert_eq!(first.token, second.token, "readers carry the last token");
    let writer = shared("k", Mode::Write);
    let blocked = busy(&bench.backend, &writer).await;
    assert!(blocked.remaining().unwrap() > Duration::from_secs(59));
    assert!(blocked.holder.unwrap().label.is_some());
    released(&bench.backend, &one).await;
    busy(&bench.backend, &writer).await;
    released(&bench.backend, &two).await;
    let third = granted(&bench.backend, &writer).await;
    assert!(third.token > second.token);
    busy(&bench.backend, &one).await;
    busy(&bench.backend, &shared("k", Mode::Write)).await;
    released(&bench.backend, &writer).await;
    assert_eq!(left(&bench).await, [""; 0]);
    assert_eq!(granted(&bench.backend, &one).await.token, third.token, "at least that of the writer before");
}

#[tokio::test]
async fn permits_never_exceed_the_limit() {
    let bench = Bench::start().await;
    let holders: Vec<_> = [3, 1, 1].map(|weight| shared("k", permits(5, weight))).into();
    let mut last = 0;
    for holder in &holders {
        let token = granted(&bench.backend, holder).await.token.get();
        assert!(token > last);
        last = token;
    }
    let more = shared("k", permits(5, 1));
    busy(&bench.backend, &more).await;
    released(&bench.backend, &holders[1]).await;
    busy(&bench.backend, &shared("k", permits(5, 2))).await;
    granted(&bench.backend, &more).await;
    let block = AcquireRequest { tokens: 64, ..shared("j", permits(5, 1)) };
    assert_eq!(granted(&bench.backend, &block).await.tokens, 64);
}

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

/// Every value in the store but the counters.
async fn dump(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for key in left(bench).await {
        let value: redis::Value = bench.ask(&format!("DUMP {key}")).await;
        all.push((key, format!("{value:?}").into_bytes()));
    }
    all.sort();
    all
}

#[tokio::test]
async fn nobody_passes_by_a_waiting_writer() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let first = shared("k", Mode::Read);
    granted(&backend, &first).await;
    let writer = in_line("k", Mode::Write);
    queued(&backend, &writer).await;
    busy(&backend, &shared("k", Mode::Read)).await;
    let (third, fourth) = (in_line("k", Mode::Read), in_line("k", Mode::Read));
    queued(&backend, &third).await;
    queued(&backend, &fourth).await;
    let blocked = queued(&backend, &writer).await;
    assert_eq!(bench.backend.inspect(&first.key).await.unwrap().waiters, 3);
    // Told, and only the head.
    released(&bench.backend, &first).await;
    backend.turn(&writer, &blocked).await.unwrap();
    assert!(holds(&bench, &writer).await && !holds(&bench, &third).await);
    let grant = granted(&backend, &writer).await;
    released(&backend, &writer).await;
    assert!(holds(&bench, &third).await && holds(&bench, &fourth).await, "both readers at once");
    assert_eq!(granted(&backend, &fourth).await.token, grant.token);
    granted(&backend, &third).await;
    only_counters_lack_a_ttl(&bench).await;
}

#[tokio::test]
async fn a_claim_is_short_and_its_confirmation_brings_the_full_ttl() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    for mode in [Mode::Write, permits(1, 1), Mode::Exclusive] {
        let holder = AcquireRequest { fair: true, ..shared("k", mode) };
        granted(&backend, &holder).await;
        let waiter = in_line("k", mode);
        queued(&backend, &waiter).await;
        released(&backend, &holder).await;
        let remaining = async || {
            let state = bench.backend.inspect(&waiter.key).await.unwrap();
            let holder = state.holder.unwrap();
            assert_eq!(holder.owner, Some(waiter.owner));
            holder.remaining.unwrap()
        };
        assert!(remaining().await <= Duration::from_secs(3));
        granted(&backend, &waiter).await;
        assert!(remaining().await > Duration::from_secs(59));
        released(&backend, &waiter).await;
    }
}

#[tokio::test]
async fn leases_lapse_one_by_one_and_are_not_created_again() {
    let bench = Bench::start().await;
    let short = AcquireRequest { mode: permits(2, 1), ..request("k", 300) };
    let long = shared("k", permits(2, 1));
    granted(&bench.backend, &short).await;
    granted(&bench.backend, &long).await;
    let waiter = in_line("k", permits(2, 1));
    let started = tokio::time::Instant::now();
    acquired(&bench.backend, &waiter).await;
    assert!(started.elapsed() < Duration::from_millis(300 + 250), "{:?}", started.elapsed());
    let leases = [short.lease(), long.lease(), waiter.lease()];
    let outcomes = bench.backend.renew(&leases).await;
    assert!(
        matches!(outcomes[..], [Renewal::Gone, Renewal::Renewed { .. }, Renewal::Renewed { .. }]),
        "{outcomes:?}"
    );
    assert_eq!(bench.backend.release(&leases[0], None).await.unwrap(), Released::NotHeld);
    // The last to lapse leaves nothing, asked for or not.
    released(&bench.backend, &long).await;
    let brief = LeaseHandle { ttl: short.ttl, ..waiter.lease() };
    bench.backend.release(&brief, Some(Duration::from_millis(100))).await.unwrap();
    busy(&bench.backend, &shared("k", permits(2, 2))).await;
    wait::until("the end of the kept share", LIMIT, async || left(&bench).await.is_empty().then_some(()))
        .await
        .unwrap();
    assert!(!renews(&bench.backend, &brief).await);
    assert_eq!(left(&bench).await, [""; 0], "a renewal creates nothing");
}

#[tokio::test]
async fn renewals_of_all_kinds_go_together() {
    let bench = Bench::start().await;
    let mut leases = Vec::new();
    for number in 0..450 {
        let mode = [Mode::Exclusive, Mode::Read, Mode::Write, permits(9, 2)][number % 4];
        let request = AcquireRequest { mode, ..request(&format!("k{number}"), 5_000) };
        granted(&bench.backend, &request).await;
        if number % 10 == 0 {
            released(&bench.backend, &request).await;
        }
        leases.push(LeaseHandle {
            ttl: distlock_runtime::Ttl::new(Duration::from_secs(50)).unwrap(),
            ..request.lease()
        });
    }
    bench.server.reset_stats().await.unwrap();
    let outcomes = bench.backend.renew(&leases).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Renewal::Gone => assert_eq!(number % 10, 0, "{number}"),
            Renewal::Renewed { .. } => assert_ne!(number % 10, 0, "{number}"),
            other => panic!("{other:?}"),
        }
    }
    let calls = bench.server.commandstats().await.unwrap();
    // Two scripts, the second of them loaded and sent again; 200 leases each at most.
    assert!(calls["evalsha"] <= 6, "{calls:?}");
    for (key, ttl) in bench.server.keys_with_ttl().await.unwrap() {
        if !key.ends_with("!f") {
            assert!(ttl.unwrap() > Duration::from_secs(40), "{key}: {ttl:?}");
        }
    }
}

#[tokio::test]
async fn cancelled_attempts_leave_nothing_and_never_come_back() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    for (mode, other) in
        [(Mode::Write, Mode::Read), (permits(2, 2), permits(2, 1)), (Mode::Exclusive, Mode::Exclusive)]
    {
        let late = in_line("k", mode);
        bench.other().cancel(&late).await.unwrap();
        let error = backend.try_acquire(&late).await.unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Script, "{error}");
        assert_eq!(left(&bench).await, [""; 0]);
        // A holder's and a waiter's cancel hand on.
        let (holder, waiter, next) = (in_line("k", mode), in_line("k", mode), in_line("k", other));
        granted(&backend, &holder).await;
        queued(&backend, &waiter).await;
        queued(&backend, &next).await;
        backend.cancel(&waiter).await.unwrap();
        assert_eq!(backend.inspect(&holder.key).await.unwrap().waiters, 1);
        for _ in 0..2 {
            backend.cancel(&holder).await.unwrap();
        }
        let now = backend.inspect(&holder.key).await.unwrap();
        assert_eq!((now.waiters, now.holder.unwrap().owner), (0, Some(next.owner)));
        only_counters_lack_a_ttl(&bench).await;
        backend.cancel(&next).await.unwrap();
        assert_eq!(left(&bench).await, [""; 0]);
    }
}

#[tokio::test]
async fn conversions_have_no_gap_and_change_nothing_when_refused() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let lease = shared("k", Mode::Write);
    let write = granted(&backend, &lease).await;
    let (reader, writer, behind) =
        (in_line("k", Mode::Read), in_line("k", Mode::Write), in_line("k", Mode::Read));
    for waiter in [&reader, &writer, &behind] {
        queued(&backend, waiter).await;
    }
    for _ in 0..2 {
        let Attempt::Granted(read) = backend.convert(&lease.lease(), Mode::Read).await.unwrap() else {
            panic!("a writer can always read")
        };
        assert_eq!(read.token, write.token);
        assert!(
            holds(&bench, &reader).await && !holds(&bench, &writer).await && !holds(&bench, &behind).await
        );
    }
    let lease = LeaseHandle { mode: Mode::Read, ..lease.lease() };
    let refused = async || {
        let before = dump(&bench).await;
        assert!(matches!(backend.convert(&lease, Mode::Write).await.unwrap(), Attempt::Busy(_)));
        assert_eq!(dump(&bench).await, before);
    };
    refused().await;
    granted(&backend, &reader).await;
    released(&backend, &reader).await;
    refused().await;
    backend.cancel(&writer).await.unwrap();
    granted(&backend, &behind).await;
    refused().await;
    released(&backend, &behind).await;
    let mut last = write.token;
    for _ in 0..2 {
        let Attempt::Granted(again) = backend.convert(&lease, Mode::Write).await.unwrap() else {
            panic!("the only reader, and nobody waits")
        };
        assert!(again.token > last);
        last = again.token;
        busy(&backend, &shared("k", Mode::Read)).await;
    }
    assert_eq!(backend.release(&lease, None).await.unwrap(), Released::Confirmed);
    for to in [Mode::Read, Mode::Write] {
        assert_eq!(backend.convert(&lease, to).await.unwrap_err().kind(), BackendErrorKind::NotHeld);
    }
    assert_eq!(left(&bench).await, [""; 0]);
}

#[tokio::test]
async fn a_limit_is_changed_for_all() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let key = LockKey::new("k").unwrap();
    assert!(!backend.resize(&key, 3).await.unwrap());
    let (first, second) = (shared("k", permits(1, 1)), in_line("k", permits(1, 1)));
    granted(&backend, &first).await;
    queued(&backend, &second).await;
    assert!(backend.resize(&key, 2).await.unwrap());
    assert!(holds(&bench, &second).await, "there is room for it now");
    assert_eq!(refusal(&backend, &second).await, BackendErrorKind::LimitMismatch);
    let third = shared("k", permits(2, 1));
    busy(&backend, &third).await;
    // Holders beyond a lower limit stay until they end.
    assert!(backend.resize(&key, 1).await.unwrap());
    let third = shared("k", permits(1, 1));
    assert!(renews(&backend, &first.lease()).await && renews(&backend, &second.lease()).await);
    released(&backend, &first).await;
    busy(&backend, &third).await;
    released(&backend, &second).await;
    granted(&backend, &third).await;
}

#[tokio::test]
async fn shares_are_seen_listed_and_taken_away() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let (brief, long) = (AcquireRequest { mode: Mode::Read, ..request("k", 5_000) }, shared("k", Mode::Read));
    granted(&backend, &brief).await;
    granted(&backend, &long).await;
    let waiter = in_line("k", Mode::Write);
    queued(&backend, &waiter).await;
    let state = backend.inspect(&long.key).await.unwrap();
    let holder = state.holder.unwrap();
    assert_eq!((holder.owner, state.waiters), (Some(long.owner), 1));
    assert!(holder.label.unwrap().ends_with(&format!(":{}", std::process::id())));
    held(&backend, "j", LONG).await;
    let listed = backend.list("", 10).await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|state| state.key.to_string()).collect();
    names.sort();
    assert_eq!(names, ["j", "k"]);
    let taken = backend.force_release(&long.key).await.unwrap().unwrap();
    assert_eq!(taken.owner, Some(long.owner));
    assert!(!renews(&backend, &long.lease()).await && !renews(&backend, &brief.lease()).await);
    assert!(holds(&bench, &waiter).await, "handed on");
    granted(&backend, &waiter).await;
    released(&backend, &waiter).await;
    assert_eq!(backend.force_release(&long.key).await.unwrap(), None);
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
        distlock_tests::wait::until("what was kept to lapse", LIMIT, lapsed).await.unwrap();
        let _: String = bench.ask("CONFIG SET maxmemory 100mb").await;
    }
}

#[tokio::test]
async fn a_broken_counter_grants_nothing() {
    let bench = Bench::start().await;
    granted(&bench.backend, &shared("k", Mode::Read)).await;
    bench.backend.force_release(&LockKey::new("k").unwrap()).await.unwrap();
    let counter = bench.ask::<Vec<String>>("KEYS distlock!*!f").await.remove(0);
    for (value, kind) in [
        (format!("HSET {counter} a b"), BackendErrorKind::KeyConflict),
        (format!("SET {counter} text"), BackendErrorKind::Script),
        (format!("SET {counter} 9100000000000000"), BackendErrorKind::Script),
    ] {
        let _: i64 = bench.ask(&format!("DEL {counter}")).await;
        let _: redis::Value = bench.ask(&value).await;
        for mode in [Mode::Exclusive, Mode::Read, Mode::Write, permits(1, 1)] {
            assert_eq!(refusal(&bench.backend, &in_line("k", mode)).await, kind, "{value}");
            assert_eq!(left(&bench).await, [""; 0]);
        }
    }
    // Lost: raised to the floor for a reader too, and the next writer's is larger.
    let _: i64 = bench.ask(&format!("DEL {counter}")).await;
    let reader = shared("k", Mode::Read);
    let carried = granted(&bench.backend, &reader).await.token;
    assert!(carried.get() > 1_000_000_000_000_000);
    released(&bench.backend, &reader).await;
    assert!(granted(&bench.backend, &shared("k", Mode::Write)).await.token > carried);
}
