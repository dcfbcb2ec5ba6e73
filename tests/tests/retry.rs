//! The helper that repeats users' own calls: when it does, when it doesn't, and for how long.

use std::{cell::Cell, time::Duration};

use distlock::{
    ErrorKind, LockError, LockManager,
    retry::{Again, Repeatable, Retry},
};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3_600);

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Fails so many times, and counts its calls.
struct Flaky {
    failures: usize,
    calls: Cell<usize>,
}

impl Flaky {
    fn new(failures: usize) -> Self {
        Self { failures, calls: Cell::new(0) }
    }

    async fn call(&self) -> Result<usize, usize> {
        self.calls.set(self.calls.get() + 1);
        let number = self.calls.get();
        if number > self.failures { Ok(number) } else { Err(number) }
    }
}

fn later(_: &usize) -> Again {
    Again::Later
}

#[tokio::test(start_paused = true)]
async fn it_repeats_until_it_works_and_returns_the_last_error_else() {
    let flaky = Flaky::new(3);
    assert_eq!(Retry::new().run_when(|| flaky.call(), later).await, Ok(4));
    for (attempts, calls) in [(0, 1), (1, 1), (3, 3)] {
        let flaky = Flaky::new(usize::MAX);
        assert_eq!(Retry::new().attempts(attempts).run_when(|| flaky.call(), later).await, Err(calls));
        assert_eq!(flaky.calls.get(), calls);
    }
    let flaky = Flaky::new(usize::MAX);
    let class = |number: &usize| if *number == 2 { Again::Never } else { Again::Later };
    assert_eq!(Retry::new().run_when(|| flaky.call(), class).await, Err(2));
}

/// Of the field's errors, those that may pass are repeated and no others.
#[tokio::test(start_paused = true)]
async fn the_kind_of_a_lock_error_decides() {
    for kind in ErrorKind::ALL {
        let calls = Cell::new(0);
        let call = || {
            calls.set(calls.get() + 1);
            std::future::ready(Err::<(), _>(LockError::new(*kind, "test")))
        };
        let error = Retry::new().attempts(2).run(call).await.unwrap_err();
        assert_eq!(error.kind(), *kind);
        assert_eq!(calls.get(), if kind.is_retryable() { 2 } else { 1 }, "{kind:?}");
        assert_eq!(error.again() == Again::Never, !kind.is_retryable());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_gets_free_is_had() {
    let locks = LockManager::connect("memory:").await.unwrap();
    let held = locks.mutex("k").hold_at_least(ms(0)).lock().await.unwrap();
    let release = tokio::spawn(async move {
        tokio::time::sleep(ms(700)).await;
        held.release().await
    });
    let guard = Retry::new().run(|| locks.mutex("k").try_lock()).await.unwrap();
    release.await.unwrap().unwrap();
    assert!(guard.is_valid());
}

/// Pauses are anything from nothing to their bound, and the bound doubles.
#[tokio::test(start_paused = true)]
async fn pauses_grow_and_are_full_of_jitter() {
    let retry = Retry::new().pauses(ms(1_000), ms(4_000)).budget(HOUR).attempts(5);
    let (mut sums, mut least, mut most) = ([0.0; 4], [f64::MAX; 4], [0.0_f64; 4]);
    for _ in 0..300 {
        let flaky = Flaky::new(usize::MAX);
        let last = Cell::new(Instant::now());
        let call = || {
            let pause = last.replace(Instant::now()).elapsed().as_secs_f64();
            if let Some(at) = flaky.calls.get().checked_sub(1) {
                sums[at] += pause / 300.0;
                least[at] = least[at].min(pause);
                most[at] = most[at].max(pause);
            }
            flaky.call()
        };
        retry.run_when(call, later).await.unwrap_err();
    }
    for (at, bound) in [1.0, 2.0, 4.0, 4.0].into_iter().enumerate() {
        assert!(most[at] <= bound + 0.002 && most[at] > 0.9 * bound, "pause {at}: {most:?}");
        assert!(least[at] < 0.1 * bound, "pause {at}: {least:?}");
        assert!((0.4..0.6).contains(&(sums[at] / bound)), "pause {at}: {sums:?}");
    }
}

/// No call begins after the budget, and nobody sleeps for nothing at its end.
#[tokio::test(start_paused = true)]
async fn the_budget_is_kept() {
    for _ in 0..50 {
        let (start, last) = (Instant::now(), Cell::new(Duration::ZERO));
        let call = || {
            last.set(start.elapsed());
            std::future::ready(Err::<(), _>(1))
        };
        Retry::new().budget(ms(3_000)).run_when(call, later).await.unwrap_err();
        assert!(last.get() <= ms(3_001), "a call after {:?}", last.get());
        assert_eq!(start.elapsed(), last.get(), "it slept before it gave up");
    }
    let flaky = Flaky::new(usize::MAX);
    assert_eq!(Retry::new().budget(Duration::ZERO).run_when(|| flaky.call(), later).await, Err(1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_is_honoured_or_the_budget_says_no() {
    for _ in 0..50 {
        let (start, flaky) = (Instant::now(), Flaky::new(1));
        let hint = |_: &usize| Again::After(ms(5_000));
        assert_eq!(Retry::new().run_when(|| flaky.call(), hint).await, Ok(2));
        let took = start.elapsed();
        assert!(took >= ms(5_000) && took <= ms(5_052), "{took:?}");
    }
    let (start, flaky) = (Instant::now(), Flaky::new(1));
    let hint = |_: &usize| Again::After(HOUR);
    assert_eq!(Retry::new().run_when(|| flaky.call(), hint).await, Err(1));
    assert_eq!(start.elapsed(), Duration::ZERO, "it waited for what it then didn't do");
}

/// Dropped in a call or in a pause, nothing goes on.
#[tokio::test(start_paused = true)]
async fn dropped_it_makes_no_further_call() {
    let (begun, ended) = (Cell::new(0), Cell::new(0));
    let slow = || async {
        begun.set(begun.get() + 1);
        tokio::time::sleep(ms(100)).await;
        ended.set(ended.get() + 1);
        Err::<(), _>(1)
    };
    let retry = Retry::new().pauses(ms(10_000), ms(10_000)).budget(HOUR);
    for (limit, calls) in [(50, (1, 0)), (101, (1, 1))] {
        begun.set(0);
        ended.set(0);
        let running = retry.run_when(slow, |_| Again::After(HOUR / 2));
        assert!(tokio::time::timeout(ms(limit), running).await.is_err());
        tokio::time::sleep(HOUR).await;
        assert_eq!((begun.get(), ended.get()), calls);
    }
}
