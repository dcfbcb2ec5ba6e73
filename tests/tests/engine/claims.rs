//! Idempotency claims on a store that stumbles.

use std::time::Duration;

use distlock_runtime::{
    ClaimRequest, Claimed, CrashPolicy, ErrorKind, Fingerprint, LockManager, RecordKey, RecordState, Settled,
    Settlement, Ttl,
    backend::BackendErrorKind,
    testkit::{Call, Fault},
};

use crate::{assert_kind, ms, store, until};

fn request(name: &str) -> ClaimRequest {
    ClaimRequest {
        key: RecordKey::derive("test", &[name.as_bytes()]),
        fingerprint: Fingerprint { version: 1, digest: [1; 32] },
        lease: Ttl::new(ms(9_000)).unwrap(),
        after_crash: CrashPolicy::Reject,
        retain: Duration::from_secs(3600),
        note: distlock_runtime::RecordNote::new(),
    }
}

async fn claim(locks: &LockManager, name: &str) -> distlock_runtime::ClaimGuard {
    match locks.records().unwrap().claim(request(name)).await.unwrap() {
        Claimed::Execute(guard) => guard,
        Claimed::Present(record) => panic!("{record:?}"),
    }
}

async fn state(locks: &LockManager, name: &str) -> Option<RecordState> {
    let found = locks.records().unwrap().look_up(&request(name).key).await.unwrap();
    found.map(|record| record.state)
}

fn complete() -> Settlement {
    Settlement::Complete { response: b"done".to_vec().into(), retain: Duration::from_secs(3600) }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_reply_is_lost_is_ours_when_asked_again() {
    let (store, locks) = store();
    for (n, fault) in [Fault::LoseReply, Fault::LoseRequest].into_iter().enumerate() {
        store.next(Call::Claim, fault);
        let guard = claim(&locks, &format!("lost-{n}")).await;
        assert_eq!(guard.settle(complete()).await.unwrap(), Settled::Done);
    }
    store.always(Call::Claim, Fault::Hang);
    assert_kind(locks.records().unwrap().claim(request("down")).await, ErrorKind::Connection);
    store.heal();
    store.next(Call::Claim, Fault::Refuse(BackendErrorKind::OutOfMemory));
    assert_kind(locks.records().unwrap().claim(request("full")).await, ErrorKind::OutOfMemory);
}

#[tokio::test(start_paused = true)]
async fn a_claim_lives_on_over_failed_renewals_and_is_lost_at_its_deadline() {
    let (store, locks) = store();
    let guard = claim(&locks, "long").await;
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Hang] {
        store.next(Call::RenewClaims, fault);
        tokio::time::sleep(ms(9_000)).await;
        assert!(guard.is_valid(), "{fault:?}");
    }
    store.always(Call::RenewClaims, Fault::LoseRequest);
    let error = guard.view().lost().await;
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(
        matches!(state(&locks, "long").await, Some(RecordState::InFlight { remaining }) if remaining > ms(0))
    );
}

#[tokio::test(start_paused = true)]
async fn a_settlement_with_an_open_outcome_is_finished_in_the_background() {
    let (store, locks) = store();
    for (n, fault) in
        [Fault::LoseRequest, Fault::LoseReply, Fault::Hang, Fault::HangApplied].into_iter().enumerate()
    {
        let name = format!("settle-{n}");
        let guard = claim(&locks, &name).await;
        store.next(Call::Settle, fault);
        store.next(Call::Settle, Fault::LoseRequest);
        assert_kind(guard.settle(complete()).await, ErrorKind::Connection);
        let took = until("the settlement", async || {
            matches!(state(&locks, &name).await, Some(RecordState::Completed { .. }))
        })
        .await;
        assert!(took < ms(3_000), "{fault:?}: {took:?}");
        tokio::time::sleep(ms(3_000)).await;
        store.heal();
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_dropped_unsettled_lapses() {
    let (_store, locks) = store();
    drop(claim(&locks, "dropped").await);
    tokio::time::sleep(ms(9_001)).await;
    match locks.records().unwrap().claim(request("dropped")).await.unwrap() {
        Claimed::Present(record) => assert_eq!(record.state, RecordState::Unknown),
        Claimed::Execute(_) => panic!("nothing runs twice under Reject"),
    }
}
