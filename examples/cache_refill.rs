//! One task refills a cache, the others wait for its result and never stampede: readers share a read/write lock, and who
//! finds the entry missing takes it for writing and looks again.
//!
//! ```sh
//! cargo run --example cache-refill
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example cache-refill
//! cargo run --example cache-refill -- --alone     # without a lock in common: it must notice
//! ```

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use distlock::{LockError, LockManager};
use tokio::task::JoinSet;

#[derive(Default)]
struct Cache {
    entry: Mutex<Option<String>>,
    refills: AtomicU32,
}

impl Cache {
    fn look(&self) -> Option<String> {
        self.entry.lock().expect("nobody panics with it").clone()
    }

    /// Slow and expensive: the reason for all this.
    async fn refill(&self) -> String {
        let count = self.refills.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let entry = format!("prices, computed {count} times");
        *self.entry.lock().expect("nobody panics with it") = Some(entry.clone());
        entry
    }
}

async fn prices(locks: &LockManager, cache: &Cache) -> Result<(String, bool), LockError> {
    let lock = locks.rw_lock("cache:prices").template("cache:<name>").wait(Duration::from_secs(10));
    {
        let shared = lock.clone().read().await?;
        if let Some(entry) = cache.look() {
            shared.release().await?;
            return Ok((entry, false));
        }
        // Given back first: a reader that asks to write would wait for itself, which distlock refuses as DEADLOCK.
    }
    let whole = lock.write().await?;
    // Somebody else may have refilled it between the two locks.
    match cache.look() {
        Some(entry) => Ok((entry, false)),
        None => Ok((whole.run(cache.refill()).await?, true)),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    let cache = Arc::new(Cache::default());

    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let (locks, cache) = (examples::shared(&locks).await?, Arc::clone(&cache));
        requests.spawn(async move { prices(&locks, &cache).await });
    }
    let (mut served, mut refilled, mut others) = (0, 0, 0);
    while let Some(request) = requests.join_next().await {
        let (entry, did_it) = request??;
        served += 1;
        refilled += u32::from(did_it);
        others += u32::from(entry != "prices, computed 1 times");
        if did_it {
            println!("one request refilled the cache: {entry}");
        }
    }
    let computed = cache.refills.load(Ordering::SeqCst);
    println!("summary requests={served} refills={computed}");
    ensure!(refilled == 1 && computed == 1, "{computed} requests refilled the cache: a stampede");
    ensure!(served == 50 && others == 0, "{others} of {served} requests got something else than that result");
    Ok(())
}
