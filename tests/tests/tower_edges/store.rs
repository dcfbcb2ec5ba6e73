//! The store's own trouble.

use std::sync::Arc;
use std::time::Duration;

use axum::response::IntoResponse;
use distlock::LockManager;
use distlock_runtime::Clock;
use distlock_runtime::backend::BackendErrorKind;
use distlock_runtime::backend::memory::MemoryBackend;
use distlock_runtime::testkit::{Call, Fault, Faulty};
use distlock_tests::wait;
use distlock_tower::{Outcome, StoreDown};
use http::StatusCode;

use crate::tower_support::{LIMIT, Runs, Store, ask, keyed};
use crate::{app, builder, counting};

/// A manager on a memory store that fails by script.
pub(crate) async fn faulty() -> (LockManager, Arc<Faulty>) {
    let store = Faulty::new(MemoryBackend::new(Clock::System, "edges"), Clock::System);
    (LockManager::builder().backend(store.clone()).await.unwrap(), store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_full_refuses_before_anything_runs() {
    let (locks, store) = faulty().await;
    let runs = Runs::open();
    let app = app(&runs, builder(&locks));
    store.next(Call::Claim, Fault::Refuse(BackendErrorKind::OutOfMemory));
    ask(&app, keyed("/pay", "k", "")).await.assert_problem(503, "store-unavailable");
    assert_eq!(runs.total(), 0);
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.text(), "run 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_lets_requests_run_only_where_the_route_says_so() {
    let (locks, store) = faulty().await;
    let runs = Runs::open();
    let by_path = |parts: &http::request::Parts| match parts.uri.path() {
        "/refund" => StoreDown::RunUnprotected,
        _ => StoreDown::Refuse,
    };
    let app = app(&runs, builder(&locks).store_down_by(by_path).retry_after(Duration::from_secs(7)));
    store.always(Call::Claim, Fault::Refuse(BackendErrorKind::Unavailable));
    let refused = ask(&app, keyed("/pay", "k", "")).await;
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(refused.headers["retry-after"], "7");
    assert_eq!(runs.total(), 0);
    let unprotected = ask(&app, keyed("/refund", "k", "")).await;
    assert_eq!(unprotected.headers["idempotency-status"], "unprotected");
    assert_eq!(unprotected.text(), "run 1");
}

/// Where the route goes on without the store: not for a request that has seen another execution of its own before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_seen_an_execution_in_flight_never_runs_unprotected() {
    let (locks, store) = faulty().await;
    let runs = Runs::gated();
    let app = app(&runs, builder(&locks).store_down(StoreDown::RunUnprotected));
    let sent = || {
        let app = app.clone();
        tokio::spawn(async move { ask(&app, keyed("/pay", "k", "")).await })
    };
    let first = sent();
    runs.reached(1).await;
    // The repeat's first look goes through, all others fail.
    store.pass(Call::Claim);
    store.always(Call::Claim, Fault::Refuse(BackendErrorKind::Unavailable));
    sent().await.unwrap().assert_problem(503, "store-unavailable");
    assert_eq!(runs.total(), 1);
    store.heal();
    runs.let_go(1);
    assert_eq!(first.await.unwrap().text(), "run 1");
}

/// The answer said that nothing happened, and the store is away when that is to be noted: the caller gets the answer, and the claim is given
/// back as soon as the store is there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_fails_is_tried_again_while_the_lease_lives() {
    let (locks, store) = faulty().await;
    let runs = Runs::open();
    let app = counting(&runs, || {
        (StatusCode::SERVICE_UNAVAILABLE, axum::Extension(Outcome::NotStarted), "busy").into_response()
    })
    .layer(builder(&locks).build().unwrap());
    store.always(Call::Settle, Fault::LoseRequest);
    assert_eq!(ask(&app, keyed("/", "k", "")).await.text(), "busy");
    let again = async || (store.count(Call::Settle) > 2).then_some(());
    wait::until("another try", LIMIT, again).await.unwrap();
    store.heal();
    assert_eq!(ask(&app, keyed("/", "k", "")).await.text(), "busy");
    assert_eq!(runs.total(), 2);
}

/// If the store stays away, the lease runs out by itself, and nothing was deleted: the record is there for the crash policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_never_arrives_leaves_a_record_that_lapses() {
    let (locks, store) = faulty().await;
    let runs = Runs::open();
    let app = counting(&runs, || (axum::Extension(Outcome::NotStarted), "busy").into_response())
        .layer(builder(&locks).lease(Duration::from_millis(300)).build().unwrap());
    store.always(Call::Settle, Fault::LoseRequest);
    assert_eq!(ask(&app, keyed("/", "k", "")).await.text(), "busy");
    ask(&app, keyed("/", "k", "")).await.assert_problem(409, "outcome-unknown");
    assert_eq!(runs.total(), 1);
}

/// A stored response that another program or version has overwritten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_can_not_be_read_is_no_miss() {
    let store = Store::redis();
    let locks = store.manager().await;
    let runs = Runs::open();
    let app = app(&runs, builder(&locks).store_down(StoreDown::RunUnprotected));
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.text(), "run 1");
    let mut redis =
        redis::Client::open(store.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*!r:*").query_async(&mut redis).await.unwrap();
    let [record] = &keys[..] else { panic!("one record: {keys:?}") };
    for (field, value) in [("b", "nonsense"), ("s", "z"), ("p", "nonsense")] {
        let _: () =
            redis::cmd("HSET").arg(record).arg(field).arg(value).query_async(&mut redis).await.unwrap();
        let reply = ask(&app, keyed("/pay", "k", "")).await;
        assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE, "{field}: {}", reply.text());
        assert!(!reply.text().contains("nonsense"), "{}", reply.text());
    }
    let _: () = redis::cmd("DEL").arg(record).query_async(&mut redis).await.unwrap();
    let _: () = redis::cmd("SET").arg(record).arg("another type").query_async(&mut redis).await.unwrap();
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(runs.total(), 1);
}
