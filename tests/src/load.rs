//! Work that goes on while servers fail over: tasks that take a lock again and again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use distlock::{ErrorKind, LockManager};

const SECOND: Duration = Duration::from_secs(1);

/// Takes a lock again and again, its token growing each time, until it is told to stop; counts what was `done`.
///
/// # Panics
/// When a token doesn't grow, or an outage is told as another error than one.
pub async fn work(locks: LockManager, key: String, done: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    let mut last = None;
    while !stop.load(Ordering::Acquire) {
        match locks.mutex(key.as_str()).ttl(3 * SECOND).wait(5 * SECOND).lock().await {
            Ok(guard) => {
                let token = guard.fencing_token();
                assert!(Some(token) > last, "{token} after {last:?}");
                last = Some(token);
                // A little work, so that the machine has time for others.
                tokio::time::sleep(Duration::from_millis(5)).await;
                done.fetch_add(1, Ordering::AcqRel);
            }
            Err(error) => assert!(
                matches!(error.kind(), ErrorKind::Connection | ErrorKind::Timeout),
                "an outage has another error: {error}"
            ),
        }
    }
}
