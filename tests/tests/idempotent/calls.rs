//! What a call does when all goes well.

use std::time::Duration;

use distlock::records::{CrashPolicy, OnFailure};
use distlock::{ErrorKind, LockError};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{Store, Work, on_every_store};

on_every_store!(
    the_second_call_gets_the_first_ones_value,
    of_many_calls_at_once_one_runs,
    a_call_in_flight_is_waited_for_and_then_refused,
    the_key_with_other_arguments_is_refused_in_flight_too,
    a_value_outlives_its_call_for_the_retention_and_no_longer,
    the_work_knows_its_claim,
    a_claim_lives_for_as_long_as_its_work,
    locks_and_calls_of_one_name_do_not_meet,
);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    run: usize,
    note: Option<String>,
}

async fn the_second_call_gets_the_first_ones_value(store: Store) {
    let work = Work::default();
    // A memory store lives as long as one of its managers.
    let _first = store.manager().await;
    for _ in 0..3 {
        // Another process each time.
        let locks = store.manager().await;
        let receipt = locks
            .idempotent("payment:42")
            .run(async {
                Ok::<_, LockError>(Receipt { run: work.next(), note: Some("é \"quoted\"".into()) })
            })
            .await
            .unwrap();
        assert_eq!(receipt, Receipt { run: 1, note: Some("é \"quoted\"".into()) });
        let other: usize = locks.idempotent("payment:43").run(async { Ok::<_, LockError>(7) }).await.unwrap();
        assert_eq!(other, 7);
    }
    assert_eq!(work.count(), 1);
}

async fn of_many_calls_at_once_one_runs(store: Store) {
    let managers = [store.manager().await, store.manager().await];
    for round in 0..5 {
        let work = Work::default();
        let mut calls = JoinSet::new();
        for n in 0..40 {
            let (locks, work) = (managers[n % 2].clone(), work.clone());
            calls.spawn(async move {
                locks
                    .idempotent(format!("storm:{round}"))
                    .run(async {
                        let run = work.next();
                        tokio::task::yield_now().await;
                        Ok::<_, LockError>(run)
                    })
                    .await
            });
        }
        for value in calls.join_all().await {
            assert_eq!(value.unwrap(), 1);
        }
        assert_eq!(work.count(), 1);
    }
}

async fn a_call_in_flight_is_waited_for_and_then_refused(store: Store) {
    let (locks, other) = (store.manager().await, store.manager().await);
    let work = Work::default();
    let first = tokio::spawn({
        let work = work.clone();
        async move { locks.idempotent("slow").run(async { Ok::<_, LockError>(work.gated().await) }).await }
    });
    work.reached(1).await;
    let refused = other.idempotent("slow").wait(Duration::ZERO).run(async { Ok(work.next()) }).await;
    let error: LockError = refused.unwrap_err();
    assert_eq!(error.code(), "IN_FLIGHT");
    assert!(error.is_busy() && error.is_retryable() && error.is_before_work());
    assert!(error.to_string().contains("slow"), "{error}");
    let bounded = other.idempotent("slow").wait(Duration::from_millis(50)).run(async { Ok(work.next()) });
    let error: LockError = bounded.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InFlight);
    let waiting =
        tokio::spawn(async move { other.idempotent("slow").run(async { Ok::<_, LockError>(0) }).await });
    work.go.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
}

async fn the_key_with_other_arguments_is_refused_in_flight_too(store: Store) {
    let locks = store.manager().await;
    let work = Work::default();
    let first = tokio::spawn({
        let (locks, work) = (locks.clone(), work.clone());
        async move {
            let call = locks.idempotent("transfer").fingerprint(&("alice", 10));
            call.run(async { Ok::<_, LockError>(work.gated().await) }).await
        }
    });
    work.reached(1).await;
    let with = |amount: i32| {
        let call = locks.idempotent("transfer").fingerprint(&("alice", amount));
        call.run(async { Ok::<_, LockError>(0) })
    };
    assert_eq!(with(11).await.unwrap_err().kind(), ErrorKind::KeyReused);
    work.go.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(with(11).await.unwrap_err().kind(), ErrorKind::KeyReused);
    assert_eq!(with(10).await.unwrap(), 1);
}

async fn a_value_outlives_its_call_for_the_retention_and_no_longer(store: Store) {
    let locks = store.manager().await;
    let work = Work::default();
    let call = || {
        let call = locks.idempotent("brief").retain(Duration::from_secs(1));
        call.run(async { Ok::<_, LockError>(work.next()) })
    };
    assert_eq!((call().await.unwrap(), call().await.unwrap()), (1, 1));
    distlock_tests::wait::until("the record to be forgotten", crate::LIMIT, async || {
        (call().await.unwrap() == 2).then_some(())
    })
    .await
    .unwrap();
    let short = locks.idempotent("brief").retain(Duration::from_millis(999));
    let error: LockError = short.run(async { Ok(0) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

async fn the_work_knows_its_claim(store: Store) {
    let locks = store.manager().await;
    let mut last = 0;
    for _ in 0..3 {
        let call = locks.idempotent("fenced").on_failure(OnFailure::Release);
        let seen = std::cell::Cell::new((false, 0));
        let failed = call.run_with(|claim| async {
            seen.set((claim.is_valid(), claim.fencing_token().get()));
            drop(claim);
            Err::<(), _>(LockError::new(ErrorKind::Busy, "a test's own"))
        });
        failed.await.unwrap_err();
        let (valid, fence) = seen.get();
        assert!(valid && fence > last, "{fence} after {last}");
        last = fence;
    }
}

async fn a_claim_lives_for_as_long_as_its_work(store: Store) {
    let (locks, other) = (store.manager().await, store.manager().await);
    let work = Work::default();
    let first = tokio::spawn({
        let work = work.clone();
        async move {
            let call = locks.idempotent("long").lease(Duration::from_millis(200));
            call.run(async { Ok::<_, LockError>(work.gated().await) }).await
        }
    });
    work.reached(1).await;
    // Longer than several leases.
    let call = other.idempotent("long").after_crash(CrashPolicy::Takeover).wait(Duration::from_secs(1));
    let error: LockError = call.run(async { Ok(work.next()) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InFlight);
    work.go.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), 1);
}

async fn locks_and_calls_of_one_name_do_not_meet(store: Store) {
    let locks = store.manager().await;
    let guard = locks.mutex("both").lock().await.unwrap();
    let value: u8 = locks.idempotent("both").run(async { Ok::<_, LockError>(1) }).await.unwrap();
    assert_eq!(value, 1);
    guard.release().await.unwrap();
}
