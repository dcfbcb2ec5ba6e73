//! Redis cut or killed in each phase of an execution: claim, renewal, commit, replay.
//!
//! Whatever happens, the handler runs at most once for its key, and a client never gets a success that isn't on record, unless the handler
//! had finished and its settlement is under way.

mod tower_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use distlock::LockManager;
use distlock_tests::proxy::{self, Fault, FaultProxy, Rule, When};
use distlock_tests::server::{RedisOptions, RedisServer};
use distlock_tests::wait::{self, Deadline};
use distlock_tower::{Execution, IdempotencyLayer, StoreDown};
use http::StatusCode;

use tower_support::{LIMIT, OUTAGES, Outage, Reply, Runs, ask, keyed};

fn redis() -> RedisServer {
    RedisServer::start(RedisOptions::new().aof()).unwrap()
}

async fn run(State(runs): State<Runs>, execution: Execution) -> String {
    format!("run {}", runs.run(execution.key().as_str()).await)
}

fn app(locks: &LockManager, runs: &Runs, lease: Duration) -> Router {
    let layer = IdempotencyLayer::builder(locks).anonymous().lease(lease).build().unwrap();
    Router::new().route("/", post(run)).with_state(runs.clone()).layer(layer)
}

/// Asks again until the store is there.
async fn persist(app: &Router, key: &str) -> Reply {
    let deadline = Deadline::after(2 * LIMIT);
    loop {
        let reply = ask(app, keyed("/", key, "")).await;
        if reply.status != StatusCode::SERVICE_UNAVAILABLE && !reply.text().contains("in-flight") {
            return reply;
        }
        assert!(!deadline.is_past(), "refused all the time: {}", reply.text());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Each fault at each command that concerns the record: at the claim, at the commit, at the claim that finds a replay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_fault_at_any_command_runs_nothing_twice_and_loses_no_response() {
    const STEPS: u64 = 3;
    let redis = Arc::new(redis());
    let hits = Arc::new(AtomicUsize::new(0));
    let mut scenarios = tokio::task::JoinSet::new();
    for (name, fault) in proxy::sweep() {
        for step in 0..STEPS {
            scenarios.spawn(single_fault(redis.clone(), name, fault.clone(), step, hits.clone()));
        }
    }
    let count = scenarios.len();
    while let Some(scenario) = scenarios.join_next().await {
        scenario.unwrap();
    }
    assert_eq!(hits.load(Ordering::SeqCst), count, "every fault met its command");
}

async fn single_fault(
    redis: Arc<RedisServer>,
    name: &'static str,
    fault: Fault,
    step: u64,
    hits: Arc<AtomicUsize>,
) {
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let namespace = format!("s{:08x}", fastrand::u32(..));
    let locks = LockManager::builder().namespace(namespace).connect(&proxy.url()).await.unwrap();
    let runs = Runs::open();
    let app = app(&locks, &runs, Duration::from_secs(30));
    // Loads the scripts, so that each step is one command.
    assert_eq!(ask(&app, keyed("/", "warm", "")).await.text(), "run 1");
    assert!(ask(&app, keyed("/", "warm", "")).await.is_replay());

    let case = format!("{name} at step {step}");
    let met = proxy.rules().add(Rule::new(When::key_contains("!r:"), fault).skip(step).once());
    let scenario = async {
        let first = persist(&app, "k").await;
        let second = persist(&app, "k").await;
        (first, second)
    };
    let (first, second) = tokio::time::timeout(2 * LIMIT, scenario).await.expect(&case);
    met.wait_hits(1, LIMIT).await.expect(&case);
    // What was held comes late, if at all.
    met.release();
    assert_eq!((first.status, first.text().as_str()), (StatusCode::OK, "run 2"), "{case}");
    let third = persist(&app, "k").await;
    for again in [second, third] {
        assert!(again.is_replay() && again.body == first.body, "{case}: {again:?}");
    }
    assert_eq!(runs.total(), 2, "{case}");
    hits.fetch_add(1, Ordering::SeqCst);
}

/// An outage that everybody knows of costs each request little: refused, or let through where the route says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_long_outage_costs_each_request_little() {
    let redis = redis();
    let locks = LockManager::connect(&redis.url()).await.unwrap();
    let runs = Runs::open();
    let open = |parts: &http::request::Parts| match parts.headers.get("idempotency-key") {
        Some(key) if key.as_bytes().starts_with(b"open") => StoreDown::RunUnprotected,
        _ => StoreDown::Refuse,
    };
    let layer = IdempotencyLayer::builder(&locks).anonymous().store_down_by(open).build().unwrap();
    let app = Router::new()
        .route("/", post(async |State(runs): State<Runs>| format!("run {}", runs.run("x").await)))
        .with_state(runs.clone())
        .layer(layer);
    assert_eq!(ask(&app, keyed("/", "warm", "")).await.text(), "run 1");
    redis.kill().unwrap();
    let known = async || {
        let error = locks.mutex("k").try_lock().await.unwrap_err().to_string();
        let away = error.split_once("(away for ")?.1.split_once(" s)")?.0.parse::<f64>().ok()?;
        (away >= 2.0).then_some(())
    };
    wait::until("the outage to be a long one", LIMIT, known).await.unwrap();
    let mut took = Vec::new();
    for n in 0..20 {
        let started = tokio::time::Instant::now();
        let reply = ask(&app, keyed("/", &format!("open-{n}"), "")).await;
        assert!(reply.headers.contains_key("idempotency-status"), "{n}: {reply:?}");
        assert_eq!(ask(&app, keyed("/", &format!("shut-{n}"), "")).await.status, 503);
        took.push(started.elapsed());
    }
    took.sort();
    // Alone they would wait for two seconds each.
    assert!(took[10] < Duration::from_millis(500), "{took:?}");
    assert_eq!(runs.total(), 21);
    redis.restart().unwrap();
    let replay = persist(&app, "warm").await;
    assert!(replay.is_replay(), "{replay:?}");
}

struct Stage {
    proxy: FaultProxy,
    redis: RedisServer,
    app: Router,
    runs: Runs,
}

async fn stage(runs: Runs, lease: Duration) -> Stage {
    let redis = redis();
    let proxy = FaultProxy::start(redis.address()).unwrap();
    let locks = tower_support::connect(&proxy.url()).await;
    let app = app(&locks, &runs, lease);
    Stage { proxy, redis, app, runs }
}

fn sent(app: &Router, key: &str) -> tokio::task::JoinHandle<Reply> {
    let (app, key) = (app.clone(), key.to_owned());
    tokio::spawn(async move { ask(&app, keyed("/", &key, "")).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_at_the_claim_refuses_before_anything_runs() {
    for outage in OUTAGES {
        let Stage { proxy, redis, app, runs } = stage(Runs::open(), Duration::from_secs(30)).await;
        assert_eq!(ask(&app, keyed("/", "warm", "")).await.text(), "run 1");
        outage.begin(&proxy, &redis);
        let refused = ask(&app, keyed("/", "k", "")).await;
        refused.assert_problem(503, "store-unavailable");
        assert_eq!(runs.total(), 1, "{outage:?}");
        outage.end(&proxy, &redis);
        assert_eq!(persist(&app, "k").await.text(), "run 2", "{outage:?}");
        assert!(persist(&app, "k").await.is_replay());
        assert_eq!(runs.total(), 2, "{outage:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_at_the_replay_refuses_and_forgets_nothing() {
    for outage in OUTAGES {
        let Stage { proxy, redis, app, runs } = stage(Runs::open(), Duration::from_secs(30)).await;
        assert_eq!(ask(&app, keyed("/", "k", "")).await.text(), "run 1");
        outage.begin(&proxy, &redis);
        ask(&app, keyed("/", "k", "")).await.assert_problem(503, "store-unavailable");
        outage.end(&proxy, &redis);
        let replay = persist(&app, "k").await;
        assert!(replay.is_replay(), "{outage:?}: {}", replay.text());
        assert_eq!((replay.text().as_str(), runs.total()), ("run 1", 1), "{outage:?}");
    }
}

/// Renewals fail for a while, for less than the lease: nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_during_renewals_that_ends_in_time_costs_nothing() {
    for outage in [Outage::Cut, Outage::Silent] {
        let lease = Duration::from_secs(6);
        let Stage { proxy, redis, app, runs } = stage(Runs::gated(), lease).await;
        let first = sent(&app, "k");
        runs.reached(1).await;
        outage.begin(&proxy, &redis);
        // At least one renewal meets it: they come every third of the lease.
        tokio::time::sleep(lease / 3 + lease / 12).await;
        outage.end(&proxy, &redis);
        runs.let_go(1);
        let first = first.await.unwrap();
        assert_eq!((first.status, first.text().as_str()), (StatusCode::OK, "run 1"), "{outage:?}");
        assert!(persist(&app, "k").await.is_replay());
        assert_eq!(runs.total(), 1, "{outage:?}");
    }
}

/// Renewals fail for longer than the lease: the handler is told, and its client gets no success that isn't on record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_during_renewals_that_outlasts_the_lease_yields_no_unrecorded_success() {
    async fn until_lost(State(runs): State<Runs>, execution: Execution) -> String {
        let run = runs.run(execution.key().as_str()).await;
        execution.lost().await;
        format!("run {run}")
    }
    for outage in OUTAGES {
        let Stage { proxy, redis, app: _, runs } = stage(Runs::open(), Duration::from_secs(1)).await;
        let locks = tower_support::connect(&proxy.url()).await;
        let lease = Duration::from_secs(1);
        let layer = IdempotencyLayer::builder(&locks).anonymous().lease(lease).build().unwrap();
        let app = Router::new().route("/", post(until_lost)).with_state(runs.clone()).layer(layer);
        let first = sent(&app, "k");
        runs.reached(1).await;
        outage.begin(&proxy, &redis);
        let first = first.await.unwrap();
        assert!(first.status == StatusCode::CONFLICT, "{outage:?}: {} {}", first.status, first.text());
        outage.end(&proxy, &redis);
        let retry = persist(&app, "k").await;
        // The commit that is still tried came before the lapse was seen, or after it.
        let is_recorded = retry.is_replay() && retry.text() == "run 1";
        assert!(is_recorded || retry.text().contains("outcome-unknown"), "{outage:?}: {}", retry.text());
        assert_eq!(runs.total(), 1, "{outage:?}");
    }
}

/// The handler has finished: its client gets the response, and the commit is tried again while the lease lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_at_the_commit_costs_neither_the_response_nor_the_record() {
    for outage in OUTAGES {
        let Stage { proxy, redis, app, runs } = stage(Runs::gated(), Duration::from_secs(30)).await;
        let first = sent(&app, "k");
        runs.reached(1).await;
        outage.begin(&proxy, &redis);
        runs.let_go(1);
        let first = first.await.unwrap();
        assert_eq!((first.status, first.text().as_str()), (StatusCode::OK, "run 1"), "{outage:?}");
        outage.end(&proxy, &redis);
        let replay = wait::until("the commit", LIMIT, async || {
            let reply = persist(&app, "k").await;
            reply.is_replay().then_some(reply)
        });
        assert_eq!(replay.await.unwrap().body, first.body, "{outage:?}");
        assert_eq!(runs.total(), 1, "{outage:?}");
    }
}

/// The store comes back after the lease: what the client was told before stays true, nothing runs again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_outage_from_the_commit_to_the_end_of_the_lease_runs_nothing_again() {
    let lease = Duration::from_secs(3);
    let Stage { proxy, redis, app, runs } = stage(Runs::gated(), lease).await;
    let first = sent(&app, "k");
    runs.reached(1).await;
    Outage::Cut.begin(&proxy, &redis);
    runs.let_go(1);
    assert_eq!(first.await.unwrap().text(), "run 1");
    tokio::time::sleep(lease).await;
    Outage::Cut.end(&proxy, &redis);
    let retry = persist(&app, "k").await;
    // The commit came first, or the lapse did.
    assert!(retry.is_replay() || retry.text().contains("outcome-unknown"), "{}", retry.text());
    assert_eq!(runs.total(), 1);
}
