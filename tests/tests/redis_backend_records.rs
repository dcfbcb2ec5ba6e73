//! Idempotency records against a real server: the whole state machine, repeats, fences and waiting.

mod redis_backend;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use distlock_runtime::{
    FencingToken, OwnerToken, Ttl,
    backend::{
        Backend, BackendErrorKind, Claim, ClaimOutcome, CrashPolicy, Fingerprint, Record, RecordFilter,
        RecordKey, RecordLease, RecordScope, RecordState, RecordStore, Renewal, Settled, Settlement,
        redis::RedisBackend,
    },
};
use distlock_tests::{server::RedisOptions as ServerOptions, wait};
use redis_backend::*;

const DAY: Duration = Duration::from_secs(86_400);

fn claim(key: &str) -> Claim {
    Claim {
        key: RecordKey::derive("test", &[key.as_bytes()]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [7; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: DAY,
        note: distlock_runtime::RecordNote::new(),
    }
}

fn brief(key: &str, after_crash: CrashPolicy) -> Claim {
    Claim { lease: Ttl::new(Ttl::MIN).unwrap(), after_crash, ..claim(key) }
}

async fn claimed(store: &RedisBackend, claim: &Claim) -> (RecordLease, bool) {
    match store.claim(claim).await.unwrap() {
        ClaimOutcome::Claimed { fence, taken_over, .. } => {
            (RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease }, taken_over)
        }
        other => panic!("not claimed: {other:?}"),
    }
}

async fn present(store: &RedisBackend, claim: &Claim) -> Record {
    match store.claim(claim).await.unwrap() {
        ClaimOutcome::Present(record) => record,
        other => panic!("not present: {other:?}"),
    }
}

async fn lapsed(store: &RedisBackend, key: RecordKey) {
    wait::until("the lease to lapse", LIMIT, async || {
        let record = store.look_up(&key).await.unwrap().expect("kept after its lease");
        (record.state == RecordState::InFlight { remaining: Duration::ZERO }).then_some(())
    })
    .await
    .unwrap();
}

fn complete(body: &'static str) -> Settlement {
    Settlement::Complete { response: Bytes::from_static(body.as_bytes()), retain: DAY }
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_withdrawal_claims_nothing() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let late = claim("late");
    store.withdraw(&late).await.unwrap();
    let error = store.claim(&late).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Script, "{error}");
    assert_eq!(store.look_up(&late.key).await.unwrap(), None);
    claimed(store, &claim("late")).await;
}

#[tokio::test]
async fn a_key_runs_once_and_its_result_is_kept() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let first = claim("k");
    assert_eq!(store.look_up(&first.key).await.unwrap(), None);
    let (lease, taken_over) = claimed(store, &first).await;
    assert!(!taken_over);
    let rival = Claim { fingerprint: Fingerprint { version: 2, digest: [9; 32] }, ..claim("k") };
    let record = present(store, &rival).await;
    assert_eq!(record.fingerprint, first.fingerprint, "the stored one, to compare with");
    let RecordState::InFlight { remaining } = record.state else { panic!("{record:?}") };
    assert!(remaining > Duration::from_secs(29) && remaining <= Ttl::DEFAULT.as_duration(), "{remaining:?}");

    // The response may be any bytes.
    let response = Bytes::from((0..=255).cycle().take(70_000).collect::<Vec<u8>>());
    let settlement = Settlement::Complete { response: response.clone(), retain: DAY };
    for _ in 0..2 {
        assert_eq!(store.settle(&lease, &settlement).await.unwrap(), Settled::Done);
    }
    assert_eq!(store.settle(&lease, &complete("other")).await.unwrap(), Settled::Fenced);
    assert_eq!(store.settle(&lease, &Settlement::Release).await.unwrap(), Settled::Fenced);
    let completed = RecordState::Completed { response };
    assert_eq!(present(&bench.other(), &rival).await.state, completed);
    assert_eq!(present(store, &first).await.state, completed);
    assert_eq!(store.look_up(&first.key).await.unwrap().unwrap().state, completed);
    assert!(matches!(store.renew_claims(&[lease]).await[..], [Renewal::Gone]));
}

#[tokio::test]
async fn a_repeated_claim_goes_on_under_its_fence() {
    let bench = Bench::start().await;
    let claim = claim("k");
    let (first, _) = claimed(&bench.backend, &claim).await;
    assert_eq!(claimed(&bench.other(), &claim).await, (first, false));
}

#[tokio::test]
async fn every_settlement_is_kept_for_its_retention_only() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let reason = "too large".to_owned();
    for (name, settlement, state) in [
        (
            "t",
            Settlement::Tombstone { reason: reason.clone(), retain: DAY },
            RecordState::Tombstone { reason },
        ),
        ("u", Settlement::Unknown { retain: DAY }, RecordState::Unknown),
        ("c", complete(""), RecordState::Completed { response: Bytes::new() }),
    ] {
        let claim = claim(name);
        let (lease, _) = claimed(store, &claim).await;
        for _ in 0..2 {
            assert_eq!(store.settle(&lease, &settlement).await.unwrap(), Settled::Done, "{name}");
        }
        assert_eq!(store.look_up(&claim.key).await.unwrap().unwrap().state, state);
        let ttl: i64 = bench.ask(&format!("PTTL distlock!r:{}", claim.key.to_hex())).await;
        assert!((DAY.as_millis() as i64 - 10_000..=DAY.as_millis() as i64).contains(&ttl), "{ttl}");
    }
    let gone = claim("gone");
    let (lease, _) = claimed(store, &gone).await;
    store.settle(&lease, &Settlement::Unknown { retain: Duration::ZERO }).await.unwrap();
    wait::until("it to be forgotten", LIMIT, async || {
        store.look_up(&gone.key).await.unwrap().is_none().then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_released_key_is_claimed_anew_with_a_larger_fence() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let (lease, _) = claimed(store, &claim("k")).await;
    for _ in 0..2 {
        assert_eq!(store.settle(&lease, &Settlement::Release).await.unwrap(), Settled::Done);
    }
    assert_eq!(store.look_up(&lease.key).await.unwrap(), None);
    let (next, taken_over) = claimed(store, &claim("k")).await;
    assert!(next.fence > lease.fence && !taken_over);
    assert_eq!(store.settle(&lease, &Settlement::Release).await.unwrap(), Settled::Fenced);
    assert_eq!(store.settle(&lease, &complete("late")).await.unwrap(), Settled::Fenced);
}

#[tokio::test]
async fn a_claim_of_the_dead_becomes_unknown_or_is_taken_over() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let dead = brief("reject", CrashPolicy::Reject);
    let (lease, _) = claimed(store, &dead).await;
    lapsed(store, dead.key).await;
    assert!(
        matches!(store.renew_claims(std::slice::from_ref(&lease)).await[..], [Renewal::Gone]),
        "lapsed is over"
    );
    assert_eq!(present(store, &claim("reject")).await.state, RecordState::Unknown);
    assert_eq!(store.settle(&lease, &complete("late")).await.unwrap(), Settled::Fenced);
    assert_eq!(present(store, &brief("reject", CrashPolicy::Takeover)).await.state, RecordState::Unknown);

    let dead = brief("takeover", CrashPolicy::Takeover);
    let (lease, _) = claimed(store, &dead).await;
    lapsed(store, dead.key).await;
    let other = Fingerprint { version: 1, digest: [8; 32] };
    let stranger = Claim { fingerprint: other, ..brief("takeover", CrashPolicy::Takeover) };
    assert_eq!(
        present(store, &stranger).await.fingerprint,
        dead.fingerprint,
        "another request never takes it over"
    );
    let heir = Claim { lease: Ttl::DEFAULT, ..brief("takeover", CrashPolicy::Takeover) };
    let (next, taken_over) = claimed(store, &heir).await;
    assert!(taken_over && next.fence > lease.fence);
    assert_eq!(claimed(store, &heir).await, (next.clone(), true), "and a repeat says so too");
    for settlement in [complete("late"), Settlement::Release, Settlement::Unknown { retain: DAY }] {
        assert_eq!(store.settle(&lease, &settlement).await.unwrap(), Settled::Fenced);
    }
    assert_eq!(store.settle(&next, &complete("done")).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn an_executor_that_was_only_late_still_settles() {
    let bench = Bench::start().await;
    let late = brief("k", CrashPolicy::Reject);
    let (lease, _) = claimed(&bench.backend, &late).await;
    lapsed(&bench.backend, late.key).await;
    assert_eq!(bench.backend.settle(&lease, &complete("done")).await.unwrap(), Settled::Done);
}

#[tokio::test]
async fn renewal_keeps_claims_and_tells_which_are_gone() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let mut leases = Vec::new();
    for number in 0..230 {
        let (mut lease, _) = claimed(store, &claim(&format!("k{number}"))).await;
        match number {
            3 => lease.fence = FencingToken::new(lease.fence.get() + 1),
            4 => lease.owner = OwnerToken::random().unwrap(),
            200 => drop(store.settle(&lease, &complete("x")).await.unwrap()),
            5 => lease.ttl = Ttl::new(Duration::from_secs(60)).unwrap(),
            _ => {}
        }
        leases.push(lease);
    }
    let outcomes = store.renew_claims(&leases).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        assert_eq!(matches!(outcome, Renewal::Gone), [3, 4, 200].contains(&number), "{number}: {outcome:?}");
    }
    let record = store.look_up(&leases[5].key).await.unwrap().unwrap();
    let RecordState::InFlight { remaining } = record.state else { panic!("{record:?}") };
    assert!(remaining > Duration::from_secs(58), "{remaining:?}");
    let ttl: i64 = bench.ask(&format!("PTTL distlock!r:{}", leases[5].key.to_hex())).await;
    assert!(ttl > DAY.as_millis() as i64 + 50_000, "outlives the lease by the retention: {ttl}");
}

#[tokio::test]
async fn waiting_ends_by_push() {
    let bench = Bench::start().await;
    let waiter = bench.other();
    let _serving = Serving::start(&waiter);
    listening(&bench, &waiter).await;
    let mut took = Vec::new();
    for settlement in [complete("x"), Settlement::Release, Settlement::Unknown { retain: DAY }] {
        let claim = claim("k");
        let (lease, _) = claimed(&bench.backend, &claim).await;
        let waiting = tokio::spawn({
            let waiter = Arc::clone(&waiter);
            async move { waiter.changed(&claim.key, LIMIT).await }
        });
        let record = format!("distlock!r:{}", lease.key.to_hex());
        let registered = async || bench.ask::<bool>(&format!("HEXISTS {record} w")).await.then_some(());
        wait::until("the waiter's entry", LIMIT, registered).await.unwrap();
        let settled = tokio::time::Instant::now();
        bench.backend.settle(&lease, &settlement).await.unwrap();
        tokio::time::timeout(LIMIT, waiting).await.unwrap().unwrap();
        took.push(settled.elapsed());
        let _: i64 = bench.ask(&format!("DEL {record}")).await;
    }
    took.sort();
    // Without a push it asks after 200 ms at the soonest; a busy machine may hold up the odd one.
    assert!(took[1] < Duration::from_millis(150), "{took:?}");
}

#[tokio::test]
async fn waiting_ends_without_push_too() {
    let bench = Bench::start().await;
    let store = &bench.backend;
    let start = tokio::time::Instant::now();
    store.changed(&claim("absent").key, LIMIT).await;
    let (lease, _) = claimed(store, &claim("done")).await;
    store.settle(&lease, &complete("x")).await.unwrap();
    store.changed(&lease.key, LIMIT).await;
    assert!(start.elapsed() < Duration::from_secs(1), "nothing to wait for");

    let (lease, _) = claimed(store, &claim("k")).await;
    store.changed(&lease.key, Duration::from_millis(50)).await;
    let waiting = tokio::spawn({
        let (store, key) = (bench.other(), lease.key);
        async move { store.changed(&key, LIMIT).await }
    });
    store.settle(&lease, &complete("x")).await.unwrap();
    tokio::time::timeout(Duration::from_secs(2), waiting).await.expect("asks by itself").unwrap();

    let dead = brief("dead", CrashPolicy::Reject);
    claimed(store, &dead).await;
    tokio::time::timeout(Duration::from_secs(2), store.changed(&dead.key, LIMIT))
        .await
        .expect("sees it lapse");
}

#[tokio::test]
async fn the_list_of_watchers_is_bounded() {
    let bench = Bench::start().await;
    let (lease, _) = claimed(&bench.backend, &claim("k")).await;
    let serving: Vec<_> =
        (0..40).map(|_| bench.other()).map(|other| (Serving::start(&other), other)).collect();
    for (_, other) in &serving {
        listening(&bench, other).await;
    }
    for (_, other) in &serving {
        for _ in 0..2 {
            other.changed(&lease.key, Duration::from_millis(5)).await;
        }
    }
    let watchers: String = bench.ask(&format!("HGET distlock!r:{} w", lease.key.to_hex())).await;
    assert_eq!(watchers.split_whitespace().count(), 32);
}

#[tokio::test]
async fn what_is_not_a_record_is_not_touched() {
    let bench = Bench::start().await;
    let claim = claim("k");
    let name = format!("distlock!r:{}", claim.key.to_hex());
    let _: String = bench.ask(&format!("SET {name} foreign")).await;
    let lease =
        RecordLease { key: claim.key, owner: claim.owner, fence: FencingToken::new(1), ttl: claim.lease };
    let kinds = [
        bench.backend.claim(&claim).await.unwrap_err().kind(),
        bench.backend.settle(&lease, &complete("x")).await.unwrap_err().kind(),
        bench.backend.look_up(&claim.key).await.unwrap_err().kind(),
    ];
    assert_eq!(kinds, [BackendErrorKind::KeyConflict; 3]);
    assert!(matches!(bench.backend.renew_claims(&[lease]).await[..], [Renewal::Gone]));
    assert_eq!(bench.ask::<String>(&format!("GET {name}")).await, "foreign");
    // A hash, and yet no record.
    let _: i64 = bench.ask(&format!("DEL {name}")).await;
    let _: i64 = bench.ask(&format!("HSET {name} f foreign")).await;
    assert_eq!(bench.backend.claim(&claim).await.unwrap_err().kind(), BackendErrorKind::KeyConflict);
    assert_eq!(bench.backend.look_up(&claim.key).await.unwrap_err().kind(), BackendErrorKind::KeyConflict);
    assert_eq!(bench.ask::<Vec<String>>(&format!("HGETALL {name}")).await, ["f", "foreign"]);
}

#[tokio::test]
async fn a_damaged_record_fails_no_call_about_others() {
    let bench = Bench::start().await;
    let (sound, damaged) = (claimed(&bench.backend, &claim("sound")).await.0, claim("damaged"));
    let name = format!("distlock!r:{}", damaged.key.to_hex());
    let renewed = claimed(&bench.backend, &damaged).await.0;
    let _: i64 = bench.ask(&format!("HDEL {name} k")).await;
    let renewals = bench.backend.renew_claims(&[renewed.clone(), sound.clone()]).await;
    assert!(matches!(renewals[..], [_, Renewal::Renewed { .. }]), "{renewals:?}");
    for field in ["u nonsense", "u 1e300", "s z"] {
        let _: i64 = bench.ask(&format!("HSET {name} {field}")).await;
        let renewals = bench.backend.renew_claims(&[renewed.clone(), sound.clone()]).await;
        assert!(matches!(renewals[..], [_, Renewal::Renewed { .. }]), "{field}: {renewals:?}");
        let listed = bench.backend.list_records(&RecordFilter::all(), 10).await.unwrap();
        assert!(listed.iter().any(|info| info.key == sound.key), "{field}: {listed:?}");
        let purged = bench.backend.purge(&RecordScope::derive(&[b"another"]), 10).await.unwrap();
        assert!(purged.is_complete, "{field}");
    }
}

#[tokio::test]
async fn one_of_many_claims_wins() {
    let bench = Bench::with(ServerOptions::new()).await;
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let store = if number % 2 == 0 { Arc::clone(&bench.backend) } else { bench.other() };
            tokio::spawn(async move { store.claim(&claim("k")).await.unwrap() })
        })
        .collect();
    let mut winners = 0;
    for task in tasks {
        winners += u32::from(matches!(task.await.unwrap(), ClaimOutcome::Claimed { .. }));
    }
    assert_eq!(winners, 1);
    assert!(Arc::clone(&bench.backend).records().is_some());
}
