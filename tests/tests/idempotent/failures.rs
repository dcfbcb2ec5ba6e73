//! Work that fails, panics, is dropped, dies or comes late.

use std::time::Duration;

use distlock::records::{CrashPolicy, OnCancel, OnFailure};
use distlock::{ErrorKind, LockError, LockManager};
use distlock_tests::wait;
use serde::{Deserialize, Serialize};

use crate::{LIMIT, Store, Work, on_every_store};

on_every_store!(
    an_error_leaves_the_outcome_unknown_unless_told_otherwise,
    an_error_that_is_kept_is_given_again,
    a_panic_leaves_the_outcome_unknown_and_goes_on,
    a_dropped_call_leaves_the_outcome_unknown_unless_told_otherwise,
    a_call_dropped_while_it_waits_leaves_nothing,
    a_dead_execution_is_refused_or_taken_over,
    a_late_execution_gets_its_successors_value,
    what_is_too_large_or_not_encodable_is_returned_and_not_run_again,
    a_value_of_another_type_is_unreadable_and_not_run_again,
);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Refused {
    Card(String),
    Lock(String),
}

impl From<LockError> for Refused {
    fn from(error: LockError) -> Self {
        Self::Lock(error.code().to_owned())
    }
}

fn declined(work: &Work) -> Result<u8, Refused> {
    Err(Refused::Card(format!("declined {}", work.next())))
}

fn first() -> Refused {
    Refused::Card("declined 1".into())
}

async fn an_error_leaves_the_outcome_unknown_unless_told_otherwise(store: Store) {
    let locks = store.manager().await;
    let work = Work::default();
    let call = |key: &str| locks.idempotent(key.to_owned());
    assert_eq!(call("strict").run(async { declined(&work) }).await, Err(first()));
    let again = call("strict").run(async { declined(&work) }).await;
    assert_eq!(again, Err(Refused::Lock("OUTCOME_UNKNOWN".into())));
    assert_eq!(work.count(), 1);

    let work = Work::default();
    let released = || call("loose").on_failure(OnFailure::Release);
    assert_eq!(released().run(async { declined(&work) }).await, Err(first()));
    assert_eq!(released().run(async { Ok::<u8, Refused>(7) }).await, Ok(7));
    assert_eq!(released().run(async { declined(&work) }).await, Ok(7));
    assert_eq!(work.count(), 1);
}

async fn an_error_that_is_kept_is_given_again(store: Store) {
    let locks = store.manager().await;
    let work = Work::default();
    for _ in 0..2 {
        let result = locks.idempotent("kept").run_keeping_errors(async { declined(&work) }).await;
        assert_eq!(result, Err(first()));
    }
    assert_eq!(work.count(), 1);
    // Who doesn't keep errors doesn't take one for a value either.
    let result = locks.idempotent("kept").run(async { declined(&work) }).await;
    assert_eq!(result, Err(Refused::Lock("RECORD_UNREADABLE".into())));
}

async fn a_panic_leaves_the_outcome_unknown_and_goes_on(store: Store) {
    let locks = store.manager().await;
    let call = {
        let locks = locks.clone();
        async move { locks.idempotent("bang").run(async { bang().await }).await }
    };
    assert!(tokio::spawn(call).await.unwrap_err().is_panic());
    let again = locks.idempotent("bang").run(async { Ok::<_, LockError>(1) }).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(locks.held(), 0);
}

async fn bang() -> Result<u8, LockError> {
    panic!("a test's own")
}

async fn code_of(locks: &LockManager, key: &str) -> Result<usize, &'static str> {
    let call = locks.idempotent(key.to_owned()).wait(Duration::ZERO);
    call.run(async { Ok::<usize, LockError>(99) }).await.map_err(|error| error.code())
}

async fn a_dropped_call_leaves_the_outcome_unknown_unless_told_otherwise(store: Store) {
    let locks = store.manager().await;
    for (key, policy, then) in
        [("strict", OnCancel::Unknown, Err("OUTCOME_UNKNOWN")), ("loose", OnCancel::Release, Ok(99))]
    {
        let work = Work::default();
        let call = tokio::spawn({
            let (locks, work) = (locks.clone(), work.clone());
            async move {
                let call = locks.idempotent(key).on_cancel(policy);
                call.run(async { Ok::<_, LockError>(work.gated().await) }).await
            }
        });
        work.reached(1).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        let seen = wait::until("the record to be settled", LIMIT, async || {
            Some(code_of(&locks, key).await).filter(|seen| *seen != Err("IN_FLIGHT"))
        });
        assert_eq!(seen.await.unwrap(), then, "{key}");
    }
    assert_eq!(locks.held(), 0);
}

async fn a_call_dropped_while_it_waits_leaves_nothing(store: Store) {
    let locks = store.manager().await;
    let work = Work::default();
    let spawn = |work: &Work| {
        let (locks, work) = (locks.clone(), work.clone());
        tokio::spawn(async move {
            locks.idempotent("waited").run(async { Ok::<_, LockError>(work.gated().await) }).await
        })
    };
    let first = spawn(&work);
    work.reached(1).await;
    let idle = Work::default();
    let waiting = spawn(&idle);
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    work.go.notify_one();
    assert_eq!(first.await.unwrap().unwrap(), 1);
    assert_eq!(idle.count(), 0);
    assert_eq!(code_of(&locks, "waited").await, Ok(1));
}

/// Leaves an execution behind as a process that died would: claimed, never renewed again.
async fn die(store: &Store, key: &'static str) {
    let locks = store.manager().await;
    let work = Work::default();
    let call = tokio::spawn({
        let (locks, work) = (locks.clone(), work.clone());
        async move {
            let call = locks.idempotent(key).lease(Duration::from_millis(100));
            call.run_with(|claim| async move {
                // Its claim isn't settled, only lost.
                work.next();
                claim.lost().await;
                work.go.notified().await;
                Ok::<usize, LockError>(0)
            })
            .await
        }
    });
    work.reached(1).await;
    // What is left of a manager that shuts down is not renewed.
    locks.shutdown(Duration::ZERO).await;
    std::mem::forget(call);
}

async fn a_dead_execution_is_refused_or_taken_over(store: Store) {
    let locks = store.manager().await;
    die(&store, "reject").await;
    let seen = wait::until("the claim to lapse", LIMIT, async || {
        Some(code_of(&locks, "reject").await).filter(|seen| *seen != Err("IN_FLIGHT"))
    });
    assert_eq!(seen.await.unwrap(), Err("OUTCOME_UNKNOWN"));

    die(&store, "takeover").await;
    let call = locks.idempotent("takeover").after_crash(CrashPolicy::Takeover);
    assert_eq!(call.run(async { Ok::<_, LockError>(2) }).await.unwrap(), 2);
    assert_eq!(code_of(&locks, "takeover").await, Ok(2));
}

async fn a_late_execution_gets_its_successors_value(store: Store) {
    let (locks, other) = (store.manager().await, store.manager().await);
    let work = Work::default();
    let late = tokio::spawn({
        let (locks, work) = (locks.clone(), work.clone());
        async move {
            let call = locks.idempotent("late").lease(Duration::from_millis(100));
            call.run(async { Ok::<_, LockError>(work.gated().await) }).await
        }
    });
    work.reached(1).await;
    locks.shutdown(Duration::ZERO).await;
    let call = other.idempotent("late").after_crash(CrashPolicy::Takeover);
    let heir = call.run(async { Ok::<_, LockError>(work.next()) }).await.unwrap();
    assert_eq!(heir, 2);
    work.go.notify_one();
    assert_eq!(late.await.unwrap().unwrap(), 2, "the successor's value, not its own");
    assert_eq!(code_of(&other, "late").await, Ok(2));
}

async fn what_is_too_large_or_not_encodable_is_returned_and_not_run_again(store: Store) {
    let locks = store.manager().await;
    let large = || locks.idempotent("large").result_limit(10);
    let value = large().run(async { Ok::<_, LockError>("12345678901".to_owned()) }).await.unwrap();
    assert_eq!(value, "12345678901");
    let error = large().run(async { Ok::<_, LockError>(String::new()) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResultNotRetained);
    assert!(error.to_string().contains("result-too-large"), "{error}");

    type Odd = std::collections::HashMap<Vec<u8>, u8>;
    let odd = || async { Ok::<Odd, LockError>(Odd::from([(vec![1], 2)])) };
    assert_eq!(locks.idempotent("odd").run(odd()).await.unwrap().len(), 1);
    let error = locks.idempotent("odd").run(odd()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResultNotRetained);
}

async fn a_value_of_another_type_is_unreadable_and_not_run_again(store: Store) {
    let locks = store.manager().await;
    locks.idempotent("typed").run(async { Ok::<_, LockError>("text".to_owned()) }).await.unwrap();
    let work = Work::default();
    let error = locks.idempotent("typed").run(async { Ok::<_, LockError>(work.next()) }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RecordUnreadable);
    assert!(!error.to_string().contains("text"), "{error}");
    assert_eq!(work.count(), 0);
}
