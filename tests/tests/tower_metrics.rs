//! The counters of the idempotency layer: each of them counts what it says, and nothing else.

mod tower_support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use distlock::records::CrashPolicy;
use distlock_runtime::backend::BackendErrorKind;
use distlock_runtime::backend::memory::MemoryBackend;
use distlock_runtime::testkit::{self, Call, Fault, Faulty};
use distlock_runtime::{Clock, LockError, LockManager, telemetry};
use distlock_tower::idempotency::{IdempotencyBuilder, Scoped};
use distlock_tower::{Execution, IdempotencyLayer, Outcome, StoreDown};
use http::StatusCode;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use tower_support::{Runs, ask, keyed};

const LEASE: Duration = Duration::from_secs(9);

/// The idempotency counters that changed while `life` ran, with their labels. All of it runs on one thread, in paused time.
fn counted(life: impl AsyncFnOnce(LockManager, Arc<Faulty>)) -> BTreeMap<String, u64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        telemetry::describe();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "metrics"), Clock::Tokio);
            let locks = testkit::paused_on(store.clone(), LockManager::builder());
            life(locks, store).await;
        });
    });
    let mut counters = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let (name, labels) = key.key().clone().into_parts();
        let Some(name) = name.as_str().strip_prefix("distlock_idempotent_") else { continue };
        let DebugValue::Counter(count) = value else { panic!("{name} is a counter") };
        let labels: Vec<&str> =
            labels.iter().map(metrics::Label::value).filter(|value| *value != "-").collect();
        if count > 0 {
            counters.insert([&[name], &labels[..]].concat().join(" "), count);
        }
    }
    counters
}

fn expected(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
    list.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

async fn handle(
    State(runs): State<Runs>,
    Path(what): Path<String>,
    execution: Option<Execution>,
) -> Response {
    if execution.as_ref().is_some_and(Execution::is_takeover) {
        return "the successor".into_response();
    }
    let run = runs.run(&what).await;
    match what.as_str() {
        "busy" => (StatusCode::SERVICE_UNAVAILABLE, axum::Extension(Outcome::NotStarted)).into_response(),
        "half" => axum::Extension(Outcome::Unknown).into_response(),
        "long" => "x".repeat(2000).into_response(),
        "part" => StatusCode::PARTIAL_CONTENT.into_response(),
        "lost" => {
            execution.expect("a key").lost().await;
            runs.run("late").await;
            "late".into_response()
        }
        _ => format!("run {run}").into_response(),
    }
}

fn app(
    runs: &Runs,
    locks: &LockManager,
    more: impl FnOnce(IdempotencyBuilder<Scoped>) -> IdempotencyBuilder<Scoped>,
) -> Router {
    let builder = IdempotencyLayer::builder(locks).anonymous().response_limit(1000).lease(LEASE);
    Router::new()
        .route("/{what}", post(handle))
        .with_state(runs.clone())
        .layer(more(builder).build().unwrap())
}

#[test]
fn executed_replayed_waited_conflict_and_mismatch_are_counted() {
    let counters = counted(async |locks, _| {
        let runs = Runs::gated();
        let patient = app(&runs, &locks, |builder| builder);
        let impatient = app(&runs, &locks, |builder| builder.wait(Duration::ZERO));
        let sent = |app: &Router| {
            let app = app.clone();
            tokio::spawn(async move { ask(&app, keyed("/pay", "k", "5")).await })
        };
        let first = sent(&patient);
        runs.reached(1).await;
        ask(&impatient, keyed("/pay", "k", "5")).await.assert_problem(409, "in-flight");
        ask(&impatient, keyed("/pay", "k", "6")).await.assert_problem(422, "key-reused");
        let waiting = sent(&patient);
        tokio::time::sleep(Duration::from_millis(300)).await;
        runs.let_go(1);
        assert!(!first.await.unwrap().is_replay());
        assert!(waiting.await.unwrap().is_replay());
        assert!(ask(&patient, keyed("/pay", "k", "5")).await.is_replay());
    });
    let all = expected(&[
        ("requests_total executed", 1),
        ("requests_total in-flight", 1),
        ("requests_total key-reused", 1),
        ("requests_total replayed", 2),
        ("settlements_total completed", 1),
        ("waits_total", 1),
    ]);
    assert_eq!(counters, all);
}

#[test]
fn settlements_are_counted_by_outcome_and_tombstones_by_reason() {
    let counters = counted(async |locks, _| {
        let app = app(&Runs::open(), &locks, |builder| builder);
        for what in ["pay", "busy", "half", "long", "part"] {
            ask(&app, keyed(&format!("/{what}"), what, "")).await;
        }
    });
    let all = expected(&[
        ("requests_total executed", 5),
        ("settlements_total completed", 1),
        ("settlements_total released", 1),
        ("settlements_total tombstone not-storable", 1),
        ("settlements_total tombstone response-too-large", 1),
        ("settlements_total unknown", 1),
    ]);
    assert_eq!(counters, all);
}

/// The first execution loses its lease to a store that is away, another takes over, and the late one is fenced off.
#[test]
fn takeovers_fenced_commits_and_failed_renewals_are_counted() {
    let counters = counted(async |locks, store| {
        let runs = Runs::gated();
        let app = app(&runs, &locks, |builder| builder.after_crash(CrashPolicy::Takeover));
        let late = tokio::spawn({
            let app = app.clone();
            async move { ask(&app, keyed("/lost", "k", "")).await }
        });
        runs.let_go(1);
        runs.reached(1).await;
        store.always(Call::RenewClaims, Fault::LoseRequest);
        runs.reached(2).await;
        store.heal();
        let successor = ask(&app, keyed("/lost", "k", "")).await;
        assert_eq!((successor.text().as_str(), successor.is_replay()), ("the successor", false));
        runs.let_go(1);
        let late = late.await.unwrap();
        assert_eq!((late.text().as_str(), late.is_replay()), ("the successor", true));
    });
    assert!(counters.contains_key("store_errors_total renewal"), "{counters:?}");
    let rest: BTreeMap<_, _> = counters
        .into_iter()
        .filter(|(name, _)| !name.starts_with("store_errors") && name != "waits_total")
        .collect();
    let all = expected(&[
        ("requests_total executed", 2),
        ("requests_total replayed", 1),
        ("settlements_total completed", 1),
        ("settlements_total fenced", 1),
        ("takeovers_total", 1),
    ]);
    assert_eq!(rest, all);
}

#[test]
fn unprotected_requests_and_errors_of_the_store_by_phase_are_counted() {
    let counters = counted(async |locks, store| {
        let runs = Runs::open();
        let closed = app(&runs, &locks, |builder| builder);
        let open = app(&runs, &locks, |builder| builder.store_down(StoreDown::RunUnprotected));
        let away = Fault::Refuse(BackendErrorKind::Unavailable);
        store.always(Call::Claim, away);
        ask(&closed, keyed("/pay", "a", "")).await.assert_problem(503, "store-unavailable");
        assert_eq!(ask(&open, keyed("/pay", "b", "")).await.headers["idempotency-status"], "unprotected");
        store.heal();
        store.next(Call::Settle, away);
        assert_eq!(ask(&closed, keyed("/pay", "c", "")).await.status, StatusCode::OK);
        store.next(Call::Settle, away);
        assert_eq!(ask(&closed, keyed("/busy", "d", "")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    });
    let all = expected(&[
        ("requests_total executed", 2),
        ("requests_total store-unavailable", 1),
        ("requests_total unprotected", 1),
        ("settlements_total deferred", 2),
        ("store_errors_total claim", 2),
        ("store_errors_total commit", 1),
        ("store_errors_total release", 1),
    ]);
    assert_eq!(counters, all);
}

/// Work that isn't HTTP has the same records, and the same counters for them.
#[test]
fn the_records_of_calls_are_counted_too() {
    let counters = counted(async |locks, store| {
        let call = |key: &str| locks.idempotent(key.to_owned()).template("pay:<id>").lease(LEASE);
        for _ in 0..2 {
            call("pay:1").run(async { Ok::<_, LockError>(1) }).await.unwrap();
        }
        let long = call("pay:2").result_limit(2).run(async { Ok::<_, LockError>("longer".to_owned()) });
        assert_eq!(long.await.unwrap(), "longer");
        store.next(Call::Settle, Fault::Refuse(BackendErrorKind::Unavailable));
        call("pay:3").run(async { Ok::<_, LockError>(3) }).await.unwrap();
    });
    let all = expected(&[
        ("calls_total pay:<id> executed", 3),
        ("calls_total pay:<id> replayed", 1),
        ("settlements_total completed", 1),
        ("settlements_total deferred", 1),
        ("settlements_total tombstone result-too-large", 1),
        ("store_errors_total commit", 1),
    ]);
    assert_eq!(counters, all);
}
