//! Contends for keys of the file store of `examples/custom_store.rs`: the process that tests stop and kill.
//!
//! Arguments as of `contend::Plan`, with the directory as `--url`, and
//! * `sound`: locks as they are;
//! * `blind-release`: gives locks back whoever holds them by then, which the tests must notice.

use std::time::Duration;

use anyhow::Context;
use distlock::{Guard, LockError, LockManager, backend::Clock};
use distlock_tests::contend::{Contender, Held, Plan, contend};

#[path = "../../../examples/file_store/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's own module, of which this uses the store alone")]
mod file_store;

use file_store::FileStore;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let plan = Plan::parse(std::env::args().skip(1))?;
    let directory = plan.url.as_deref().context("which directory?")?;
    let label = format!("worker:{}", std::process::id());
    let store = FileStore::open(directory, &label, Clock::System)?;
    let locks = LockManager::builder().backend(store).await?;
    let is_blind = match plan.rest.first().map(String::as_str) {
        Some("sound") => false,
        Some("blind-release") => true,
        other => anyhow::bail!("which way? {other:?}"),
    };
    contend(Locks { locks, is_blind }, &plan).await;
    Ok(())
}

struct Locks {
    locks: LockManager,
    is_blind: bool,
}

struct Hold {
    guard: Guard,
    blind: Option<LockManager>,
}

impl Contender for Locks {
    type Hold = Hold;

    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<Hold> {
        let guard = self.locks.mutex(key).ttl(ttl).wait(Duration::from_secs(8)).lock().await;
        let blind = self.is_blind.then(|| self.locks.clone());
        guard.map(|guard| Hold { guard, blind }).map_err(coded)
    }
}

impl Held for Hold {
    fn token(&self) -> Option<u64> {
        Some(self.guard.fencing_token().get())
    }

    fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    async fn release(self) -> anyhow::Result<()> {
        if let Some(locks) = &self.blind {
            locks.force_release(self.guard.key(), "blind").await.map_err(coded)?;
            return Ok(());
        }
        self.guard.release().await.map(drop).map_err(coded)
    }
}

fn coded(error: LockError) -> anyhow::Error {
    anyhow::anyhow!("{} {error}", error.code())
}
