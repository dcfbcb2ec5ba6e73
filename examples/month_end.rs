//! Owners and latches: a month's end is one business transaction whose steps run wherever there is a worker. All of them enter
//! the ledger's lock under the transaction's name, so they work side by side and keep everybody else out; a latch tells when
//! the last branch has reported.
//!
//! ```sh
//! cargo run --example month-end
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example month-end
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use distlock::{LockError, LockManager, distributed_lock};

const BRANCHES: u32 = 4;

/// What the ledger saw.
#[derive(Default)]
struct Ledger {
    inside: AtomicU32,
    most_at_once: AtomicU32,
    reports: AtomicU32,
}

/// One branch's part, on whatever worker takes it up: the same owner is let in beside the others.
#[distributed_lock(key = "ledger", owner = closing, wait = "10s", guard = hold)]
async fn report(ledger: &Ledger, closing: &str, branch: u32) -> Result<u64, LockError> {
    let inside = ledger.inside.fetch_add(1, Ordering::SeqCst) + 1;
    ledger.most_at_once.fetch_max(inside, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(30)).await;
    ledger.reports.fetch_add(1, Ordering::SeqCst);
    ledger.inside.fetch_sub(1, Ordering::SeqCst);
    println!("branch {branch} has reported");
    Ok(hold.fencing_token().get())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    locks.install()?;
    // Both names are this run's own, so that it may be repeated.
    let closing = format!("closing-{:08x}", fastrand::u32(..));
    let ledger = Arc::new(Ledger::default());

    // The transaction begins: from here on the ledger is its own.
    let hold = locks.mutex("ledger").owner(&closing).lock().await?;
    let done = locks.latch(format!("reported:{closing}"), BRANCHES).within(Duration::from_secs(10));
    let workers: Vec<_> = (0..BRANCHES)
        .map(|branch| {
            let (ledger, closing, done) = (ledger.clone(), closing.clone(), done.clone());
            tokio::spawn(async move {
                let token = report(&ledger, &closing, branch).await?;
                // Counted once, also when a message that starts a branch comes twice.
                done.count_down_once(format!("branch-{branch}")).await?;
                Ok::<_, LockError>(token)
            })
        })
        .collect();

    let stranger = locks.mutex("ledger").owner("an auditor").try_lock().await.expect_err("it is held");
    println!("another owner: {stranger}");
    done.clone().wait().await?;
    let token = hold.fencing_token().get();
    for worker in workers {
        ensure!(worker.await?? == token, "all of them work under the transaction's token");
    }
    hold.release().await?;
    drop(locks.mutex("ledger").owner("an auditor").lock().await?);

    let (reports, at_once) =
        (ledger.reports.load(Ordering::SeqCst), ledger.most_at_once.load(Ordering::SeqCst));
    ensure!(reports == BRANCHES, "the latch opened before the last branch had reported");
    ensure!(at_once > 1, "branches of one transaction didn't work side by side");
    println!("summary reports={reports} token={token}");
    Ok(())
}
