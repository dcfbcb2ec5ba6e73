//! Executors in processes of their own, killed and stopped half-way.

mod tower_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use distlock::records::CrashPolicy;
use distlock_tests::procs::{Worker, skew};
use distlock_tower::{AfterCrash, Execution, IdempotencyLayer, Recovered};
use http::StatusCode;

use tower_support::{LIMIT, Reply, Runs, Store, ask, keyed};

/// Of those who are killed: others wait for so long.
const LEASE: Duration = Duration::from_millis(1_500);

/// Starts an executor and waits until its handler runs.
async fn executor(store: &Store, policy: &str, key: &str) -> (Worker, u64) {
    let worker = worker(store, policy, key, Vec::new());
    let fence = running(&worker).await;
    (worker, fence)
}

/// With these variables in its environment.
fn worker(store: &Store, policy: &str, key: &str, mut environment: Vec<String>) -> Worker {
    environment.push(env!("CARGO_BIN_EXE_idempotent-worker").to_owned());
    let lease = LEASE.as_millis().to_string();
    let args = [store.url(), policy.to_owned(), lease, key.to_owned()];
    Worker::spawn("env", environment.into_iter().chain(args)).unwrap()
}

/// Its handler runs, under this fence.
async fn running(worker: &Worker) -> u64 {
    let running = |line: &str| line.strip_prefix("running ")?.parse().ok();
    worker.wait_line("its handler", LIMIT, running).await.unwrap()
}

async fn run(State(runs): State<Runs>, execution: Execution) -> String {
    let run = runs.run(execution.key().as_str()).await;
    format!("run {run} takeover {} fence {}", execution.is_takeover(), execution.fence())
}

/// Ten at once in this process, under one key.
async fn ten(app: &Router, key: &str) -> Vec<Reply> {
    let sent: Vec<_> = (0..10)
        .map(|_| {
            let (app, key) = (app.clone(), key.to_owned());
            tokio::spawn(async move { ask(&app, keyed("/", &key, "")).await })
        })
        .collect();
    let mut replies = Vec::new();
    for reply in sent {
        replies.push(reply.await.unwrap());
    }
    replies
}

async fn survivors(store: &Store, policy: impl Into<AfterCrash>) -> (Router, Runs) {
    let locks = store.manager().await;
    let runs = Runs::open();
    let layer =
        IdempotencyLayer::builder(&locks).anonymous().lease(4 * LEASE).after_crash(policy).build().unwrap();
    (Router::new().route("/", post(run)).with_state(runs.clone()).layer(layer), runs)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_nothing_runs_again_by_default() {
    let store = Store::redis();
    let (app, runs) = survivors(&store, CrashPolicy::Reject).await;
    let (worker, _) = executor(&store, "reject", "k").await;
    worker.kill().unwrap();
    for _ in 0..2 {
        for reply in ten(&app, "k").await {
            reply.assert_problem(409, "outcome-unknown");
        }
    }
    assert_eq!(runs.total(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_one_takes_over_by_choice() {
    let store = Store::redis();
    let (app, runs) = survivors(&store, CrashPolicy::Takeover).await;
    let (worker, fence) = executor(&store, "takeover", "k").await;
    worker.kill().unwrap();
    let replies = ten(&app, "k").await;
    let first = replies.iter().find(|reply| !reply.is_replay()).expect("one ran");
    assert!(first.text().starts_with("run 1 takeover true"), "{}", first.text());
    let later: u64 = first.text().rsplit(' ').next().unwrap().parse().unwrap();
    assert!(later > fence, "{later} after {fence}");
    assert!(replies.iter().all(|reply| reply.body == first.body));
    assert_eq!(runs.total(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_the_recovery_is_asked_by_choice() {
    let store = Store::redis();
    let asked = Arc::new(AtomicUsize::new(0));
    let recovery = AfterCrash::recover({
        let asked = asked.clone();
        move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            async { Recovered::Finished(http::Response::new("from the books".into())) }
        }
    });
    let (app, runs) = survivors(&store, recovery).await;
    let (worker, _) = executor(&store, "takeover", "k").await;
    worker.kill().unwrap();
    for reply in ten(&app, "k").await {
        assert_eq!(reply.text(), "from the books");
    }
    assert_eq!((runs.total(), asked.load(Ordering::SeqCst)), (0, 1));
}

/// The executor is stopped for longer than its lease and replaced. When it goes on, its response is refused by the store and its client gets
/// the one that counts: there are never two completed records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_a_stopped_executor_never_completes_a_second_record() {
    let store = Store::redis();
    let (app, runs) = survivors(&store, CrashPolicy::Takeover).await;
    let (worker, _) = executor(&store, "takeover", "k").await;
    worker.pause().unwrap();
    let counts = ask(&app, keyed("/", "k", "")).await;
    assert_eq!(counts.status, StatusCode::OK);
    assert!(!counts.is_replay());
    worker.resume().unwrap();
    worker.wait_line("its loss", LIMIT, |line| (line == "lost").then_some(())).await.unwrap();
    worker.send("go on").unwrap();
    let answer = |line: &str| line.strip_prefix("answer ").map(str::to_owned);
    let late = worker.wait_line("its answer", LIMIT, answer).await.unwrap();
    assert_eq!(late, format!("200 true {}", counts.text()));
    let replay = ask(&app, keyed("/", "k", "")).await;
    assert!(replay.is_replay());
    assert_eq!((replay.body, runs.total()), (counts.body, 1));
}

/// The same with the policy that runs nothing twice: what the stopped one did is not known, and its late response doesn't change that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_a_stopped_executor_stays_unknown_where_nothing_runs_twice() {
    let store = Store::redis();
    let (app, runs) = survivors(&store, CrashPolicy::Reject).await;
    let (worker, _) = executor(&store, "reject", "k").await;
    worker.pause().unwrap();
    ask(&app, keyed("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    worker.resume().unwrap();
    worker.send("go on").unwrap();
    let answer = |line: &str| line.strip_prefix("answer ").map(str::to_owned);
    let late = worker.wait_line("its answer", LIMIT, answer).await.unwrap();
    assert!(late.starts_with("409 false") && late.contains("outcome-unknown"), "{late}");
    ask(&app, keyed("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(runs.total(), 0);
}

/// Only the store's clock says when a lease is over. Processes whose clocks are an hour off neither lose their claims to others nor take theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_a_claim_is_judged_by_the_stores_clock_and_by_no_process_s() {
    for hours in [-1.0, 1.0] {
        let store = Store::redis();
        let (app, runs) = survivors(&store, CrashPolicy::Takeover).await;
        let theirs = worker(&store, "takeover", "theirs", skew(hours * 3600.0));
        running(&theirs).await;
        // It waits for longer than the lease, and finds the claim renewed.
        let waiting = tokio::spawn({
            let app = app.clone();
            async move { ask(&app, keyed("/", "theirs", "")).await }
        });
        tokio::time::sleep(LEASE * 2).await;
        theirs.send("go on").unwrap();
        let answer = |line: &str| line.strip_prefix("answer ").map(str::to_owned);
        let first = theirs.wait_line("its answer", LIMIT, answer).await.unwrap();
        let replay = waiting.await.unwrap();
        assert!(replay.is_replay() && first == format!("200 false {}", replay.text()), "{first}");
        assert_eq!(runs.total(), 0, "{hours}");

        let counts = ask(&app, keyed("/", "ours", "")).await;
        let late = worker(&store, "takeover", "ours", skew(hours * 3600.0));
        let late = late.wait_line("its answer", LIMIT, answer).await.unwrap();
        assert_eq!((late, runs.total()), (format!("200 true {}", counts.text()), 1), "{hours}");
    }
}
