//! The contracts of the lock scripts against a real server, repeats and broken states included.
//!
//! | room | what it shows |
//! |---|---|
//! | `leases` | getting, keeping and giving back |
//! | `tokens` | fencing tokens grow, whatever becomes of their counter |
//! | `cancels` | an attempt that was given up leaves nothing, whenever it arrives |
//! | `waiters` | a release hands on, in order, and tells by push |
//! | `posted` | releases that nobody waits for |
//! | `keys` | what stands in Redis, and what isn't ours there |

mod cancels;
mod keys;
mod leases;
mod posted;
#[path = "../redis_backend/mod.rs"]
mod redis_backend;
mod tokens;
mod waiters;

use redis_backend::*;

/// Keys that are neither counters nor tombstones.
async fn only_counters(bench: &Bench) -> Vec<String> {
    let keys = bench.server.keys().await.unwrap();
    keys.into_iter().filter(|key| !key.ends_with("!f") && !key.contains("}!x:")).collect()
}
