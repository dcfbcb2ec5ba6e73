//! The recipe for users' own tests, as the testkit's documentation gives it: the attribute on a store in memory, with paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use distlock::{ErrorKind, LockError, LockManager, distributed_lock, testkit};
use distlock_runtime::{
    Clock,
    backend::memory::MemoryBackend,
    testkit::{Call, Fault, Faulty},
};
use tokio::time::{Instant, advance, sleep};

/// The code under test.
#[derive(Clone, Default)]
struct Reports {
    written: Arc<AtomicUsize>,
}

impl Reports {
    #[distributed_lock(key = "report:<day>", ttl = "30s", wait = "1h")]
    async fn write(&self, day: u32) -> Result<(), LockError> {
        sleep(Duration::from_secs(600)).await;
        self.written.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn count(&self) -> usize {
        self.written.load(Ordering::SeqCst)
    }
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_of_work_take_turns_in_no_time() {
    let (locks, reports, start) = (testkit::memory_paused(), Reports::default(), Instant::now());
    let (one, two, other) =
        locks.scope(async { tokio::join!(reports.write(1), reports.write(1), reports.write(2)) }).await;
    for outcome in [one, two, other] {
        outcome.unwrap();
    }
    assert_eq!(reports.count(), 3);
    let took = start.elapsed().as_secs();
    assert!((1_200..1_210).contains(&took), "two after each other, the third beside them: {took} s");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_stops_the_work() {
    let (locks, reports) = (testkit::memory_paused(), Reports::default());
    let taken = async {
        sleep(Duration::from_secs(300)).await;
        locks.force_release("report:1", "the test").await.unwrap().expect("it is held");
    };
    let (outcome, ()) = tokio::join!(locks.scope(reports.write(1)), taken);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(reports.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_does_not_go_on() {
    let (locks, reports) = (testkit::memory_paused(), Reports::default());
    let work = {
        let (locks, reports) = (locks.clone(), reports.clone());
        tokio::spawn(async move { locks.scope(reports.write(1)).await })
    };
    sleep(Duration::from_secs(300)).await;
    advance(Duration::from_secs(400)).await;
    assert_eq!(work.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(reports.count(), 0, "though its ten minutes are over");
}

/// Two processes are two managers on one named store; a store in trouble is one that fails by script.
#[tokio::test(start_paused = true)]
async fn a_store_in_trouble_stops_one_process_and_not_the_other() {
    let open = |label: &str| {
        let store = Faulty::new(MemoryBackend::named("recipe", Clock::Tokio, label), Clock::Tokio);
        (store.clone(), testkit::paused(store))
    };
    let ((store, one), (_, two)): ((_, LockManager), (_, LockManager)) = (open("one"), open("two"));
    let reports = Reports::default();
    let first = tokio::spawn({
        let reports = reports.clone();
        async move { one.scope(reports.write(1)).await }
    });
    sleep(Duration::from_secs(60)).await;
    store.always(Call::Renew, Fault::LoseRequest);
    two.scope(reports.write(1)).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(reports.count(), 1);
}
