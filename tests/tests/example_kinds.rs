//! One example for each kind of lock, and one of work that runs once: each judges itself, on memory and on Redis, and notices where there is no lock in common.

use std::time::Duration;

use distlock_tests::{
    example,
    server::{RedisOptions, RedisServer},
};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs an example to its end; whether it was content, and its last line.
async fn run(name: &str, url: Option<&str>, arguments: &[&str]) -> (bool, String) {
    let program = tokio::task::spawn_blocking({
        let name = name.to_owned();
        move || example::build(&name)
    });
    let worker = example::start(&program.await.unwrap(), url, arguments);
    let status = worker.wait_exit(LIMIT).await.unwrap();
    (status.success(), worker.lines().last().cloned().unwrap_or_default())
}

/// On memory and on Redis, where it is content and ends with these totals.
async fn keeps_its_promise(name: &str, totals: &str) {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    for url in [None, Some(server.url())] {
        let (content, last) = run(name, url.as_deref(), &[]).await;
        assert!(content && last.starts_with(totals), "{url:?}: {last}");
    }
    // Its process has ended, so nothing of it is left but what lapses.
    let lasting = server.keys_without_ttl().await.unwrap();
    assert!(lasting.iter().all(|key| key.ends_with("}!f")), "{lasting:?}");
}

/// Each part on a store of its own: the verdict must say so.
async fn notices(name: &str) {
    let (content, last) = run(name, None, &["--alone"]).await;
    assert!(!content, "it was content without a lock: {last}");
}

#[tokio::test]
async fn fair_queue_serves_in_order_of_arrival() {
    keeps_its_promise("fair-queue", "summary visitors=12 served=11 order=[1, 2, 3, 4, 6,").await;
}

#[tokio::test]
async fn catalog_shows_readers_no_mixture() {
    keeps_its_promise("catalog", "summary changes=10 reads=").await;
    notices("catalog").await;
}

#[tokio::test]
async fn rate_limit_keeps_to_its_limit() {
    keeps_its_promise("rate-limit", "summary calls=15 limit=3 most_at_once=3").await;
    notices("rate-limit").await;
}

#[tokio::test]
async fn cache_refill_happens_once_and_the_others_wait_for_it() {
    keeps_its_promise("cache-refill", "summary requests=50 refills=1").await;
    notices("cache-refill").await;
}

#[tokio::test]
async fn consumer_does_the_work_of_each_message_once() {
    keeps_its_promise("consumer", "summary messages=20 deliveries=60 charges=20").await;
    notices("consumer").await;
}

#[tokio::test]
async fn transfer_makes_and_loses_no_money() {
    keeps_its_promise("transfer", "summary moves=100 total=5000 collisions=0").await;
    notices("transfer").await;
}

#[tokio::test]
async fn month_end_lets_its_own_in_and_waits_for_the_last() {
    keeps_its_promise("month-end", "summary reports=4").await;
}

#[tokio::test]
async fn reentry_keeps_the_hold_and_its_token() {
    keeps_its_promise("reentry", "summary entries=5").await;
}

/// Three processes on Redis, of which one works; each leader that is killed is followed by the next.
#[tokio::test]
async fn scheduler_has_one_leader_at_a_time() {
    keeps_its_promise("scheduler", "summary leaders=3 ticks=15").await;
    notices("scheduler").await;
}
