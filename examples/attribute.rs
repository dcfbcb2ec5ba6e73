//! The attribute: an order that is shipped by one caller at a time, and a job that every replica starts and one does.
//!
//! ```sh
//! cargo run --example attribute
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example attribute
//! ```

use std::time::Duration;

use distlock::{LockError, LockManager, distributed_lock};

/// An error type of your own needs a conversion from `LockError`, no more.
#[derive(Debug, thiserror::Error)]
enum ShopError {
    #[error("order {0} is sold out")]
    SoldOut(u64),
    #[error(transparent)]
    Lock(#[from] LockError),
}

#[distributed_lock(key = "order:<id>", ttl = "30s", wait = "5s", guard = hold)]
async fn ship(id: u64, stock: u32) -> Result<String, ShopError> {
    if stock == 0 {
        return Err(ShopError::SoldOut(id));
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(format!("order {id} is on its way, fencing token {}", hold.fencing_token()))
}

/// `true` where it ran; busy means that another replica is at it, which is fine.
#[distributed_lock(key = "nightly-report", on_busy = Ok(false))]
async fn nightly_report() -> Result<bool, LockError> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), ShopError> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    locks.install()?;

    // One after the other, for they are about the same order.
    let (first, second) = tokio::join!(tokio::spawn(ship(42, 2)), tokio::spawn(ship(42, 1)));
    for outcome in [first, second] {
        println!("{}", outcome.expect("ship doesn't panic")?);
    }
    if let Err(error) = ship(43, 0).await {
        println!("{error}");
    }

    let (first, second) = tokio::join!(tokio::spawn(nightly_report()), tokio::spawn(nightly_report()));
    let ran = [first, second].map(|outcome| outcome.expect("the report doesn't panic"));
    println!(
        "the report was started twice and ran {} time",
        ran.iter().filter(|ran| matches!(ran, Ok(true))).count()
    );
    // The last release is on its way: a process that ends before it leaves its lock for the ttl.
    locks.shutdown(std::time::Duration::from_secs(5)).await;
    Ok(())
}
