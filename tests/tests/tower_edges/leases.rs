//! Claims, their fences, and what comes after one that lapsed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::post;
use distlock::LockManager;
use distlock::records::CrashPolicy;
use distlock_tests::wait;
use distlock_tower::{AfterCrash, Execution, FingerprintRule, Outcome, Recovered};
use http::StatusCode;
use tower::ServiceExt;

use crate::tower_support::{LIMIT, Runs, Store, ask, keyed};
use crate::{app, builder, memory};

crate::on_every_store!(
    a_handler_fences_its_own_writes,
    a_recovery_is_asked_once_before_anything_runs_again,
    waiters_of_a_record_that_is_forgotten_execute_one_after_the_other,
    what_died_under_a_former_fingerprint_rule_is_taken_over,
);

const LEASE: Duration = Duration::from_millis(800);

/// The first execution did nothing: of those who wait, exactly one at a time goes on.
async fn waiters_of_a_record_that_is_forgotten_execute_one_after_the_other(store: Store) {
    async fn busy_at_first(State((runs, inside)): State<(Runs, Arc<AtomicU64>)>) -> axum::response::Response {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at a time");
        let run = runs.run("").await;
        inside.fetch_sub(1, Ordering::SeqCst);
        match run {
            1..=3 => (StatusCode::SERVICE_UNAVAILABLE, axum::Extension(Outcome::NotStarted)).into_response(),
            _ => format!("run {run}").into_response(),
        }
    }
    let locks = store.manager().await;
    let runs = Runs::gated();
    let layer = builder(&locks).build().unwrap();
    let executions = layer.executions();
    let app =
        Router::new().route("/", post(busy_at_first)).with_state((runs.clone(), Arc::default())).layer(layer);
    let sent: Vec<_> = (0..8)
        .map(|_| {
            let app = app.clone();
            tokio::spawn(async move { ask(&app, keyed("/", "k", "")).await })
        })
        .collect();
    let all = async || (executions.running() == 8).then_some(());
    wait::until("all are under way", LIMIT, all).await.unwrap();
    runs.let_go(4);
    let (mut refused, mut done) = (0, 0);
    for reply in sent {
        match reply.await.unwrap() {
            reply if reply.status == StatusCode::SERVICE_UNAVAILABLE => refused += 1,
            reply => {
                assert_eq!(reply.text(), "run 4");
                done += 1;
            }
        }
    }
    assert_eq!((refused, done, runs.total()), (3, 5, 4));
}

/// A resource that takes no write with an older token than the last.
#[derive(Default)]
struct Books(Mutex<(u64, Vec<String>)>);

impl Books {
    fn write(&self, fence: u64, entry: &str) -> bool {
        let mut books = self.0.lock().unwrap();
        let is_taken = books.0 <= fence;
        if is_taken {
            books.0 = fence;
            books.1.push(entry.to_owned());
        }
        is_taken
    }
}

/// A handler stands still for longer than its lease and is replaced: the resource refuses what it writes after that.
async fn a_handler_fences_its_own_writes(store: Store) {
    async fn write(State((runs, books)): State<(Runs, Arc<Books>)>, execution: Execution) -> String {
        let run = runs.run(execution.key().as_str()).await;
        let taken = books.write(execution.fence().get(), &format!("run {run}"));
        format!("run {run} taken {taken}")
    }
    let locks = store.manager().await;
    let (runs, written) = (Runs::gated(), Arc::new(Books::default()));
    let books = written.clone();
    let app = move |locks: &LockManager, runs: &Runs| {
        let layer = builder(locks).lease(LEASE).after_crash(CrashPolicy::Takeover).build().unwrap();
        Router::new().route("/", post(write)).with_state((runs.clone(), books.clone())).layer(layer)
    };
    // Its runtime is never driven again: neither is its handler. Its claim is renewed by nobody.
    let stalled = tokio::task::spawn_blocking({
        let (url, runs) = (store.url(), runs.clone());
        let app = app.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let locks = runtime.block_on(crate::tower_support::connect(&url));
            let service = app(&locks, &runs);
            let mut request = Box::pin(service.oneshot(keyed("/", "k", "").map(axum::body::Body::new)));
            runtime.block_on(async {
                let reached = runs.reached(1);
                tokio::select! {
                    _ = &mut request => panic!("the gate is closed"),
                    () = reached => {}
                }
            });
            // The manager's renewals stop; the handler stays where it is.
            runtime.block_on(locks.shutdown(Duration::ZERO));
            (runtime, request)
        }
    });
    let (runtime, request) = stalled.await.unwrap();
    let open = Runs::open();
    let successor = ask(&app(&locks, &open), keyed("/", "k", "")).await;
    assert_eq!(successor.text(), "run 1 taken true");
    runs.let_go(1);
    let late = tokio::task::spawn_blocking(move || {
        let response = runtime.block_on(request).unwrap();
        let body =
            runtime.block_on(http_body_util::BodyExt::collect(response.into_body())).unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    });
    let late = late.await.unwrap();
    assert!(!late.contains("taken true") || late == "run 1 taken true", "{late}");
    assert_eq!(written.0.lock().unwrap().1, ["run 1"], "one write went through: the successor's");
    assert_eq!(runs.total() + open.total(), 2);
}

/// An execution that died at its gate, and an app whose lease on the key has lapsed.
async fn died(store: &Store, key: &str) {
    let runs = Runs::gated();
    let doomed = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = store.url();
    let under_way = runs.clone();
    let key = key.to_owned();
    let dying = doomed.spawn(async move {
        let locks = crate::tower_support::connect(&url).await;
        ask(&app(&under_way, builder(&locks).lease(LEASE)), keyed("/pay", &key, "")).await
    });
    runs.reached(1).await;
    doomed.shutdown_background();
    assert!(dying.await.is_err());
}

async fn a_recovery_is_asked_once_before_anything_runs_again(store: Store) {
    let locks = store.manager().await;
    for found in ["finished", "not-started", "unknown", "later"] {
        died(&store, found).await;
        let (runs, asked) = (Runs::open(), Arc::new(AtomicU64::new(0)));
        let recovery = AfterCrash::recover({
            let asked = asked.clone();
            move |lapsed| {
                let time = asked.fetch_add(1, Ordering::SeqCst);
                assert!(lapsed.execution().is_takeover() && lapsed.request().uri().path() == "/pay");
                assert_eq!(lapsed.request().body(), b"");
                async move {
                    match lapsed.execution().key().as_str() {
                        "finished" => Recovered::Finished(http::Response::new("from the books".into())),
                        "not-started" => Recovered::NotStarted,
                        "later" if time == 0 => Recovered::TryLater,
                        _ => Recovered::Unknown,
                    }
                }
            }
        });
        let app = app(&runs, builder(&locks).lease(LEASE).after_crash(recovery));
        // Many at once: one asks, the others wait for what it learns.
        let sent: Vec<_> = (0..5)
            .map(|_| {
                let app = app.clone();
                tokio::spawn(async move { ask(&app, keyed("/pay", found, "")).await })
            })
            .collect();
        let mut replies = Vec::new();
        for reply in sent {
            replies.push(reply.await.unwrap());
        }
        let asked_times = asked.load(Ordering::SeqCst);
        match found {
            "finished" => {
                assert!(replies.iter().all(|reply| reply.text() == "from the books"));
                assert_eq!(replies.iter().filter(|reply| reply.is_replay()).count(), 4);
                assert_eq!((runs.total(), asked_times), (0, 1));
            }
            "not-started" => {
                assert!(replies.iter().all(|reply| reply.text() == "run 1"));
                assert_eq!((runs.total(), asked_times), (1, 1));
            }
            "unknown" => {
                replies.iter().for_each(|reply| reply.assert_problem(409, "outcome-unknown"));
                assert_eq!((runs.total(), asked_times), (0, 1));
            }
            _ => {
                let in_flight = |reply: &&crate::tower_support::Reply| reply.text().contains("in-flight");
                assert_eq!(replies.iter().filter(in_flight).count(), 1, "the one that was told to try later");
                let unknown = replies.iter().filter(|reply| reply.text().contains("outcome-unknown"));
                assert_eq!(unknown.count(), 4, "the next one asked again");
                assert_eq!((runs.total(), asked_times), (0, 2));
            }
        }
    }
}

/// It died under the rule of an earlier deployment: the next one takes it over all the same, and no other request does.
async fn what_died_under_a_former_fingerprint_rule_is_taken_over(store: Store) {
    // First, since a store in memory goes with its last manager.
    let (locks, runs) = (store.manager().await, Runs::open());
    died(&store, "k").await;
    let rule = FingerprintRule::json_fields(["/amount"]);
    let takeover = builder(&locks).lease(LEASE).fingerprint(rule).after_crash(CrashPolicy::Takeover);
    let app = app(&runs, takeover);
    ask(&app, keyed("/pay", "k", "another body")).await.assert_problem(422, "key-reused");
    assert_eq!(ask(&app, keyed("/pay", "k", "")).await.text(), "run 1");
    assert!(ask(&app, keyed("/pay", "k", "")).await.is_replay());
    assert_eq!(runs.total(), 1);
}

#[tokio::test]
async fn a_recovery_that_panics_runs_nothing() {
    let store = Store::memory();
    let locks = store.manager().await;
    died(&store, "k").await;
    let runs = Runs::open();
    async fn broken() -> Recovered {
        panic!("the test's own panic")
    }
    let recovery = AfterCrash::recover(|_| broken());
    let app = app(&runs, builder(&locks).lease(LEASE).wait(LEASE / 2).after_crash(recovery));
    let answered = wait::until("the lapse", LIMIT, async || {
        let reply = ask(&app, keyed("/pay", "k", "")).await;
        reply.assert_problem(409, "in-flight");
        Some(())
    });
    answered.await.unwrap();
    assert_eq!(runs.total(), 0);
}

/// What a handler can know: token, time left, and the signal of the loss.
#[tokio::test]
async fn a_handler_sees_its_token_its_deadline_and_the_signal_of_its_loss() {
    async fn look(execution: Execution) -> String {
        let lease = Duration::from_secs(30);
        assert!(execution.is_valid() && !execution.is_takeover());
        assert!(
            execution.remaining() <= lease && execution.remaining() > lease / 2,
            "{:?}",
            execution.remaining()
        );
        let lost = tokio::time::timeout(Duration::from_millis(1), execution.lost()).await;
        assert!(lost.is_err(), "it isn't lost");
        format!("{} under {}", execution.key().as_str(), execution.fence())
    }
    let locks = memory().await;
    let app = Router::new().route("/", post(look)).layer(builder(&locks).build().unwrap());
    let text = ask(&app, keyed("/", "k", "")).await.text();
    assert!(text.starts_with("k under "), "{text}");
}
