//! Semaphores, and the clocks of those who use them.
//!
//! Only the server's clock decides when a permit lapses (`TIME`, read once in each script). What a client's wall clock says doesn't
//! matter at all, and its monotonic clock only for how long something took: the time of its own until which it believes to hold. So the
//! processes below run with wall clocks that are an hour apart; the naive lock beside them judges leases by these.

use std::time::Duration;

use distlock_tests::{
    procs::{Worker, skew},
    server::RedisServer,
    wait::{self, Deadline},
};

use super::*;

const PERMITS: u32 = 3;

/// A process whose wall clock is off by so many seconds.
fn skewed(server: &RedisServer, task: &str, kind: &str, tasks: usize, seconds: i32) -> Worker {
    let args = worker_args(server, task, kind, tasks, Duration::from_millis(20));
    let environment = skew(f64::from(seconds)).into_iter().chain([WORKER.to_owned()]);
    Worker::spawn("env", environment.chain(args)).unwrap()
}

/// Processes an hour apart take and give back permits for a while.
pub(crate) async fn contest(kind: &str, time: Duration) -> distlock_tests::history::Shares {
    let server = start();
    let workers: Vec<_> =
        [-3_600, 0, 3_600, 1_800].map(|seconds| skewed(&server, "contend", kind, 3, seconds)).into();
    for worker in &workers {
        said(worker, "hold ").await;
    }
    let end = Deadline::after(time);
    wait::until("the end of the contest", 2 * time, async || end.is_past().then_some(())).await.unwrap();
    let shares = recorded(&workers).await.check_shares(u64::from(PERMITS), |_| 1);
    println!("{kind}: {shares}");
    shares
}

#[tokio::test]
async fn procs_a_semaphore_keeps_its_limit_with_clocks_an_hour_apart() {
    contest("permit", Duration::from_secs(5)).await.assert_clean(200, u64::from(PERMITS));
    let naive = contest("naive-client-clock", Duration::from_secs(3)).await;
    assert!(!naive.excesses.is_empty(), "leases judged by the clients' clocks: {naive}");
}

#[tokio::test]
async fn procs_permits_of_killed_holders_return_within_the_ttl() {
    let server = start();
    let locks = connect(&server).await;
    for seconds in [-3_600, 0, 3_600] {
        let holder = skewed(&server, "hold", "permit", 3, seconds);
        said(&holder, "holding 2").await;
        let semaphore = locks.semaphore("key-0", PERMITS).ttl(TTL).wait(LIMIT);
        assert!(semaphore.clone().try_acquire().await.unwrap_err().is_busy());
        holder.kill().unwrap();
        let (all, took) = timed(semaphore.acquire_many(PERMITS)).await;
        println!("{seconds} {took:?}");
        all.unwrap().release().await.unwrap();
        assert!(took <= TTL + SLACK, "{took:?}");
        assert!(took >= TTL / 2, "from one that may still act: {took:?}");
    }
}
