//! The metrics of a lock's life: counted right, labelled by template, never by a rendered key.

use std::{collections::BTreeMap, time::Duration};

use distlock_runtime::{
    Clock, ErrorKind, LockManager, OwnerToken,
    backend::{Backend, memory::MemoryBackend},
    telemetry,
    testkit::{self, Call, Fault, Faulty},
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What was recorded while `life` ran on its own thread: name and labels, and the count or number of samples.
fn recorded(life: impl AsyncFnOnce()) -> BTreeMap<String, f64> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        telemetry::describe();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(life());
    });
    let entries = snapshotter.snapshot().into_vec().into_iter().map(|(key, unit, description, value)| {
        let (name, labels) = key.key().clone().into_parts();
        let labels: Vec<String> =
            labels.iter().map(|label| format!("{}={}", label.key(), label.value())).collect();
        assert!(description.is_some(), "{name:?} has no help text");
        assert!(!name.as_str().ends_with("_seconds") || unit.is_some(), "{name:?} has no unit");
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(samples) => samples.len() as f64,
        };
        (format!("{} {}", name.as_str(), labels.join(" ")), value)
    });
    entries.collect()
}

async fn a_life(locks: &LockManager, store: &Faulty, id: usize) {
    let key = format!("order:{id}");
    let mutex = || locks.mutex(key.as_str()).template("order:<id>").ttl(secs(9));
    // Held over some renewals, one of which fails; entered again, tried and waited for by others.
    let guard = mutex().lock().await.unwrap();
    store.next(Call::Renew, Fault::LoseRequest);
    tokio::time::sleep(secs(20)).await;
    drop(guard.scope(mutex().reentrant().lock()).await.unwrap());
    assert_eq!(mutex().try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(mutex().wait(secs(1)).lock().await.unwrap_err().kind(), ErrorKind::Timeout);
    drop(guard);
    // Taken away.
    let guard = mutex().lock().await.unwrap();
    locks.force_release(key.as_str(), "test").await.unwrap();
    drop(guard);
    // Not renewed in time.
    let guard = mutex().lock().await.unwrap();
    store.always(Call::Renew, Fault::LoseRequest);
    guard.lost().await;
    store.heal();
    drop(guard);
    // Without a template.
    drop(locks.mutex(OwnerToken::random().unwrap().to_hex()).lock().await.unwrap());
}

async fn lives(count: usize) {
    let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "here"), Clock::Tokio);
    assert_eq!(store.name(), "memory");
    let locks = testkit::paused_on(store.clone(), LockManager::builder());
    for id in 0..count {
        a_life(&locks, &store, 471_100 + id).await;
    }
}

#[test]
fn outcomes_waits_holds_renewals_and_losses_are_counted() {
    let found = recorded(async || lives(1).await);
    let is = |series: &str, value: f64| {
        assert_eq!(found.get(series), Some(&value), "{series} in {found:#?}");
    };
    for (outcome, count) in [("granted", 3.0), ("reentered", 1.0), ("BUSY", 1.0), ("LOCK_TIMEOUT", 1.0)] {
        is(&format!("distlock_acquires_total lock=order:<id> outcome={outcome}"), count);
        is(&format!("distlock_wait_seconds lock=order:<id> outcome={outcome}"), count);
    }
    is("distlock_acquires_total lock=- outcome=granted", 1.0);
    is("distlock_hold_seconds lock=order:<id>", 3.0);
    is("distlock_hold_seconds lock=-", 1.0);
    is("distlock_queue_depth lock=order:<id>", 1.0);
    is("distlock_lost_total lock=order:<id> reason=gone", 1.0);
    is("distlock_lost_total lock=order:<id> reason=expired", 1.0);
    let at_least = |series: &str, least: f64| {
        let value = found.get(series).copied().unwrap_or_default();
        assert!(value >= least, "{series} is {value}");
    };
    at_least("distlock_renewals_total store=memory outcome=renewed", 6.0);
    at_least("distlock_renewals_total store=memory outcome=unknown", 3.0);
    at_least("distlock_renewal_lag_seconds store=memory", 6.0);
    assert!(found.contains_key("distlock_held store=memory"));
}

/// However many keys there are, there are no more series, and no label shows one.
#[test]
fn series_are_bounded_by_the_code_and_not_by_the_keys() {
    let (one, many) = (recorded(async || lives(1).await), recorded(async || lives(40).await));
    assert!(one.keys().eq(many.keys()), "{:#?}", many.keys());
    assert!(many.keys().all(|series| !series.contains("4711")), "{many:#?}");
    assert!(one.len() > 15, "{one:#?}");
}
