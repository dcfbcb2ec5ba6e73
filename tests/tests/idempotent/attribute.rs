//! `#[idempotent]`: what it expands to.
//!
//! The lints stand here on purpose: whatever clippy has to say about the expansion breaks this build.
#![deny(warnings, clippy::all, clippy::pedantic, clippy::nursery)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use distlock::{LockError, LockManager, idempotent};
use serde::{Deserialize, Serialize};

use crate::{Store, Work, on_every_store};

on_every_store!(
    a_function_runs_once_for_each_key,
    all_arguments_count_unless_told_otherwise,
    errors_are_unknown_released_or_stored,
    a_busy_key_is_answered_as_told,
    methods_patterns_and_generics_work,
    an_async_trait_method_runs_once,
    the_body_has_its_claim,
);

/// An application's error that takes a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum AppError {
    Declined(usize),
    Refused(String),
}

impl From<LockError> for AppError {
    fn from(error: LockError) -> Self {
        Self::Refused(error.code().to_owned())
    }
}

fn refused<T>(code: &str) -> Result<T, AppError> {
    Err(AppError::Refused(code.to_owned()))
}

#[idempotent(key = "charge:<id>", retain = "1h", fingerprint = cents, locks = locks)]
async fn charge(locks: &LockManager, work: &Work, id: u64, cents: u64) -> Result<String, AppError> {
    Ok(format!("{id}: {cents} by run {}", work.next()))
}

async fn a_function_runs_once_for_each_key(store: Store) {
    let (locks, other) = (store.manager().await, store.manager().await);
    let work = Work::default();
    for locks in [&locks, &other] {
        assert_eq!(charge(locks, &work, 1, 5).await.unwrap(), "1: 5 by run 1");
    }
    assert_eq!(charge(&other, &work, 2, 5).await.unwrap(), "2: 5 by run 2");
    assert_eq!(charge(&other, &work, 1, 6).await, refused("KEY_REUSED"));
    assert_eq!(work.count(), 2);
}

#[idempotent(key = "all:<id>")]
async fn all(id: &str, limits: HashMap<String, u64>, note: Option<String>) -> Result<usize, AppError> {
    Ok(id.len() + limits.len() + note.map_or(0, |note| note.len()))
}

#[idempotent(key = "named:<id>", fingerprint = ())]
async fn named(id: &str, delivery: usize) -> Result<usize, AppError> {
    let _ = id;
    Ok(delivery)
}

async fn all_arguments_count_unless_told_otherwise(store: Store) {
    let locks = store.manager().await;
    let limits =
        |pairs: &[(&str, u64)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
    locks
        .scope(async {
            assert_eq!(all("a", limits(&[("x", 1), ("y", 2)]), None).await, Ok(3));
            assert_eq!(all("a", limits(&[("y", 2), ("x", 1)]), None).await, Ok(3));
            assert_eq!(all("a", limits(&[("y", 1), ("x", 1)]), None).await, refused("KEY_REUSED"));
            assert_eq!(
                all("a", limits(&[("x", 1), ("y", 2)]), Some(String::new())).await,
                refused("KEY_REUSED")
            );
            assert_eq!((named("k", 1).await, named("k", 2).await), (Ok(1), Ok(1)));
        })
        .await;
}

#[idempotent(key = "unknown:<id>", fingerprint = ())]
async fn unknown(id: u8, work: &Work) -> Result<u8, AppError> {
    if id == 0 { Err(AppError::Declined(work.next())) } else { Ok(id) }
}

#[idempotent(key = "released:<id>", fingerprint = (), on_failure = release)]
async fn released(id: u8, work: &Work) -> Result<u8, AppError> {
    if id == 0 { Err(AppError::Declined(work.next())) } else { Ok(id) }
}

#[idempotent(key = "stored:<id>", fingerprint = (), on_failure = store)]
async fn stored(id: u8, work: &Work) -> Result<u8, AppError> {
    if id == 0 { Err(AppError::Declined(work.next())) } else { Ok(id) }
}

async fn errors_are_unknown_released_or_stored(store: Store) {
    let locks = store.manager().await;
    let declined = |run| Err(AppError::Declined(run));
    locks
        .scope(async {
            let work = Work::default();
            assert_eq!(unknown(0, &work).await, declined(1));
            assert_eq!(unknown(0, &work).await, refused("OUTCOME_UNKNOWN"));
            let work = Work::default();
            assert_eq!(released(0, &work).await, declined(1));
            assert_eq!(released(0, &work).await, declined(2));
            let work = Work::default();
            assert_eq!(stored(0, &work).await, declined(1));
            assert_eq!(stored(0, &work).await, declined(1));
            assert_eq!((stored(1, &work).await, stored(1, &work).await), (Ok(1), Ok(1)));
        })
        .await;
}

#[idempotent(key = "slow", fingerprint = (), on_busy = skip)]
async fn slow(work: &Work) -> Result<usize, AppError> {
    Ok(work.gated().await)
}

#[idempotent(key = "slow", fingerprint = (), on_busy = Ok(77), on_error = |error| refused(error.code()))]
async fn slow_with_a_value(work: &Work) -> Result<usize, AppError> {
    Ok(work.gated().await)
}

#[idempotent(key = "slow", fingerprint = 1, wait = "20s")]
async fn slow_of_another(work: &Work) -> Result<usize, AppError> {
    Ok(work.gated().await)
}

#[idempotent(key = "slow", fingerprint = (), wait = Duration::from_millis(20), lease = "5s", on_cancel = unknown)]
async fn slow_and_waited_for(work: &Work) -> Result<usize, AppError> {
    Ok(work.gated().await)
}

async fn a_busy_key_is_answered_as_told(store: Store) {
    let locks = store.manager().await;
    let work = Work::default();
    let first = tokio::spawn({
        let work = work.clone();
        locks.inherit(async move { slow(&work).await })
    });
    work.reached(1).await;
    locks
        .scope(async {
            assert_eq!(slow(&work).await, Ok(0));
            assert_eq!(slow_with_a_value(&work).await, Ok(77));
            assert_eq!(slow_and_waited_for(&work).await, refused("IN_FLIGHT"));
            assert_eq!(slow_of_another(&work).await, refused("KEY_REUSED"));
        })
        .await;
    work.go.notify_one();
    assert_eq!(first.await.unwrap(), Ok(1));
    assert_eq!(locks.scope(slow(&work)).await, Ok(1));
}

struct Service {
    locks: Arc<LockManager>,
    tenant: &'static str,
    work: Work,
}

#[derive(Serialize)]
struct Order {
    id: u64,
    lines: Vec<String>,
}

impl Service {
    #[idempotent(key = "<self.tenant>/order:<order.id>", locks = self.locks)]
    async fn place(&self, order: Order) -> Result<(usize, usize), AppError> {
        Ok((order.lines.len(), self.work.next()))
    }

    #[idempotent(key = "<self.tenant>/opened:<id>", locks = self.locks, after_crash = reject)]
    async fn open(&self, Order { id, .. }: Order, (a, b): (u8, u8), _unused: u8) -> Result<u64, AppError> {
        Ok(id + u64::from(a) + u64::from(b))
    }
}

#[idempotent(key = "generic:<id>", result_limit = 1 << 10)]
async fn generic<T>(id: T, mut more: Vec<T>) -> Result<usize, AppError>
where
    T: std::fmt::Display + Serialize + Send,
{
    more.clear();
    Ok(id.to_string().len() + more.len())
}

async fn methods_patterns_and_generics_work(store: Store) {
    let locks = Arc::new(store.manager().await);
    let service = |tenant| Service { locks: locks.clone(), tenant, work: Work::default() };
    let order = |id| Order { id, lines: vec!["tea".to_owned()] };
    let (one, other) = (service("one"), service("other"));
    assert_eq!(one.place(order(1)).await, Ok((1, 1)));
    assert_eq!(one.place(order(1)).await, Ok((1, 1)));
    assert_eq!(one.place(Order { id: 1, lines: vec![] }).await, refused("KEY_REUSED"));
    assert_eq!(other.place(order(1)).await, Ok((1, 1)));
    assert_eq!(one.open(order(1), (2, 3), 0).await, Ok(6));
    assert_eq!(one.open(order(1), (2, 4), 0).await, refused("KEY_REUSED"));
    assert_eq!(one.open(order(1), (2, 3), 1).await, refused("KEY_REUSED"));
    let call = locks.scope(async { (generic("id", vec!["x"]).await, generic("id", vec!["x"]).await) });
    assert_eq!(call.await, (Ok(2), Ok(2)));
}

#[async_trait::async_trait]
trait Ship {
    async fn ship(&self, id: u64, (box_size, _): (u8, u8)) -> Result<usize, AppError>;
}

#[async_trait::async_trait]
impl Ship for Service {
    #[idempotent(key = "ship:<id>", locks = self.locks)]
    async fn ship(&self, id: u64, (box_size, _): (u8, u8)) -> Result<usize, AppError> {
        let _ = box_size;
        Ok(self.work.next())
    }
}

async fn an_async_trait_method_runs_once(store: Store) {
    let locks = Arc::new(store.manager().await);
    let service: Box<dyn Ship + Send + Sync> =
        Box::new(Service { locks, tenant: "one", work: Work::default() });
    assert_eq!(service.ship(1, (1, 1)).await, Ok(1));
    assert_eq!(service.ship(1, (1, 1)).await, Ok(1));
    assert_eq!(service.ship(1, (1, 2)).await, refused("KEY_REUSED"));
}

#[idempotent(key = "fenced", guard = claim, after_crash = takeover)]
async fn fenced() -> Result<(bool, u64), AppError> {
    tokio::task::yield_now().await;
    Ok((claim.is_valid(), claim.fencing_token().get()))
}

async fn the_body_has_its_claim(store: Store) {
    let locks = store.manager().await;
    let (valid, fence) = locks.scope(fenced()).await.unwrap();
    assert!(valid && fence > 0);
}

#[tokio::test]
async fn without_a_manager_a_call_says_what_to_do() {
    let AppError::Refused(code) = fenced().await.unwrap_err() else { panic!("refused") };
    assert_eq!(code, "CONFIG");
}
