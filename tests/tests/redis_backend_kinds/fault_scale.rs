//! Ten thousand holders and waiters: no call takes longer than with a few.

use std::{sync::Arc, time::Duration};

use super::redis_backend::*;
use super::{alone, told};
use distlock_runtime::{
    OwnerId,
    backend::{AcquireRequest, Attempt, Backend, Mode, Released, redis::RedisBackend},
};
use distlock_tests::server;

const CROWD: usize = 10_000;
const TTL: u64 = 600_000;
/// How often each operation is done. A script that is slow is so each time; one that was interrupted by the machine isn't.
const TIMES: usize = 20;

fn shared(mode: Mode) -> AcquireRequest {
    AcquireRequest { mode, ..request("k", TTL) }
}

fn in_line(mode: Mode) -> AcquireRequest {
    AcquireRequest { mode, fair: true, ..waiting("k", TTL) }
}

/// Looks into the server's log of slow calls, which begins at 5 ms, at every step.
struct Watch(Bench);

impl Watch {
    async fn start() -> Self {
        let options =
            server::RedisOptions::new().config("slowlog-log-slower-than 5000").config("slowlog-max-len 1000");
        Self(Bench::with(options).await)
    }

    async fn slow(&self) -> usize {
        let slow = self.0.ask("SLOWLOG LEN").await;
        let _: String = self.0.ask("SLOWLOG RESET").await;
        slow
    }

    /// Most of these calls, `what` each, took less than 5 ms.
    async fn quick(&self, what: &str, mut call: impl AsyncFnMut(usize)) {
        self.slow().await;
        for number in 0..TIMES {
            call(number).await;
        }
        let slow = self.slow().await;
        assert!(slow <= TIMES / 4, "{what}: {slow} of {TIMES} calls took longer than 5 ms");
    }
}

/// Sends all of these attempts, many at a time. Those that wait do so for as long as the test needs.
async fn crowd(bench: &Bench, backend: &Arc<RedisBackend>, requests: &[AcquireRequest]) -> usize {
    let mut granted = 0;
    for some in requests.chunks(500) {
        let tasks: Vec<_> = some
            .iter()
            .cloned()
            .map(|request| {
                let backend = Arc::clone(backend);
                tokio::spawn(async move { backend.try_acquire(&request).await.unwrap() })
            })
            .collect();
        for task in tasks {
            granted += usize::from(matches!(task.await.unwrap(), Attempt::Granted(_)));
        }
        if requests[0].queue {
            live_until(bench, some, 9_999_999_999_999).await;
        }
    }
    granted
}

/// Sets until when these waiters live, as if they had asked at another time.
async fn live_until(bench: &Bench, waiters: &[AcquireRequest], time: u64) {
    let hash = match waiters[0].mode {
        Mode::Exclusive => bench.ask::<Vec<String>>("KEYS distlock!*!w:distlock:k").await.remove(0),
        _ => "distlock:k".to_owned(),
    };
    for some in waiters.chunks(1_000) {
        let (mut get, mut set) = (redis::cmd("HMGET"), redis::cmd("HSET"));
        get.arg(&hash);
        for waiter in some {
            get.arg(waiter.owner.to_hex());
        }
        let entries: Vec<String> = get.query_async(&mut bench.admin.clone()).await.unwrap();
        set.arg(&hash);
        for (waiter, entry) in some.iter().zip(entries) {
            let (_, rest) = entry.split_once(' ').unwrap();
            set.arg(waiter.owner.to_hex()).arg(format!("{time} {rest}"));
        }
        set.exec_async(&mut bench.admin.clone()).await.unwrap();
    }
}

#[tokio::test]
async fn ten_thousand_readers() {
    let _alone = alone().await;
    let watch = Watch::start().await;
    let (backend, _serving) = told(&watch.0).await;
    let readers: Vec<_> = (0..CROWD).map(|_| shared(Mode::Read)).collect();
    let started = tokio::time::Instant::now();
    assert_eq!(crowd(&watch.0, &backend, &readers).await, CROWD);
    let slow = watch.slow().await;
    assert!(slow < CROWD / 100, "{slow} slow calls while they came in");
    assert!(started.elapsed() < Duration::from_secs(60));
    let writer = shared(Mode::Write);
    watch.quick("a busy writer", async |_| drop(busy(&backend, &writer).await)).await;
    watch
        .quick("one more reader", async |_| {
            granted(&backend, &shared(Mode::Read)).await;
        })
        .await;
    watch
        .quick("a repeat", async |at| {
            granted(&backend, &readers[at]).await;
        })
        .await;
    let leases: Vec<_> = readers.iter().map(AcquireRequest::lease).collect();
    watch.quick("renewals", async |at| drop(backend.renew(&leases[200 * at..200 * (at + 1)]).await)).await;
    watch.quick("inspect", async |_| drop(backend.inspect(&writer.key).await.unwrap())).await;
    watch
        .quick("convert", async |at| {
            assert!(matches!(backend.convert(&leases[at], Mode::Write).await.unwrap(), Attempt::Busy(_)));
        })
        .await;
    watch
        .quick("release", async |at| {
            assert_eq!(backend.release(&leases[at], None).await.unwrap(), Released::Confirmed);
        })
        .await;
    watch.quick("cancel", async |at| backend.cancel(&readers[TIMES + at]).await.unwrap()).await;
    // Some twenty calls for all of them.
    watch.slow().await;
    assert!(backend.force_release(&writer.key).await.unwrap().is_some());
    let slow = watch.slow().await;
    assert!(slow <= 5, "{slow} slow calls to take them all away");
    granted(&backend, &writer).await;
}

#[tokio::test]
async fn ten_thousand_whose_leases_lapsed() {
    let _alone = alone().await;
    let watch = Watch::start().await;
    let (backend, _serving) = told(&watch.0).await;
    let readers: Vec<_> = (0..CROWD).map(|_| shared(Mode::Read)).collect();
    assert_eq!(crowd(&watch.0, &backend, &readers).await, CROWD);
    let last = shared(Mode::Read);
    granted(&backend, &last).await;
    // As if the clock had gone on: all but one are over.
    let shares: String = watch.0.ask::<Vec<String>>("KEYS distlock!*!s:distlock:k").await.remove(0);
    let mut lapse = redis::cmd("ZADD");
    lapse.arg(&shares);
    for reader in &readers {
        lapse.arg(1).arg(reader.owner.to_hex());
    }
    lapse.exec_async(&mut watch.0.admin.clone()).await.unwrap();
    watch.slow().await;
    let writer = in_line(Mode::Write);
    queued(&backend, &writer).await;
    backend.release(&last.lease(), None).await.unwrap();
    let started = tokio::time::Instant::now();
    acquired(&backend, &writer).await;
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let slow = watch.slow().await;
    assert!(slow <= 10, "{slow} slow calls to clear them away");
}

#[tokio::test]
async fn ten_thousand_waiters() {
    let _alone = alone().await;
    let owned = |name| Mode::Owned { owner: OwnerId::new(name).unwrap() };
    for (stands, waits, fair) in [
        (Mode::Write, Mode::Read, true),
        (Mode::Exclusive, Mode::Exclusive, true),
        (Mode::Exclusive, Mode::Exclusive, false),
        (owned("one"), owned("other"), true),
        (Mode::Permits { limit: 20_000, weight: 20_000 }, Mode::Permits { limit: 20_000, weight: 2 }, true),
    ] {
        let watch = Watch::start().await;
        let (backend, _serving) = told(&watch.0).await;
        let in_line = |mode| AcquireRequest { fair, ..in_line(mode) };
        let holder = AcquireRequest { fair, ..shared(stands) };
        granted(&backend, &holder).await;
        let waiters: Vec<_> = (0..CROWD).map(|_| in_line(waits)).collect();
        assert_eq!(crowd(&watch.0, &backend, &waiters).await, 0);
        let slow = watch.slow().await;
        assert!(slow < CROWD / 100, "{slow} slow calls while they came in");
        let late = in_line(waits);
        watch.quick("one too many", async |_| drop(busy(&backend, &late).await)).await;
        watch.quick("asking again", async |at| drop(queued(&backend, &waiters[CROWD - 1 - at]).await)).await;
        watch.quick("inspect", async |_| drop(backend.inspect(&holder.key).await.unwrap())).await;
        watch
            .quick("list", async |_| {
                assert_eq!(backend.list("k", 10).await.unwrap()[0].waiters, CROWD as u64)
            })
            .await;
        watch.quick("renewal", async |_| drop(backend.renew(&[holder.lease()]).await)).await;
        if let Mode::Permits { .. } = stands {
            watch
                .quick("resize", async |_| assert!(backend.resize(&holder.key, 20_000).await.unwrap()))
                .await;
        }
        watch.quick("cancel", async |at| backend.cancel(&waiters[at]).await.unwrap()).await;
        let newcomers: Vec<_> = (0..TIMES).map(|_| in_line(waits)).collect();
        watch.quick("one at the end", async |at| drop(queued(&backend, &newcomers[at]).await)).await;
        // From here on one head after the other gets it, or as many at once as a call may tell.
        watch.slow().await;
        backend.release(&holder.lease(), None).await.unwrap();
        let slow = watch.slow().await;
        assert!(slow <= 1, "the first hand-over was slow");
        watch
            .quick("hand-over", async |at| {
                let next = &waiters[TIMES + at];
                granted(&backend, next).await;
                assert_eq!(backend.release(&next.lease(), None).await.unwrap(), Released::Confirmed);
            })
            .await;
        // Those that were handed a share or the lock, at most as many as a few calls may tell.
        backend.force_release(&holder.key).await.unwrap();
        let slow = watch.slow().await;
        assert!(slow <= 5, "{slow} slow calls to take it away");
    }
}

/// Ten thousand locks of two kinds, each looked at.
#[tokio::test]
async fn ten_thousand_locks_in_a_list() {
    let _alone = alone().await;
    let watch = Watch::start().await;
    let (backend, _serving) = told(&watch.0).await;
    for number in 0..CROWD / 500 {
        let some = (0..500).map(|place| {
            let mode = if place % 2 == 0 { Mode::Exclusive } else { Mode::Read };
            let request = AcquireRequest { mode, ..request(&format!("k{number}:{place}"), TTL) };
            let backend = Arc::clone(&backend);
            tokio::spawn(async move { granted(&backend, &request).await })
        });
        for granted in some.collect::<Vec<_>>() {
            granted.await.unwrap();
        }
    }
    watch.slow().await;
    assert_eq!(backend.list("k", 20_000).await.unwrap().len(), CROWD);
    // A hundred looks leave together; each of them, and each step of the scan, is quick.
    let slow = watch.slow().await;
    assert!(slow <= 10, "{slow} slow calls to list them");
}

/// The windows of ten thousand waiters are over: each call clears a bounded number of them away.
#[tokio::test]
async fn ten_thousand_dead_waiters() {
    let _alone = alone().await;
    for mode in [Mode::Exclusive, Mode::Write] {
        let watch = Watch::start().await;
        let (backend, _serving) = told(&watch.0).await;
        let holder = AcquireRequest { fair: true, ..shared(mode) };
        granted(&backend, &holder).await;
        let waiters: Vec<_> = (0..CROWD - 1).map(|_| in_line(mode)).collect();
        assert_eq!(crowd(&watch.0, &backend, &waiters).await, 0);
        live_until(&watch.0, &waiters, 1).await;
        watch.slow().await;
        let alive = in_line(mode);
        queued(&backend, &alive).await;
        backend.release(&holder.lease(), None).await.unwrap();
        let started = tokio::time::Instant::now();
        acquired(&backend, &alive).await;
        assert!(started.elapsed() < Duration::from_secs(3), "{mode:?}: {:?}", started.elapsed());
        let slow = watch.slow().await;
        assert!(slow <= 25, "{slow} slow calls to clear them away");
    }
}
