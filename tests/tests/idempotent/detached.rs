//! Work in a task of its own: a caller that goes away doesn't stop it.

use std::sync::Arc;
use std::time::Duration;

use distlock::{ErrorKind, LockError, LockManager, idempotent};
use distlock_tests::wait;
use tokio::task::JoinHandle;

use crate::{LIMIT, Store, Work, on_every_store};

on_every_store!(
    a_dropped_caller_loses_the_outcome_unless_its_call_is_detached,
    the_attribute_detaches_too,
    a_caller_that_goes_while_it_waits_leaves_nothing,
    values_errors_and_panics_reach_a_caller_that_stays,
    detached_work_has_its_callers_scope_and_its_claim,
    executions_are_waited_for_and_renewed_meanwhile,
);

/// The call goes away once its work runs.
async fn gone(call: JoinHandle<Result<usize, LockError>>, work: &Work) {
    work.reached(1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}

/// What the next one gets who asks for a key.
async fn next(locks: &LockManager, key: &'static str) -> Result<usize, &'static str> {
    let call = locks.idempotent(key).wait(LIMIT);
    call.run(async { Ok::<usize, LockError>(99) }).await.map_err(|error| error.code())
}

async fn a_dropped_caller_loses_the_outcome_unless_its_call_is_detached(store: Store) {
    let (locks, other) = (store.manager().await, store.manager().await);
    let work = Work::default();
    let attached = tokio::spawn({
        let (locks, work) = (locks.clone(), work.clone());
        async move { locks.idempotent("attached").run(async { Ok(work.gated().await) }).await }
    });
    gone(attached, &work).await;
    assert_eq!(next(&other, "attached").await, Err("OUTCOME_UNKNOWN"));

    let work = Work::default();
    let detached = tokio::spawn({
        let (locks, work) = (locks.clone(), work.clone());
        async move { locks.idempotent("detached").detach().run(async move { Ok(work.gated().await) }).await }
    });
    gone(detached, &work).await;
    assert_eq!(locks.executions().running(), 1);
    work.go.notify_one();
    assert_eq!(next(&other, "detached").await, Ok(1), "its own value, not the next one's");
    assert_eq!(locks.executions().drain(LIMIT).await, 0);
    assert_eq!((work.count(), locks.held()), (1, 0));
}

struct Service {
    locks: LockManager,
    work: Work,
}

impl Service {
    #[idempotent(key = "kept:<id>", locks = self.locks, detach)]
    async fn detached(self: Arc<Self>, id: u64) -> Result<usize, LockError> {
        let _ = id;
        Ok(self.work.gated().await)
    }

    #[idempotent(key = "lost:<id>", locks = self.locks)]
    async fn attached(&self, id: u64) -> Result<usize, LockError> {
        let _ = id;
        Ok(self.work.gated().await)
    }
}

/// What a closure gives isn't what it borrows.
#[idempotent(key = "by:<id>", fingerprint = (), detach)]
async fn by(id: &'static str, rule: Box<dyn Fn(&str) -> usize + Send>) -> Result<usize, LockError> {
    tokio::task::yield_now().await;
    Ok(rule(id))
}

async fn the_attribute_detaches_too(store: Store) {
    let locks = store.manager().await;
    let service = || Arc::new(Service { locks: locks.clone(), work: Work::default() });
    let one = service();
    gone(tokio::spawn(one.clone().detached(1)), &one.work).await;
    one.work.go.notify_one();
    let again = service();
    assert_eq!(again.clone().detached(1).await.unwrap(), 1);
    assert_eq!((one.work.count(), again.work.count()), (1, 0));

    let other = service();
    let call = tokio::spawn({
        let other = other.clone();
        async move { other.attached(1).await }
    });
    gone(call, &other.work).await;
    assert_eq!(service().attached(1).await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);

    assert_eq!(locks.scope(by("four", Box::new(str::len))).await.unwrap(), 4);
}

async fn a_caller_that_goes_while_it_waits_leaves_nothing(store: Store) {
    let locks = store.manager().await;
    let (first, second) = (Work::default(), Work::default());
    let spawn = |work: &Work| {
        let (locks, work) = (locks.clone(), work.clone());
        tokio::spawn(async move {
            let call = locks.idempotent("waited").on_failure(distlock::records::OnFailure::Release).detach();
            call.run(async move {
                work.gated().await;
                Err::<usize, _>(LockError::new(ErrorKind::Busy, "the test"))
            })
            .await
        })
    };
    let running = spawn(&first);
    first.reached(1).await;
    let waiting = spawn(&second);
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    first.go.notify_one();
    assert!(running.await.unwrap().unwrap_err().is_busy());
    assert_eq!(next(&locks, "waited").await, Ok(99), "the key is free again, and nobody else took it");
    assert_eq!((second.count(), locks.executions().running()), (0, 0));
}

async fn values_errors_and_panics_reach_a_caller_that_stays(store: Store) {
    let locks = store.manager().await;
    let call = |key: &'static str| locks.idempotent(key).detach();
    for _ in 0..2 {
        assert_eq!(call("value").run(async { Ok::<_, LockError>(7) }).await.unwrap(), 7);
    }
    let busy = || async { Err::<u8, _>(LockError::new(ErrorKind::Busy, "the test")) };
    assert!(call("error").run(busy()).await.unwrap_err().is_busy());
    assert_eq!(call("error").run(busy()).await.unwrap_err().kind(), ErrorKind::OutcomeUnknown);

    let panics = locks.idempotent("panic").detach().run(bang());
    assert!(tokio::spawn(panics).await.unwrap_err().is_panic());
    assert_eq!(next(&locks, "panic").await, Err("OUTCOME_UNKNOWN"));
    assert_eq!((locks.executions().running(), locks.held()), (0, 0));
}

async fn bang() -> Result<usize, LockError> {
    panic!("a test's own")
}

#[idempotent(key = "inner")]
async fn inner() -> Result<usize, LockError> {
    Ok(5)
}

async fn detached_work_has_its_callers_scope_and_its_claim(store: Store) {
    let (locks, inherited) = (store.manager().await, store.manager().await);
    let outer = inherited.mutex("outer").reentrant().lock().await.unwrap();
    let call = locks.idempotent("scoped").detach().run_with({
        let inherited = inherited.clone();
        move |claim| async move {
            let fence = claim.fencing_token().get();
            // The same lock again, and a function that asks for no manager.
            inherited.mutex("outer").reentrant().try_lock().await?.release().await?;
            Ok::<_, LockError>((claim.is_valid(), fence > 0, inner().await?))
        }
    });
    let under = inherited.scope(async { outer.scope(call).await });
    assert_eq!(under.await.unwrap(), (true, true, 5));
    assert_eq!(inherited.scope(inner()).await.unwrap(), 5);
    outer.release().await.unwrap();
}

/// A shutdown waits for the executions first: they are renewed until their end.
async fn executions_are_waited_for_and_renewed_meanwhile(store: Store) {
    let (locks, other) = (store.manager().await, store.manager().await);
    let work = Work::default();
    let lease = Duration::from_millis(300);
    let call = tokio::spawn({
        let (locks, work) = (locks.clone(), work.clone());
        async move {
            let call = locks.idempotent("slow").lease(lease).detach();
            call.run(async move { Ok(work.gated().await) }).await
        }
    });
    gone(call, &work).await;
    let executions = locks.executions();
    assert_eq!(executions.drain(lease * 3).await, 1, "longer than its lease");
    let busy = other.idempotent("slow").wait(Duration::ZERO).run(async { Ok::<usize, LockError>(99) });
    assert_eq!(busy.await.unwrap_err().kind(), ErrorKind::InFlight);
    work.go.notify_one();
    assert_eq!(executions.drain(LIMIT).await, 0);
    assert!(locks.shutdown(LIMIT).await.is_clean());
    assert_eq!(next(&other, "slow").await, Ok(1));
}

/// A runtime that ends under detached work leaves what `on_cancel` says, and at once.
#[test]
fn a_runtime_that_goes_away_leaves_an_unknown_outcome() {
    let store = Store::memory();
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let locks = second.block_on(store.manager());
    let work = Work::default();
    let call = locks.idempotent("gone").detach().run({
        let work = work.clone();
        async move { Ok::<_, LockError>(work.gated().await) }
    });
    let call = first.spawn(call);
    second.block_on(work.reached(1));
    first.shutdown_timeout(LIMIT);
    assert!(second.block_on(call).unwrap_err().is_cancelled());
    let seen = second.block_on(wait::until("the record to be settled", LIMIT, async || {
        let call = locks.idempotent("gone").wait(Duration::ZERO);
        let seen = call.run(async { Ok::<usize, LockError>(99) }).await.map_err(|error| error.kind());
        (seen != Err(ErrorKind::InFlight)).then_some(seen)
    }));
    assert_eq!(seen.unwrap(), Err(ErrorKind::OutcomeUnknown));
}
