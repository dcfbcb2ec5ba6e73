//! The order of those who wait.

use std::{collections::VecDeque, time::Duration};

use distlock_runtime::backend::{AcquireRequest, Attempt, Backend, LeaseHandle, Mode};

use super::redis_backend::*;
use super::*;

#[tokio::test]
async fn a_fair_lock_goes_by_arrival() {
    let bench = Bench::start().await;
    let (one, _one) = told(&bench).await;
    let (two, _two) = told(&bench).await;
    let polls = bench.other();
    for exchange in 0..3 {
        let holder = AcquireRequest { fair: true, ..request("k", LONG) };
        granted(&one, &holder).await;
        let line: Vec<_> = [&one, &two, &polls, &one, &polls, &two]
            .map(|backend| (backend, in_line("k", Mode::Exclusive)))
            .into();
        for (backend, request) in &line {
            queued(backend, request).await;
            queued(backend, request).await;
        }
        assert_eq!(one.inspect(&holder.key).await.unwrap().waiters, 6);
        released(&one, &holder).await;
        let mut last = 0;
        let newcomer = AcquireRequest { queue: false, ..in_line("k", Mode::Exclusive) };
        for (number, (backend, request)) in line.iter().enumerate() {
            // A newcomer, and each of those behind, find that it isn't their turn.
            busy(&two, &newcomer).await;
            for (backend, behind) in &line[number + 1..] {
                queued(backend, behind).await;
            }
            let token = granted(backend, request).await.token.get();
            assert!(token > last, "{exchange} {number}");
            last = token;
            released(backend, request).await;
        }
        assert_eq!(left(&bench).await, [""; 0]);
    }
}

/// Who can't be told keeps the place, and stands in the way of those behind as long as it asks.
#[tokio::test]
async fn a_head_that_polls_is_waited_for_and_lets_in_those_behind() {
    let bench = Bench::start().await;
    let (manager, _serving) = told(&bench).await;
    let polls = bench.other();
    let holder = shared("k", Mode::Write);
    granted(&manager, &holder).await;
    let (first, second, third) =
        (in_line("k", Mode::Read), in_line("k", Mode::Read), in_line("k", Mode::Write));
    queued(&polls, &first).await;
    queued(&manager, &second).await;
    queued(&manager, &third).await;
    released(&manager, &holder).await;
    let blocked = queued(&manager, &second).await;
    assert!(
        blocked.remaining().unwrap() <= Duration::from_millis(1500),
        "until the head would be dead: {blocked:?}"
    );
    assert!(!holds(&bench, &first).await && !holds(&bench, &second).await);
    granted(&polls, &first).await;
    assert!(holds(&bench, &second).await && !holds(&bench, &third).await);
}

/// An extension may have overtaken it.
#[tokio::test]
async fn a_repeat_that_comes_late_shortens_no_lease() {
    let bench = Bench::start().await;
    for mode in [Mode::Exclusive, Mode::Write, permits(1, 1)] {
        let request = AcquireRequest { mode, fair: true, ..request("k", 5_000) };
        granted(&bench.backend, &request).await;
        let longer = LeaseHandle { ttl: in_line("k", mode).ttl, ..request.lease() };
        assert!(renews(&bench.backend, &longer).await);
        granted(&bench.backend, &request).await;
        assert!(renews(&bench.backend, &request.lease()).await);
        let holder = bench.backend.inspect(&request.key).await.unwrap().holder.unwrap();
        assert!(holder.remaining.unwrap() > Duration::from_secs(50), "{mode:?}: {holder:?}");
        released(&bench.backend, &request).await;
    }
}

#[tokio::test]
async fn a_late_cancelled_plain_try_does_not_stop_a_fair_one() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    let late = request("k", LONG);
    bench.other().cancel(&late).await.unwrap();
    bench.backend.try_acquire(&late).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 1);
    granted(&bench.backend, &in_line("k", Mode::Exclusive)).await;
}

/// Waiters of several managers come and are cancelled at random; whoever came first of those that are left is next.
#[tokio::test]
async fn grants_are_in_order_of_arrival_whoever_gives_up() {
    let _alone = alone().await;
    let bench = Bench::start().await;
    let (one, _one) = told(&bench).await;
    let (two, _two) = told(&bench).await;
    let managers = [one, two, bench.other()];
    let mut random = fastrand::Rng::with_seed(7);
    for mode in [Mode::Exclusive, Mode::Write, permits(1, 1)] {
        let mut line: VecDeque<(usize, AcquireRequest)> = VecDeque::new();
        let mut holder: Option<(usize, AcquireRequest)> = None;
        let (mut grants, mut last) = (0, 0);
        let mut asked = tokio::time::Instant::now();
        while grants < 150 {
            // As those who poll do.
            if asked.elapsed() > Duration::from_millis(250) && holder.is_some() {
                asked = tokio::time::Instant::now();
                for (manager, request) in &line {
                    queued(&managers[*manager], request).await;
                }
            }
            let manager = random.usize(..managers.len());
            match random.u8(..8) {
                0..=3 if line.len() < 12 => {
                    let request = in_line("k", mode);
                    match managers[manager].try_acquire(&request).await.unwrap() {
                        Attempt::Granted(_) => {
                            assert!(holder.is_none() && line.is_empty(), "it passed by somebody");
                            holder = Some((manager, request));
                        }
                        Attempt::Queued(_) => line.push_back((manager, request)),
                        other => panic!("{other:?}"),
                    }
                }
                4 if !line.is_empty() => {
                    let (manager, request) = line.remove(random.usize(..line.len())).unwrap();
                    managers[manager].cancel(&request).await.unwrap();
                }
                5 => {
                    // From anywhere, in any order: nobody comes forward by asking.
                    let mut asks: Vec<_> = line.iter().collect();
                    random.shuffle(&mut asks);
                    for (manager, request) in asks.into_iter().filter(|_| holder.is_some()) {
                        queued(&managers[*manager], request).await;
                    }
                }
                _ => {
                    if let Some((manager, request)) = holder.take() {
                        match random.bool() {
                            true => released(&managers[manager], &request).await,
                            false => managers[manager].cancel(&request).await.unwrap(),
                        }
                    }
                    let Some((manager, request)) = line.pop_front() else { continue };
                    for (manager, behind) in &line {
                        queued(&managers[*manager], behind).await;
                    }
                    let token = granted(&managers[manager], &request).await.token.get();
                    assert!(token > last);
                    (last, grants) = (token, grants + 1);
                    holder = Some((manager, request));
                }
            }
        }
        for (manager, request) in line.into_iter().chain(holder) {
            managers[manager].cancel(&request).await.unwrap();
        }
        assert_eq!(left(&bench).await, [""; 0]);
        only_counters_lack_a_ttl(&bench).await;
    }
}
