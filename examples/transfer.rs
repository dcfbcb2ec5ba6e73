//! Several locks at once: money moves between accounts, each move under the locks of both. They are taken all or not at all and in one order,
//! so moves in opposite directions don't wait for each other for ever, and no money is made or lost.
//!
//! ```sh
//! cargo run --example transfer
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example transfer
//! cargo run --example transfer -- --alone     # without a lock in common: it must notice
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::ensure;
use distlock::{LockManager, distributed_lock};
use tokio::task::JoinSet;

const ACCOUNTS: usize = 5;
const EACH: i64 = 1_000;

#[derive(Default)]
struct Bank {
    accounts: [AtomicI64; ACCOUNTS],
    /// How many moves are at work on each account.
    at_work: [AtomicU32; ACCOUNTS],
    collisions: AtomicU32,
}

/// Reads, waits for something, and writes: wrong without the locks.
#[distributed_lock(keys = ["account:<from>", "account:<to>"], wait = "60s")]
async fn transfer(bank: &Bank, from: usize, to: usize, amount: i64) -> anyhow::Result<()> {
    for number in [from, to] {
        if bank.at_work[number].fetch_add(1, Ordering::SeqCst) > 0 {
            bank.collisions.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (had, has) = (bank.accounts[from].load(Ordering::SeqCst), bank.accounts[to].load(Ordering::SeqCst));
    tokio::time::sleep(Duration::from_millis(1)).await;
    bank.accounts[from].store(had - amount, Ordering::SeqCst);
    bank.accounts[to].store(has + amount, Ordering::SeqCst);
    for number in [from, to] {
        bank.at_work[number].fetch_sub(1, Ordering::SeqCst);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    let bank = Arc::new(Bank::default());
    bank.accounts.iter().for_each(|account| account.store(EACH, Ordering::SeqCst));

    let mut moves = JoinSet::new();
    for number in 0..100 {
        let (bank, locks) = (Arc::clone(&bank), examples::shared(&locks).await?);
        // Between neighbours, in both directions at the same time.
        let (one, other) = (number % ACCOUNTS, (number + 1) % ACCOUNTS);
        let (from, to) = if number % 2 == 0 { (one, other) } else { (other, one) };
        moves.spawn(async move { locks.scope(transfer(&bank, from, to, 10)).await });
    }
    let mut done = 0;
    while let Some(moved) = moves.join_next().await {
        moved??;
        done += 1;
    }

    let total: i64 = bank.accounts.iter().map(|account| account.load(Ordering::SeqCst)).sum();
    let collisions = bank.collisions.load(Ordering::SeqCst);
    println!("summary moves={done} total={total} collisions={collisions}");
    ensure!(total == EACH * ACCOUNTS as i64, "money was made or lost: {total}");
    ensure!(collisions == 0, "{collisions} moves worked on one account at the same time");
    Ok(())
}
