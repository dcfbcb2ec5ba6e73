//! What the store does with records, and what is left of them.

use crate::postgres_shop::Shop;
use crate::tower_support::LIMIT;
use bytes::Bytes;
use distlock::records::{
    CrashPolicy, Fingerprint, RecordKey, RecordNote, RecordScope, RecordState, Settlement,
};
use distlock::{OwnerToken, Ttl};
use distlock_runtime::Clock;
use distlock_runtime::backend::postgres::{PostgresBackend, PostgresOptions};
use distlock_runtime::backend::{
    Backend as _, BackendErrorKind, Claim, ClaimOutcome, RecordLease, RecordStore, Renewal,
};
use distlock_tests::server::{PostgresOptions as ServerOptions, PostgresServer};
use distlock_tests::wait;
use std::sync::Arc;
use std::time::Duration;

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
