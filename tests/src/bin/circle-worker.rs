//! Takes a lock and then, under it, another: two of them with the keys in opposite order wait for each other.
//!
//! Arguments: store, first key, second key, and `detect` to look for circles over processes. Says `holding`, waits for a line, and
//! says `waiting`, then `granted`, or the code of what went wrong and its text. Then it lets go of the first.

use std::time::Duration;

use anyhow::Context;
use distlock::LockManager;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut arg = |what| args.next().context(what);
    let (url, first, second) = (arg("which store?")?, arg("which key?")?, arg("which second key?")?);
    let builder = LockManager::builder();
    let builder = if args.next().as_deref() == Some("detect") { builder.detect_circles() } else { builder };
    let locks = builder.connect(&url).await?;
    let guard = locks.mutex(&first).ttl(Duration::from_secs(5)).lock().await?;
    println!("holding");
    tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await?.context("nobody said go")??;
    println!("waiting");
    let wait = locks.mutex(&second).ttl(Duration::from_secs(5)).wait(Duration::from_secs(15));
    match guard.run(wait.lock()).await? {
        Ok(inner) => {
            println!("granted");
            inner.release().await?;
        }
        Err(error) => println!("{} {error}", error.code()),
    }
    guard.release().await?;
    Ok(())
}
