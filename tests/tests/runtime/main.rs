//! What the runtime promises, on a real Redis: each promise with the fault that could break it, and, where it is about safety, with a
//! naive lock beside it that the same test catches.
//!
//! | room | promise |
//! |---|---|
//! | `fault_drops` | whatever is dropped, wherever: the lock is free at once, and nothing stays in the store |
//! | `fault_ghosts` | a cancelled attempt never takes effect later |
//! | `fault_handing_on` | a granted waiter that is dropped takes the lock from nobody |
//! | `fault_outage` | a store that is down is told from a lock that is held, and its return is noticed |
//! | `fault_reordering` | what arrives late undoes nothing that came after it |
//! | `fault_server` | what is done to the server is reported, survived until the deadline, and got over |
//! | `fault_silence` | waiters find out by themselves when nobody tells them |
//! | `connecting` | what can't be connected to says so once, in words that help |
//! | `installed` | one installed manager serves all runtimes of its process |
//! | `procs_crowd` | a thousand waiting tasks are one waiter to the store |
//! | `procs_leaks` | managers leave no thread, file or connection behind |
//! | `procs_wakeups` | between processes, the next hold begins within milliseconds of the last, or within the ttl of a dead one |

mod connecting;
mod fault_drops;
mod fault_ghosts;
mod fault_handing_on;
mod fault_outage;
mod fault_reordering;
mod fault_server;
mod fault_silence;
mod installed;
mod procs_crowd;
mod procs_leaks;
mod procs_wakeups;

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::{
    server::{RedisOptions, RedisServer},
    wait,
};

/// How long anything that must happen may take.
const LIMIT: Duration = Duration::from_secs(20);

fn start() -> RedisServer {
    RedisServer::start(RedisOptions::new()).unwrap()
}

async fn connect(url: &str) -> LockManager {
    LockManager::connect(url).await.unwrap()
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until the key is gone from the store, however the lock manager sees it.
async fn gone(server: &RedisServer, key: &str) {
    let name = format!("distlock:{key}");
    let mut admin = server.admin().await.unwrap();
    let free = async || {
        let exists: bool = redis::cmd("EXISTS").arg(&name).query_async(&mut admin).await.unwrap();
        (!exists).then_some(())
    };
    wait::until(&format!("{name} to be gone"), LIMIT, free).await.unwrap();
}

/// Waits until so many wait for the key, as this manager sees it.
async fn waiters(locks: &LockManager, key: &str, count: u64) {
    let there = async || (locks.inspect(key).await.unwrap().waiters == count).then_some(());
    wait::until(&format!("{count} waiters for {key}"), LIMIT, there).await.unwrap();
}

/// I7: what stays in the store for ever are the counters of fencing tokens, and once all is over, only tombstones beside them.
async fn assert_nothing_stays(server: &RedisServer) {
    let lasting = server.keys_without_ttl().await.unwrap();
    assert!(lasting.iter().all(|key| key.ends_with("}!f")), "they stay for ever: {lasting:?}");
    let clean = async || {
        let keys = server.keys().await.unwrap();
        keys.iter().all(|key| key.ends_with("}!f") || key.contains("}!x:")).then_some(())
    };
    let outcome = wait::until("only counters and tombstones", LIMIT, clean).await;
    outcome.unwrap_or_else(|error| panic!("{error}: {lasting:?}"));
}
