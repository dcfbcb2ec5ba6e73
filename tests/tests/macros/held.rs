//! `assert_held!` and `check_held`: inside, outside and after the loss of a hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use distlock::testkit::memory_paused;
use distlock::{ErrorKind, LockError, LockKey, assert_held, check_held, distributed_lock};

use crate::memory;

struct Order {
    id: u64,
}

impl Order {
    fn relies_on_the_lock(&self) {
        assert_held!("order:<self.id>");
    }
}

/// Whether it panics, and with what text.
fn panics(code: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(code)).err()?;
    Some(*panic.downcast::<String>().expect("a formatted message"))
}

#[distributed_lock(key = "order:<id>")]
async fn ship(id: u64, other: u64) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    assert_held!("order:<id>");
    Order { id }.relies_on_the_lock();
    check_held(format!("order:{id}"))?;
    let error = check_held(format!("order:{other}")).expect_err("another order");
    assert_eq!(error.kind(), ErrorKind::NotHeld);
    let text = panics(|| assert_held!("order:<other>")).expect("another order");
    assert_eq!(text, error.to_string());
    assert!(text.contains(&format!("order:{other}")), "{text}");
    tokio::spawn(async move { panics(|| assert_held!("order:<id>")) })
        .await
        .expect("caught")
        .expect("a task of its own isn't under the lock");
    Ok(())
}

#[tokio::test]
async fn inside_is_held_and_outside_is_not() {
    let locks = memory().await;
    assert!(panics(|| Order { id: 1 }.relies_on_the_lock()).is_some());
    locks.scope(ship(1, 2)).await.expect("free");
    assert!(panics(|| Order { id: 1 }.relies_on_the_lock()).is_some());
}

#[tokio::test]
async fn a_guard_alone_is_no_scope() {
    let locks = memory().await;
    let key = LockKey::raw("legacy").expect("a short name");
    let guard = locks.mutex(&key).lock().await.expect("free");
    assert!(panics(|| assert_held!(&key)).is_some());
    let inside = guard.run(async { panics(|| assert_held!(&key)) });
    assert_eq!(inside.await.expect("held"), None);
    let same_text = guard.run(async { panics(|| assert_held!("legacy")) });
    assert!(same_text.await.expect("held").is_some(), "in the namespace, so another key");
}

#[distributed_lock(key = "catalog", read)]
async fn look_up() -> Result<(), LockError> {
    assert_held!("catalog");
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4)]
async fn compute() -> Result<(), LockError> {
    assert_held!("gpu");
    Ok(())
}

#[distributed_lock(keys = ["account:<from>", "account:<to>"])]
async fn transfer(from: u64, to: u64) -> Result<(), LockError> {
    assert_held!("account:<from>");
    assert_held!("account:<to>");
    look_up().await?;
    compute().await
}

#[tokio::test]
async fn every_kind_is_a_hold() {
    memory().await.scope(transfer(1, 2)).await.expect("free");
}

#[distributed_lock(key = "order:<id>", ttl = "1s", max_hold = "5s", on_lost = signal, guard = hold)]
async fn outlives_its_lock(id: u64) -> Result<Option<String>, LockError> {
    assert_held!("order:<id>");
    hold.lost().await;
    Ok(panics(|| assert_held!("order:<id>")))
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_counts_no_more() {
    let locks = memory_paused();
    let text = tokio::time::timeout(Duration::from_mins(1), locks.scope(outlives_its_lock(1))).await;
    assert!(text.expect("max_hold ends it").expect("runs on").is_some());
}

#[test]
fn a_value_that_renders_to_nothing_is_no_key() {
    let name = String::new();
    let text = panics(|| assert_held!("order:<name>")).expect("no key");
    assert!(text.contains("empty"), "{text}");
}
