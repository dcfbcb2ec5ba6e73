//! The shortest useful program: whatever runs this, on however many servers, does it one at a time.
//!
//! ```sh
//! cargo run --example quick_start
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example quick_start
//! ```

use std::time::Duration;

use distlock::{LockError, LockManager};

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;

    let guard = locks.mutex("order:42").wait(Duration::from_secs(5)).lock().await?;
    println!("order 42 is ours, fencing token {}", guard.fencing_token());
    // Stopped as soon as the lock is lost.
    guard.run(ship()).await?;
    guard.release().await?;
    Ok(())
}

async fn ship() {
    tokio::time::sleep(Duration::from_millis(100)).await;
    println!("order 42 is on its way");
}
