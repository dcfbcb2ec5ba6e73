//! Read/write locks and semaphores: who gets a share, and for how long.

use std::time::Duration;

use distlock_runtime::backend::{
    AcquireRequest, Backend, BackendErrorKind, LeaseHandle, Mode, Released, Renewal,
};
use distlock_tests::wait;

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
    // Not when the other lapses, a minute from now.
    assert!(started.elapsed() < Duration::from_millis(300 + 1_500), "{:?}", started.elapsed());
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
        assert_eq!(error.kind(), BackendErrorKind::Unavailable, "{error}");
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
