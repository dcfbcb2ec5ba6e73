//! Readers beside each other, writers alone: a catalog of prices that are given in two currencies. Readers see both of one change or of
//! another, never a mixture; a writer gets in though readers come all the time; and the only reader left may become a writer in place.
//!
//! ```sh
//! cargo run --example catalog
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example catalog
//! cargo run --example catalog -- --alone     # without a lock in common: it must notice
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, ensure};
use distlock::{LockError, LockManager, RwLock};
use tokio::task::JoinSet;

const CHANGES: u32 = 10;

/// Two stores that know nothing of each other; a change takes some time to reach the second.
#[derive(Default)]
struct Catalog {
    euros: AtomicU32,
    dollars: AtomicU32,
    readers: AtomicU32,
    most_readers: AtomicU32,
    reads: AtomicU32,
    torn: AtomicU32,
    done: AtomicBool,
}

impl Catalog {
    async fn read(&self) {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_readers.fetch_max(readers, Ordering::SeqCst);
        let euros = self.euros.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        if self.dollars.load(Ordering::SeqCst) != euros {
            self.torn.fetch_add(1, Ordering::SeqCst);
        }
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.readers.fetch_sub(1, Ordering::SeqCst);
    }

    async fn change(&self, price: u32) {
        self.euros.store(price, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.dollars.store(price, Ordering::SeqCst);
    }
}

fn lock(locks: &LockManager) -> RwLock {
    locks.rw_lock("catalog").wait(Duration::from_secs(20))
}

async fn read_on(locks: LockManager, catalog: Arc<Catalog>) -> Result<(), LockError> {
    while !catalog.done.load(Ordering::SeqCst) {
        let shared = lock(&locks).read().await?;
        shared.run(catalog.read()).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    let catalog = Arc::new(Catalog::default());

    let mut readers = JoinSet::new();
    for _ in 0..8 {
        readers.spawn(read_on(examples::shared(&locks).await?, Arc::clone(&catalog)));
    }
    for price in 1..=CHANGES {
        let whole = lock(&locks).write().await?;
        whole.run(catalog.change(price)).await?;
        println!(
            "price {price} is in, fencing token {}, after {} reads",
            whole.fencing_token(),
            catalog.reads.load(Ordering::SeqCst)
        );
        // Without a gap: no other writer comes between the change and the look at it.
        let shared = whole.downgrade().await?;
        ensure!(catalog.euros.load(Ordering::SeqCst) == price, "another writer came between");
        shared.release().await?;
    }
    catalog.done.store(true, Ordering::SeqCst);
    while let Some(reader) = readers.join_next().await {
        reader??;
    }

    // Two readers: neither may become a writer, for the other still relies on what it reads.
    let (one, other) = (lock(&locks).read().await?, lock(&locks).read().await?);
    let refused = one.try_upgrade().await.err().context("a reader beside another became a writer")?;
    ensure!(refused.error.is_busy(), "{}", refused.error);
    drop(other);
    // Its release is on its way.
    let mut only = refused.guard;
    let whole = loop {
        match only.try_upgrade().await {
            Ok(whole) => break whole,
            Err(again) if again.error.is_busy() => only = again.guard,
            Err(failed) => return Err(failed.error.into()),
        }
    };
    whole.release().await?;

    let (reads, torn) = (catalog.reads.load(Ordering::SeqCst), catalog.torn.load(Ordering::SeqCst));
    let most = catalog.most_readers.load(Ordering::SeqCst);
    println!("summary changes={CHANGES} reads={reads} torn={torn} most_readers_at_once={most}");
    ensure!(torn == 0, "{torn} of {reads} readers saw a mixture");
    ensure!(most > 1, "readers waited for each other");
    Ok(())
}
