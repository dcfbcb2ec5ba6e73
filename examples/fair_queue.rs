//! First come, first served: visitors of two shops (two managers, as two servers would be) queue up for one till, and are served in the order
//! in which they came, whichever shop they stand in. One of them goes away again, and nobody loses a place by that.
//!
//! ```sh
//! cargo run --example fair-queue
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example fair-queue
//! ```

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::ensure;
use distlock::LockManager;
use tokio::task::JoinSet;

const VISITORS: u64 = 12;
const GOES_AWAY: u64 = 5;

/// Waits until so many stand in the queue, so that the order of arrival is known.
async fn queue_length(locks: &LockManager, length: u64) -> anyhow::Result<()> {
    while locks.inspect("till").await?.waiters != length {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = match std::env::var("DISTLOCK_URL") {
        Ok(url) => url,
        // A named store in memory is shared by all managers of the process.
        Err(_) => "memory:shops".to_owned(),
    };
    let shops = [LockManager::connect(&url).await?, LockManager::connect(&url).await?];
    let served = Arc::new(Mutex::new(Vec::new()));

    let till_is_busy = shops[0].mutex("till").fair().lock().await?;
    let mut visitors = JoinSet::new();
    let mut goes_away = None;
    for number in 1..=VISITORS {
        let (locks, served) = (shops[number as usize % 2].clone(), Arc::clone(&served));
        let visit = visitors.spawn(async move {
            let till = locks.mutex("till").fair().wait_forever().lock().await?;
            println!("visitor {number:2} is served, fencing token {}", till.fencing_token());
            served.lock().expect("nobody panics with it").push(number);
            till.release().await
        });
        if number == GOES_AWAY {
            goes_away = Some(visit);
        }
        queue_length(&shops[0], number).await?;
    }
    if let Some(visit) = goes_away {
        visit.abort();
        queue_length(&shops[0], VISITORS - 1).await?;
        println!("visitor {GOES_AWAY:2} went away");
    }
    till_is_busy.release().await?;
    while let Some(visit) = visitors.join_next().await {
        match visit {
            Ok(served) => drop(served?),
            Err(aborted) => ensure!(aborted.is_cancelled(), "a visitor panicked"),
        }
    }

    let served = served.lock().expect("nobody panics with it").clone();
    println!("summary visitors={VISITORS} served={} order={served:?}", served.len());
    let expected: Vec<u64> = (1..=VISITORS).filter(|number| *number != GOES_AWAY).collect();
    ensure!(served == expected, "somebody was passed by");
    Ok(())
}
