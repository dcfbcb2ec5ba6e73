//! Updates under a version: nobody's is lost, and who never gets through is told.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use distlock::optimistic::{self, Update};
use distlock::retry::Retry;
use distlock::{ErrorKind, LockError};
use tokio::time::Instant;

/// A row with a version, and a network in front of it.
#[derive(Default)]
struct Row {
    stored: Mutex<(u64, u64)>,
    writes: AtomicU64,
}

impl Row {
    async fn read(&self) -> (u64, u64) {
        tokio::task::yield_now().await;
        *self.stored.lock().unwrap()
    }

    /// `update … where version = …`, or without the condition: how many rows it has changed.
    async fn write(&self, value: u64, version: Option<u64>) -> u64 {
        tokio::task::yield_now().await;
        let mut stored = self.stored.lock().unwrap();
        if version.is_some_and(|version| version != stored.1) {
            return 0;
        }
        *stored = (value, stored.1 + 1);
        self.writes.fetch_add(1, Ordering::SeqCst);
        1
    }
}

const TASKS: u64 = 20;
const EACH: u64 = 25;

#[tokio::test(start_paused = true)]
async fn no_update_is_lost() {
    let row = Arc::new(Row::default());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let row = row.clone();
        tasks.spawn(async move {
            for _ in 0..EACH {
                optimistic::update(optimistic::RETRY, async || {
                    let (value, version) = row.read().await;
                    Update::of_rows(row.write(value + 1, Some(version)).await, ())
                })
                .await
                .unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(row.read().await, (TASKS * EACH, TASKS * EACH));
}

/// The control: who doesn't compare versions loses updates, so that the test above could have failed.
#[tokio::test(start_paused = true)]
async fn without_versions_updates_are_lost() {
    let row = Arc::new(Row::default());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..TASKS {
        let row = row.clone();
        tasks.spawn(async move {
            for _ in 0..EACH {
                let (value, _) = row.read().await;
                row.write(value + 1, None).await;
            }
        });
    }
    tasks.join_all().await;
    let (value, writes) = row.read().await;
    assert_eq!(writes, TASKS * EACH);
    assert!(value < writes, "{value} of {writes}");
}

#[tokio::test(start_paused = true)]
async fn who_never_gets_through_is_told_within_the_budget() {
    let (start, attempts) = (Instant::now(), Cell::new(0));
    let error = optimistic::update(optimistic::RETRY.budget(Duration::from_secs(1)), async || {
        attempts.set(attempts.get() + 1);
        Ok::<_, LockError>(Update::<()>::Conflict)
    })
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConcurrentModification);
    assert!(error.to_string().contains(&format!("{} attempts", attempts.get())), "{error}");
    assert!(attempts.get() > 10 && start.elapsed() <= Duration::from_secs(1), "{attempts:?}");

    let once =
        optimistic::update(Retry::new().attempts(1), async || Ok::<_, LockError>(Update::<()>::Conflict));
    assert!(once.await.unwrap_err().to_string().contains("1 attempts"));
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_attempt_is_not_repeated() {
    let calls = Cell::new(0);
    let down = || LockError::new(ErrorKind::Connection, "read");
    let error = optimistic::update(optimistic::RETRY, async || {
        calls.set(calls.get() + 1);
        if calls.get() == 1 { Ok(Update::<()>::Conflict) } else { Err(down()) }
    })
    .await
    .unwrap_err();
    assert_eq!((error.kind(), calls.get()), (ErrorKind::Connection, 2));
}

#[test]
fn more_than_one_row_is_a_mistake() {
    assert_eq!(Update::of_rows(1, 7).unwrap(), Update::Written(7));
    assert_eq!(Update::of_rows(0, 7).unwrap(), Update::Conflict);
    assert_eq!(Update::of_rows(2, 7).unwrap_err().kind(), ErrorKind::Config);
}
