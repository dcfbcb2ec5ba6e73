//! Idempotency on Postgres, from the store up to the layer and the attribute.

mod postgres_naive;
mod postgres_shop;
mod tower_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use distlock::postgres::Begun;
use distlock::records::{
    CrashPolicy, Fingerprint, RecordKey, RecordNote, RecordScope, RecordState, Settlement,
};
use distlock::{LockError, LockManager, OwnerToken, Ttl, idempotent};
use distlock_runtime::Clock;
use distlock_runtime::backend::postgres::{PostgresBackend, PostgresOptions};
use distlock_runtime::backend::{
    Backend as _, BackendErrorKind, Claim, ClaimOutcome, RecordLease, RecordStore, Renewal,
};
use distlock_tests::procs::Worker;
use distlock_tests::server::{PgBouncer, PostgresOptions as ServerOptions, PostgresServer};
use distlock_tests::wait;
use distlock_tower::{Execution, IdempotencyLayer};
use http::{HeaderName, HeaderValue};
use tokio::task::JoinSet;

use postgres_shop::Shop;
use tower_support::{LIMIT, Reply, Runs, ask, keyed};

const DAY: Duration = Duration::from_secs(86_400);

fn claim(key: &str) -> Claim {
    Claim {
        key: RecordKey::derive("test", &[key.as_bytes()]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [7; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: DAY,
        note: RecordNote::new(),
    }
}

fn backend(url: &str) -> Arc<dyn RecordStore> {
    let backend = PostgresBackend::open(&PostgresOptions::from_url(url).unwrap(), Clock::System).unwrap();
    backend.records().unwrap()
}

async fn claimed(store: &Arc<dyn RecordStore>, claim: &Claim) -> RecordLease {
    match store.claim(claim).await.unwrap() {
        ClaimOutcome::Claimed { fence, .. } => {
            RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease }
        }
        other => panic!("not claimed: {other:?}"),
    }
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_withdrawal_claims_nothing() {
    let shop = Shop::open().await;
    let store = backend(&shop.url());
    let late = claim("late");
    store.withdraw(&late).await.unwrap();
    let error = store.claim(&late).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Script, "{error}");
    assert_eq!(store.look_up(&late.key).await.unwrap(), None);
    claimed(&store, &claim("late")).await;
}

/// A transaction may have a key's turn for as long as it likes. Whoever has less time is told in time, and so are those who use the same
/// connection for something else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_shortly_for_an_open_transaction_and_holds_up_no_others() {
    let shop = Shop::open().await;
    let store = backend(&shop.url());
    let (blocked, free) = (claim("blocked"), claim("free"));
    claimed(&store, &claim("tables")).await;
    let mut client = shop.client().await;
    let open = client.transaction().await.unwrap();
    let turn = "select pg_advisory_xact_lock(hashtextextended(distlock.record_turn($1), hashtext($2)))";
    open.execute(turn, &[&blocked.key.to_bytes().to_vec(), &shop.namespace]).await.unwrap();
    let start = tokio::time::Instant::now();
    let (refused, _) = tokio::join!(store.claim(&blocked), claimed(&store, &free));
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Unavailable, "{refused}");
    assert!(start.elapsed() < Duration::from_millis(2_500), "{:?}", start.elapsed());
    open.commit().await.unwrap();
    claimed(&store, &blocked).await;
}

/// More than one statement takes, with a stranger's among them.
#[tokio::test]
async fn many_claims_are_renewed_at_once() {
    let shop = Shop::open().await;
    let store = backend(&shop.url());
    let mut leases = Vec::new();
    for number in 0..600 {
        leases.push(claimed(&store, &claim(&format!("k{number}"))).await);
    }
    leases[300].owner = OwnerToken::random().unwrap();
    let renewed = store.renew_claims(&leases).await;
    for (number, renewal) in renewed.iter().enumerate() {
        let is_renewed = matches!(renewal, Renewal::Renewed { .. });
        assert_eq!(is_renewed, number != 300, "{number}: {renewal:?}");
    }
    assert_eq!(renewed.len(), 600);
}

/// Nothing stays for ever, and no look takes away more than its bound.
#[tokio::test]
async fn what_is_over_is_taken_away_some_at_a_time() {
    // One of its own: others look too.
    let server = PostgresServer::start(ServerOptions::new()).unwrap();
    let store = backend(&server.url());
    let brief = Ttl::new(Ttl::MIN).unwrap();
    for number in 0..5 {
        let lease = claimed(&store, &claim(&format!("settled {number}"))).await;
        let retain = Duration::from_millis(1);
        store.settle(&lease, &Settlement::Complete { response: "x".into(), retain }).await.unwrap();
    }
    claimed(&store, &Claim { lease: brief, retain: Duration::from_millis(1), ..claim("lapsed") }).await;
    // Renewed since: not over when its first lease would have been.
    let renewed = Claim { lease: brief, retain: Duration::from_millis(1), ..claim("renewed") };
    let lease = RecordLease { ttl: Ttl::DEFAULT, ..claimed(&store, &renewed).await };
    assert!(matches!(store.renew_claims(&[lease]).await[..], [Renewal::Renewed { .. }]));
    let kept = claimed(&store, &claim("kept")).await;
    store.settle(&kept, &Settlement::Complete { response: "x".into(), retain: DAY }).await.unwrap();

    let client = server.admin().await.unwrap();
    let over = "select count(*) from distlock.record where kept_until <= clock_timestamp()";
    wait::until("the leases to lapse", LIMIT, async || {
        let count: i64 = client.query_one(over, &[]).await.unwrap().get(0);
        (count == 6).then_some(())
    })
    .await
    .unwrap();
    let mut taken = Vec::new();
    for more in [false, true, true, true] {
        let row = client.query_one("select distlock.purge_records(4, $1)", &[&more]).await.unwrap();
        taken.push(row.get::<_, i64>(0));
    }
    assert_eq!(taken, [4, 2, 0, 0]);
    let row = client.query_one("select distlock.purge_records(4, false)", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0, "not twice in half a minute");
    let left = client.query_one("select count(*) from distlock.record", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 2);
    assert!(store.look_up(&renewed.key).await.unwrap().is_some());
}

/// Scopes are tenants or users: one that has no places left leaves no row, whoever took the last one away.
#[tokio::test]
async fn scopes_without_places_leave_no_rows() {
    let server = PostgresServer::start(ServerOptions::new()).unwrap();
    let store = backend(&server.url());
    store.look_up(&claim("first").key).await.unwrap();
    let client = server.admin().await.unwrap();
    let scopes = async || -> i64 {
        client.query_one("select count(*) from distlock.record_scope", &[]).await.unwrap().get(0)
    };
    let scope = RecordScope::derive(&[b"tenant-7"]);
    let reserve = async |name: &str, hold: i64| -> bool {
        let sql = "select granted from distlock.record_reserve('distlock', $1, $2, $3, 1, 1000)";
        let (scope, key) = (&scope.to_bytes()[..], name.as_bytes());
        client.query_one(sql, &[&scope, &key, &hold]).await.unwrap().get(0)
    };
    assert!(reserve("a", 60_000).await && !reserve("b", 60_000).await);
    let give_back = "select distlock.record_charge('distlock', $1, 'a', 0, 0)";
    assert!(client.query_one(give_back, &[&&scope.to_bytes()[..]]).await.unwrap().get::<_, bool>(0));
    assert_eq!(scopes().await, 0, "after the last place was given back");

    // One that ended makes room for the next, which counts.
    assert!(reserve("c", 1).await);
    wait::until("it to end", LIMIT, async || reserve("d", 60_000).await.then_some(())).await.unwrap();
    assert!(!reserve("e", 60_000).await);
    assert_eq!(scopes().await, 1);

    // Records without a quota.
    let other = RecordScope::derive(&[b"tenant-8"]);
    let lease =
        claimed(&store, &Claim { note: RecordNote::new().with_scope(other), ..claim("scoped") }).await;
    store.settle(&lease, &Settlement::Complete { response: "x".into(), retain: DAY }).await.unwrap();
    assert_eq!(store.purge(&other, 10).await.unwrap().removed, 1);
    assert_eq!(scopes().await, 1, "the other one's");
}

/// A clock that was ahead for a while doesn't keep the sweeps waiting until it is there again.
#[tokio::test]
async fn sweeps_go_on_after_a_clock_was_ahead() {
    let server = PostgresServer::start(ServerOptions::new()).unwrap();
    let store = backend(&server.url());
    store.look_up(&claim("first").key).await.unwrap();
    let client = server.admin().await.unwrap();
    for sweep in ["purge_locks(10)", "purge_records(10, false)"] {
        client.batch_execute(&format!("select distlock.{sweep}")).await.unwrap();
        let ahead = "update distlock.upkeep set done_at = clock_timestamp() + interval '1 year'";
        client.execute(ahead, &[]).await.unwrap();
        client.batch_execute(&format!("select distlock.{sweep}")).await.unwrap();
        let done = "select count(*) from distlock.upkeep where done_at <= clock_timestamp()";
        assert_eq!(client.query_one(done, &[]).await.unwrap().get::<_, i64>(0), 1, "{sweep}");
    }
}

/// Duplicates of what is finished cost the database no write.
#[tokio::test]
async fn a_replay_writes_nothing() {
    let server = PostgresServer::start(ServerOptions::new().setting("autovacuum=off")).unwrap();
    let store = backend(&server.url());
    let lease = claimed(&store, &claim("k")).await;
    let response = Bytes::from(vec![b'x'; 10_000]);
    store.settle(&lease, &Settlement::Complete { response: response.clone(), retain: DAY }).await.unwrap();
    let client = server.admin().await.unwrap();
    let transactions = async || -> i64 {
        let row = client.query_one("select txid_snapshot_xmax(txid_current_snapshot())", &[]).await.unwrap();
        row.get(0)
    };
    let before = transactions().await;
    for _ in 0..50 {
        let ClaimOutcome::Present(record) = store.claim(&claim("k")).await.unwrap() else {
            panic!("present")
        };
        assert_eq!(record.state, RecordState::Completed { response: response.clone() });
    }
    assert_eq!(transactions().await, before);
    claimed(&store, &claim("another")).await;
    assert!(transactions().await > before, "a claim is seen to write");
}

async fn create(State(runs): State<Runs>, execution: Execution, body: Bytes) -> Response {
    let run = runs.run(execution.key().as_str()).await;
    let text = [&body[..], b" \x00\xff run ", run.to_string().as_bytes()].concat();
    let mut response = (http::StatusCode::CREATED, text).into_response();
    response.headers_mut().append(HeaderName::from_static("x-many"), HeaderValue::from_static("one"));
    response
        .headers_mut()
        .append(HeaderName::from_static("x-many"), HeaderValue::from_bytes(b"caf\xe9").unwrap());
    response
}

fn app(locks: &LockManager, runs: &Runs) -> Router {
    let layer = IdempotencyLayer::builder(locks).anonymous().build().unwrap();
    Router::new().route("/", post(create)).with_state(runs.clone()).layer(layer)
}

/// Two hundred at once, over these managers in turn.
async fn storm(managers: &[LockManager], runs: &Runs, key: &str) -> Vec<Reply> {
    let apps: Vec<Router> = managers.iter().map(|locks| app(locks, runs)).collect();
    storm_of(&apps, 200, key).await
}

async fn storm_of(apps: &[Router], requests: usize, key: &str) -> Vec<Reply> {
    let mut sent = JoinSet::new();
    for number in 0..requests {
        let (app, key) = (apps[number % apps.len()].clone(), key.to_owned());
        sent.spawn(async move { ask(&app, keyed("/", &key, "order")).await });
    }
    sent.join_all().await
}

fn assert_all_are_one(replies: &[Reply]) {
    let first = replies.iter().find(|reply| !reply.is_replay()).expect("one executed");
    assert_eq!(first.status, http::StatusCode::CREATED, "{}", first.text());
    for reply in replies {
        assert_eq!((reply.status, &reply.body), (first.status, &first.body));
        assert_eq!(reply.lasting_headers(), first.lasting_headers());
    }
    assert_eq!(replies.iter().filter(|reply| !reply.is_replay()).count(), 1);
}

/// The control looks for a response before it executes: all that look before the first one has written it execute too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_requests_one_is_executed_and_all_get_its_bytes() {
    let shop = Shop::open().await;
    let managers = [shop.manager().await, shop.manager().await];
    let runs = Runs::open();
    for key in ["first", "second"] {
        assert_all_are_one(&storm(&managers, &runs, key).await);
    }
    assert_eq!(runs.total(), 2);

    let runs = Runs::gated();
    let naive = [postgres_naive::app(&shop.server.url(), &runs).await];
    let ((), replies) = tokio::join!(
        async {
            runs.reached(2).await;
            runs.let_go(20);
        },
        storm_of(&naive, 20, "naive")
    );
    assert!(
        runs.total() > 1 && replies.iter().any(|reply| reply.body != replies[0].body),
        "the naive one must be caught"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_works_behind_a_pooler() {
    let shop = Shop::open().await;
    let pooler = PgBouncer::start(shop.server.port(), 4).unwrap();
    let pooled =
        LockManager::connect(&format!("{}?namespace={}", pooler.url(), shop.namespace)).await.unwrap();
    // One of them is told by the server, the other one asks.
    let managers = [pooled, shop.manager().await];
    let runs = Runs::open();
    assert_all_are_one(&storm(&managers, &runs, "pooled").await);
    assert_eq!(runs.total(), 1);
}

#[idempotent(key = "charge:<id>", locks = locks, fingerprint = cents)]
async fn charge(locks: &LockManager, runs: &AtomicUsize, id: u64, cents: u64) -> Result<String, LockError> {
    let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
    tokio::task::yield_now().await;
    Ok(format!("{id}: {cents} by run {run}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_calls_of_a_function_one_runs() {
    let shop = Shop::open().await;
    let managers = Arc::new([shop.manager().await, shop.manager().await]);
    let runs = Arc::new(AtomicUsize::new(0));
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let (managers, runs) = (managers.clone(), runs.clone());
        calls.spawn(async move { charge(&managers[number % 2], &runs, 1, 5).await.unwrap() });
    }
    assert!(calls.join_all().await.iter().all(|receipt| receipt == "1: 5 by run 1"));
    assert_eq!(charge(&managers[0], &runs, 1, 6).await.unwrap_err().code(), "KEY_REUSED");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// A process that executes and stops half-way; it is killed there.
async fn executor_killed(shop: &Shop, policy: &str, key: &str) {
    let args = [&*shop.url(), policy, "600", key];
    let worker = Worker::spawn(env!("CARGO_BIN_EXE_idempotent-worker"), args).unwrap();
    worker.wait_line("its handler", LIMIT, |line| line.strip_prefix("running ").map(|_| ())).await.unwrap();
    worker.kill().unwrap();
}

/// The control writes nothing before it executes, so that nobody knows of the one that died.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_after_a_kill_nothing_runs_again_unless_it_was_chosen() {
    let shop = Shop::open().await;
    for policy in [CrashPolicy::Reject, CrashPolicy::Takeover] {
        let is_takeover = policy == CrashPolicy::Takeover;
        let (word, key) = if is_takeover { ("takeover", "t") } else { ("reject", "r") };
        let runs = Runs::open();
        let locks = shop.manager().await;
        let layer = IdempotencyLayer::builder(&locks)
            .anonymous()
            .lease(Duration::from_secs(6))
            .after_crash(policy)
            .build()
            .unwrap();
        let app = Router::new().route("/", post(create)).with_state(runs.clone()).layer(layer);
        executor_killed(&shop, word, key).await;
        let mut sent = JoinSet::new();
        for _ in 0..10 {
            let app = app.clone();
            sent.spawn(async move { ask(&app, keyed("/", key, "")).await });
        }
        let replies = sent.join_all().await;
        if is_takeover {
            assert_all_are_one(&replies);
        } else {
            replies.iter().for_each(|reply| reply.assert_problem(409, "outcome-unknown"));
        }
        assert_eq!(runs.total(), usize::from(is_takeover), "{word}");
    }
    // Its executor ends half-way, as a killed process does.
    let runs = Runs::gated();
    let naive = postgres_naive::app(&shop.server.url(), &runs).await;
    let killed = tokio::spawn({
        let naive = naive.clone();
        async move { ask(&naive, keyed("/", "n", "")).await }
    });
    runs.reached(1).await;
    killed.abort();
    killed.await.unwrap_err();
    runs.let_go(10);
    ask(&naive, keyed("/", "n", "")).await;
    assert_eq!(runs.total(), 2, "the naive one must run it again");
}

/// The server is killed while a handler runs, and comes back: the response is kept after all, and nothing runs twice. The
/// control executes what it can't look up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_restart_of_the_server_under_a_running_handler_loses_nothing() {
    let server = PostgresServer::start(ServerOptions::new().durable()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let runs = Runs::gated();
    let app = app(&locks, &runs);
    let before = {
        tokio::spawn({
            let app = app.clone();
            async move { ask(&app, keyed("/", "before", "x")).await }
        })
    };
    runs.reached(1).await;
    let naive_runs = Runs::open();
    let naive = postgres_naive::app(&server.url(), &naive_runs).await;
    server.kill().unwrap();
    assert_eq!(ask(&naive, keyed("/", "during", "x")).await.status, http::StatusCode::CREATED);
    let refused = ask(&app, keyed("/", "during", "x")).await;
    refused.assert_problem(503, "store-unavailable");
    assert_eq!(runs.total(), 1, "nothing runs without a claim");
    runs.let_go(2);
    server.restart().unwrap();
    let first = tokio::time::timeout(LIMIT, before).await.unwrap().unwrap();
    assert_eq!(first.status, http::StatusCode::CREATED, "{}", first.text());
    let again = wait::until("the store to be back and the response to be kept", LIMIT, async || {
        let reply = ask(&app, keyed("/", "before", "x")).await;
        reply.is_replay().then_some(reply)
    })
    .await
    .unwrap();
    assert_eq!((again.body, again.status), (first.body, first.status));
    assert_eq!(ask(&app, keyed("/", "during", "x")).await.status, http::StatusCode::CREATED);
    assert_eq!(runs.total(), 2);
    assert!(!ask(&naive, keyed("/", "during", "x")).await.is_replay());
    assert_eq!(naive_runs.total(), 2, "the naive one must run it twice");
}

async fn pay_without_record(State((shop, runs)): State<(Shop, Runs)>, execution: Execution) -> &'static str {
    runs.run(execution.key().as_str()).await;
    shop.write(&shop.client().await, execution.key().as_str()).await;
    "paid"
}

async fn pay(State((shop, runs)): State<(Shop, Runs)>, execution: Execution) -> String {
    runs.run(execution.key().as_str()).await;
    let mut client = shop.client().await;
    let mut tx = client.transaction().await.unwrap();
    let receipt = match shop.records.claim(execution.key().as_str()).begin(&mut tx).await.unwrap() {
        Begun::Completed(response) => response.value().unwrap(),
        Begun::Execute(claim) => {
            shop.write(&tx, execution.key().as_str()).await;
            let receipt = "paid".to_owned();
            claim.complete_with(&mut tx, &receipt).await.unwrap();
            receipt
        }
    };
    tx.commit().await.unwrap();
    receipt
}

/// The layer outside, a record in the handler's transaction inside: whether a process dies before its commit or after it, the handler
/// runs again, and there is one effect. The control writes beside the
/// layer's record alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn procs_the_layer_and_a_transaction_go_together() {
    let shop = Shop::open().await;
    let locks = shop.manager().await;
    let layer = IdempotencyLayer::builder(&locks)
        .anonymous()
        .lease(Duration::from_secs(6))
        .after_crash(CrashPolicy::Takeover)
        .build()
        .unwrap();
    let runs = Runs::open();
    let app =
        Router::new().route("/", post(pay)).with_state((shop.clone(), runs.clone())).layer(layer.clone());
    let naive = Router::new().route("/", post(pay_without_record));
    let naive = naive.with_state((shop.clone(), runs.clone())).layer(layer);
    executor_killed(&shop, "takeover", "naive").await;
    shop.write(&shop.client().await, "naive").await;
    assert_eq!(ask(&naive, keyed("/", "naive", "")).await.text(), "paid");
    assert_eq!(shop.effects("naive").await, 2, "the naive one must have its effect twice");
    for (key, had_committed) in [("before", false), ("after", true)] {
        executor_killed(&shop, "takeover", key).await;
        if had_committed {
            // What it did before it died.
            let mut client = shop.client().await;
            let mut tx = client.transaction().await.unwrap();
            let Begun::Execute(claim) = shop.records.claim(key).begin(&mut tx).await.unwrap() else {
                panic!("new")
            };
            shop.write(&tx, key).await;
            claim.complete_with(&mut tx, "paid").await.unwrap();
            tx.commit().await.unwrap();
        }
        let before = runs.total();
        for _ in 0..2 {
            assert_eq!(ask(&app, keyed("/", key, "")).await.text(), "paid", "{key}");
        }
        assert_eq!(runs.total(), before + 1, "{key}: the handler runs again, once");
        assert_eq!(shop.effects(key).await, 1, "{key}");
    }
}
