//! A semaphore in front of a slow partner: however many servers call it, no more than three calls run at a time, and a big
//! call counts for two.
//!
//! ```sh
//! cargo run --example rate-limit
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example rate-limit     # in several terminals at once
//! cargo run --example rate-limit -- --alone     # without a lock in common: it must notice
//! ```

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::ensure;
use distlock::LockManager;
use tokio::task::JoinSet;

const LIMIT: u32 = 3;

/// The partner counts what it is asked at once.
static RUNNING: AtomicU32 = AtomicU32::new(0);
static MOST: AtomicU32 = AtomicU32::new(0);

async fn call_partner(number: u32, weight: u32) {
    let running = RUNNING.fetch_add(weight, Ordering::SeqCst) + weight;
    MOST.fetch_max(running, Ordering::SeqCst);
    println!("call {number:2} ({weight} permits) runs, {running} of {LIMIT} permits in use");
    tokio::time::sleep(Duration::from_millis(80)).await;
    RUNNING.fetch_sub(weight, Ordering::SeqCst);
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    let mut calls = JoinSet::new();
    for number in 1..=15 {
        let weight = if number % 5 == 0 { 2 } else { 1 };
        let locks = examples::shared(&locks).await?;
        calls.spawn(async move {
            let partner = locks.semaphore("partner", LIMIT).wait(Duration::from_secs(60));
            // If the permits are lost (the store was away for too long), the call is stopped.
            partner.acquire_many(weight).await?.run(call_partner(number, weight)).await
        });
    }
    while let Some(call) = calls.join_next().await {
        call??;
    }
    let most = MOST.load(Ordering::SeqCst);
    println!("summary calls=15 limit={LIMIT} most_at_once={most}");
    ensure!(most <= LIMIT, "{most} permits were in use at once");
    Ok(())
}
