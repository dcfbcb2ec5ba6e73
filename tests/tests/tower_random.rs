//! Random schedules of the idempotency layer in paused time: clients that go away and come back, handlers that outlast their leases, a store
//! that loses requests and replies. A failure names its seed.

mod tower_support;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use distlock::records::CrashPolicy;
use distlock_runtime::backend::memory::MemoryBackend;
use distlock_runtime::testkit::{self, Call, Fault, Faulty};
use distlock_runtime::{Clock, LockManager};
use distlock_tower::{Execution, IdempotencyLayer};
use fastrand::Rng;
use http::StatusCode;
use tower_support::keyed;

const LEASE: Duration = Duration::from_secs(3);
const KEYS: usize = 3;
const CLIENTS: usize = 6;

/// What came of one key.
#[derive(Debug, Default)]
struct Seen {
    runs: usize,
    overlaps_of_valid_claims: usize,
    valid: Vec<Execution>,
    successes: Vec<Bytes>,
}

type Book = Arc<Mutex<HashMap<String, Seen>>>;

#[derive(Clone)]
struct Stage {
    book: Book,
    rng: Arc<Mutex<Rng>>,
}

impl Stage {
    fn millis(&self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.lock().unwrap().u64(range))
    }

    fn below(&self, bound: usize) -> usize {
        self.rng.lock().unwrap().usize(..bound)
    }

    fn chance(&self, of: u32) -> bool {
        self.rng.lock().unwrap().u32(..of) == 0
    }
}

/// Takes a random time, now and then much longer than its lease.
async fn handle(State(stage): State<Stage>, execution: Execution) -> String {
    let key = execution.key().as_str().to_owned();
    let run = {
        let mut book = stage.book.lock().unwrap();
        let seen = book.entry(key).or_default();
        seen.runs += 1;
        // Whoever is certain to hold the claim is alone in that.
        seen.overlaps_of_valid_claims += seen.valid.iter().filter(|other| other.is_valid()).count();
        seen.valid.push(execution.clone());
        seen.runs
    };
    let length = if stage.chance(2) { stage.millis(0..12_000) } else { stage.millis(0..400) };
    tokio::time::sleep(length).await;
    format!("run {run} fence {}", execution.fence())
}

/// Sends a request until it has an answer that is one, going away and coming back now and then.
async fn client(app: Router, key: String, stage: Stage) {
    for _ in 0..200 {
        tokio::time::sleep(stage.millis(0..500)).await;
        let service = app.clone();
        let request = keyed("/", &key, "").map(axum::body::Body::new);
        let sent = async {
            let response = tower::ServiceExt::oneshot(service, request).await.expect("infallible");
            let (head, body) = response.into_parts();
            let body = http_body_util::BodyExt::collect(body).await.expect("a whole body").to_bytes();
            (head.status, body)
        };
        let patience = if stage.chance(3) { stage.millis(0..1500) } else { Duration::from_secs(3600) };
        match tokio::time::timeout(patience, sent).await {
            Err(_) => {}
            Ok((StatusCode::OK, body)) => {
                stage.book.lock().unwrap().get_mut(&key).expect("it ran").successes.push(body);
                return;
            }
            Ok((StatusCode::CONFLICT, body))
                if String::from_utf8_lossy(&body).contains("outcome-unknown") =>
            {
                return;
            }
            // In flight, superseded, store away: asked again.
            Ok((StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE, _)) => {}
            Ok((status, body)) => panic!("{status}: {}", String::from_utf8_lossy(&body)),
        }
    }
    panic!("no answer in 200 tries");
}

/// Faults at random calls of these kinds, for a while; then the store behaves.
async fn trouble(store: Arc<Faulty>, calls: &'static [Call], stage: Stage) {
    for _ in 0..2 + stage.below(10) {
        tokio::time::sleep(stage.millis(0..1500)).await;
        let call = calls[stage.below(calls.len())];
        let late = stage.millis(1..4000);
        let faults = [
            Fault::LoseRequest,
            Fault::LoseReply,
            Fault::Hang,
            Fault::HangApplied,
            Fault::Delay(late),
            Fault::DelayReply(late),
            Fault::Late(late),
        ];
        let fault = faults[stage.below(faults.len())];
        if stage.chance(3) {
            // Now and then longer than a lease.
            store.always(call, fault);
            tokio::time::sleep(stage.millis(0..9000)).await;
            store.heal();
        } else {
            store.next(call, fault);
        }
    }
}

fn schedule(seed: u64, policy: CrashPolicy, calls: &'static [Call]) -> HashMap<String, Seen> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let stage = Stage { book: Book::default(), rng: Arc::new(Mutex::new(Rng::with_seed(seed))) };
    runtime.block_on(async {
        let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "random"), Clock::Tokio);
        let locks = testkit::paused_on(store.clone(), LockManager::builder());
        let layer =
            IdempotencyLayer::builder(&locks).anonymous().lease(LEASE).after_crash(policy).build().unwrap();
        let executions = layer.executions();
        let app = Router::new().route("/", post(handle)).with_state(stage.clone()).layer(layer);
        let mut tasks = tokio::task::JoinSet::new();
        for client_number in 0..KEYS * CLIENTS {
            tasks.spawn(client(app.clone(), format!("k{}", client_number % KEYS), stage.clone()));
        }
        tasks.spawn(trouble(store, calls, stage.clone()));
        while let Some(task) = tasks.join_next().await {
            task.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        assert_eq!(executions.drain(Duration::from_secs(3600)).await, 0, "seed {seed}");
    });
    std::mem::take(&mut *stage.book.lock().unwrap())
}

fn all_alike(successes: &[Bytes]) -> bool {
    successes.windows(2).all(|pair| pair[0] == pair[1])
}

/// Nothing runs twice, whatever the store loses, and all clients that get an answer get the same.
#[test]
fn at_most_once_whatever_the_store_loses() {
    let (mut runs, mut answered) = (0, 0);
    for seed in 0..300 {
        const CALLS: &[Call] = &[Call::Claim, Call::LookUp, Call::RenewClaims, Call::Settle, Call::Withdraw];
        for (key, seen) in schedule(seed, CrashPolicy::Reject, CALLS) {
            assert_eq!(seen.overlaps_of_valid_claims, 0, "seed {seed}, {key}: {seen:?}");
            assert_eq!(seen.runs, 1, "seed {seed}, {key}: {seen:?}");
            assert!(all_alike(&seen.successes), "seed {seed}, {key}: {seen:?}");
            runs += seen.runs;
            answered += seen.successes.len();
        }
    }
    assert!(runs > 800 && answered > 3000, "the schedules do nothing: {runs} runs, {answered} answers");
}

/// What lapsed runs again, and still only one response counts: late ones are fenced off, and their clients get that one.
#[test]
fn one_response_counts_whatever_is_taken_over() {
    let (mut again, mut answered) = (0, 0);
    for seed in 0..300 {
        const CALLS: &[Call] =
            &[Call::Claim, Call::RenewClaims, Call::RenewClaims, Call::LookUp, Call::Withdraw];
        for (key, seen) in schedule(seed, CrashPolicy::Takeover, CALLS) {
            assert_eq!(seen.overlaps_of_valid_claims, 0, "seed {seed}, {key}: {seen:?}");
            assert!(all_alike(&seen.successes), "seed {seed}, {key}: {seen:?}");
            again += seen.runs - 1;
            answered += seen.successes.len();
        }
    }
    assert!(again > 20 && answered > 3000, "the schedules do nothing: {again} ran again, {answered} answers");
}
