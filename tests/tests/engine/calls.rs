//! Work that runs once, on a store that stumbles in each phase.

use std::cell::Cell;

use distlock_runtime::{
    Clock, ErrorKind, LockError, LockManager, Quota, RecordFilter, RecordInfo, RecordScope, RecordStatus,
    backend::{BackendErrorKind, memory::MemoryBackend},
    testkit::{self, Call, Fault, Faulty},
};

use crate::{assert_kind, ms, store, until};

/// Runs the work under this key, counted.
async fn call(locks: &LockManager, key: &str, runs: &Cell<u8>) -> Result<u8, LockError> {
    let scope = RecordScope::derive(&[b"tenant"]);
    let call = locks.idempotent(key.to_owned()).scope(scope).lease(ms(9_000)).wait(ms(0));
    call.run(async {
        runs.set(runs.get() + 1);
        Ok(runs.get())
    })
    .await
}

/// What is in the store, past all faults.
async fn records(store: &Faulty) -> Vec<RecordInfo> {
    let records = store.inner().clone().records().unwrap();
    records.list_records(&RecordFilter::all(), 100).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_to_its_claim_nothing_runs() {
    let (store, locks) = store();
    let runs = Cell::new(0);
    for fault in [Fault::Hang, Fault::LoseRequest, Fault::LoseReply, Fault::HangApplied] {
        store.always(Call::Claim, fault);
        assert_kind(call(&locks, "down", &runs).await, ErrorKind::Connection);
        store.heal();
        // What may have been claimed is withdrawn.
        until("the claim to be withdrawn", async || records(&store).await.is_empty()).await;
    }
    store.next(Call::Claim, Fault::Refuse(BackendErrorKind::OutOfMemory));
    assert_kind(call(&locks, "down", &runs).await, ErrorKind::OutOfMemory);
    assert_eq!(runs.get(), 0);
    assert_eq!(call(&locks, "down", &runs).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_value_whose_settlement_is_lost_is_returned_and_kept_all_the_same() {
    let (store, locks) = store();
    for (n, fault) in
        [Fault::LoseRequest, Fault::LoseReply, Fault::Hang, Fault::HangApplied].into_iter().enumerate()
    {
        let (key, runs) = (format!("settled-{n}"), Cell::new(0));
        store.next(Call::Settle, fault);
        assert_eq!(call(&locks, &key, &runs).await.unwrap(), 1, "{fault:?}");
        // The background goes on with the settlement; until then the claim stands.
        until("the value to be kept", async || {
            let label = |info: &RecordInfo| info.note.label() == Some(key.as_str());
            let found = records(&store).await.into_iter().find(label).unwrap();
            matches!(found.status, RecordStatus::Completed { .. })
        })
        .await;
        assert_eq!(call(&locks, &key, &runs).await.unwrap(), 1);
        assert_eq!(runs.get(), 1, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_value_that_can_not_be_kept_in_time_is_no_success() {
    let (store, locks) = store();
    let runs = Cell::new(0);
    let call = locks.idempotent("late").lease(ms(1_000));
    // The claim is lost while the work runs, and nobody can say what became of it.
    store.always(Call::RenewClaims, Fault::LoseRequest);
    store.always(Call::Settle, Fault::LoseRequest);
    let value = call.run(async {
        runs.set(1);
        tokio::time::sleep(ms(5_000)).await;
        Ok::<u8, LockError>(1)
    });
    assert_kind(value.await, ErrorKind::Superseded);
    store.heal();
    let again = locks.idempotent("late").run(async { Ok::<u8, LockError>(2) }).await;
    assert_kind(again, ErrorKind::OutcomeUnknown);
}

#[tokio::test(start_paused = true)]
async fn a_claim_lives_over_failed_renewals() {
    let (store, locks) = store();
    let runs = Cell::new(0);
    let long = locks.idempotent("long").lease(ms(9_000)).run(async {
        for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Hang] {
            store.next(Call::RenewClaims, fault);
            tokio::time::sleep(ms(9_000)).await;
        }
        runs.set(runs.get() + 1);
        Ok::<u8, LockError>(runs.get())
    });
    assert_eq!(long.await.unwrap(), 1);
    assert_eq!(call(&locks, "long", &runs).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_whose_claim_failed_is_given_back() {
    let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "here"), Clock::Tokio);
    let locks = testkit::paused_on(store.clone(), LockManager::builder().quota(Quota::new().keys(1)));
    let runs = Cell::new(0);
    // A place is asked for again with the same record.
    store.next(Call::Reserve, Fault::LoseReply);
    store.next(Call::Claim, Fault::Refuse(BackendErrorKind::OutOfMemory));
    assert_kind(call(&locks, "first", &runs).await, ErrorKind::OutOfMemory);
    until("the place to be given back", async || call(&locks, "second", &runs).await.is_ok()).await;
    assert_kind(call(&locks, "third", &runs).await, ErrorKind::QuotaExceeded);
    store.always(Call::Reserve, Fault::Hang);
    assert_kind(call(&locks, "second", &runs).await, ErrorKind::Connection);
    assert_eq!(runs.get(), 1);
}
