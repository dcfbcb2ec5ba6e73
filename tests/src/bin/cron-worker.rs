//! A scheduler that starts a short job at every tick of its own wall clock, under a lock, and says for each tick whether it ran it.
//!
//! Arguments: the store's URL, the job's key, the time between ticks in ms, and for how long the lock is kept at least in ms (0: it is
//! given back when the job is done).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use distlock::LockManager;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [url, key, every, keep] = &args[..] else { anyhow::bail!("URL KEY EVERY KEEP, not {args:?}") };
    let (every, keep): (u64, u64) = (every.parse()?, keep.parse()?);
    let locks = LockManager::connect(url).await?;
    // Connected before the first tick.
    locks.ping().await?;
    println!("ready");
    loop {
        let now = wall_ms()?;
        let tick = now / every + 1;
        tokio::time::sleep(Duration::from_millis(tick * every - now)).await;
        let mut job = locks.mutex(key.as_str()).ttl(Duration::from_secs(5));
        if keep > 0 {
            job = job.hold_at_least(Duration::from_millis(keep));
        }
        match job.try_lock().await {
            Ok(guard) => {
                println!("ran {tick}");
                drop(guard);
            }
            Err(busy) if busy.is_busy() => println!("skipped {tick}"),
            Err(error) => return Err(error).context("the job"),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "schedulers go by the wall clock, that is what is tested")]
fn wall_ms() -> anyhow::Result<u64> {
    Ok(u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}
