//! Fair locks, read/write locks and semaphores against a real server, at the waist.
//!
//! | room | what it shows |
//! |---|---|
//! | `shares` | who gets a share of a read/write lock or a semaphore, and for how long |
//! | `changes` | conversions, resizing, taking away |
//! | `obstacles` | another kind under the key, rights, memory, broken counters |
//! | `fair` | arrival decides |
//! | `fault_dead` | waiters that died cost those behind them little, and only once |
//! | `lapsed` | more shares that are over than one call clears away, and holders that somebody deleted |
//! | `left_behind` | a line that is over, however long it was, conflicts with nobody |
//! | `model` | random histories are those of the memory store |
//! | `fault_scale` | ten thousand holders and waiters make no call slow |

mod changes;
mod fair;
mod fault_dead;
mod fault_scale;
mod lapsed;
mod left_behind;
mod model;
mod obstacles;
#[path = "../redis_backend/mod.rs"]
mod redis_backend;
mod shares;

use std::sync::Arc;

use distlock_runtime::backend::{
    AcquireRequest, Backend, BackendErrorKind, LeaseHandle, Mode, Released, Renewal, redis::RedisBackend,
};
use redis_backend::*;

const LONG: u64 = 60_000;

fn shared(key: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest { mode, ..request(key, LONG) }
}

fn in_line(key: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest { mode, fair: true, ..waiting(key, LONG) }
}

fn permits(limit: u32, weight: u32) -> Mode {
    Mode::Permits { limit, weight }
}

/// Whoever judges by time, or works the machine hard, does so alone.
async fn alone() -> tokio::sync::MutexGuard<'static, ()> {
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    ALONE.lock().await
}

/// A manager that is told by push.
async fn told(bench: &Bench) -> (Arc<RedisBackend>, Serving) {
    let backend = bench.other();
    let serving = Serving::start(&backend);
    listening(bench, &backend).await;
    (backend, serving)
}

async fn renews(backend: &RedisBackend, lease: &LeaseHandle) -> bool {
    match &backend.renew(std::slice::from_ref(lease)).await[..] {
        [Renewal::Renewed { .. }] => true,
        [Renewal::Gone] => false,
        other => panic!("{other:?}"),
    }
}

async fn released(backend: &RedisBackend, request: &AcquireRequest) {
    assert_eq!(backend.release(&request.lease(), None).await.unwrap(), Released::Confirmed);
}

async fn refusal(backend: &RedisBackend, request: &AcquireRequest) -> BackendErrorKind {
    backend.try_acquire(request).await.unwrap_err().kind()
}

/// Whether the lease of this request is in the store, without renewing it.
async fn holds(bench: &Bench, request: &AcquireRequest) -> bool {
    for shares in bench.ask::<Vec<String>>("KEYS distlock!*!s:distlock:k").await {
        let score: Option<f64> = bench.ask(&format!("ZSCORE {shares} {}", request.owner.to_hex())).await;
        if score.is_some() {
            return true;
        }
    }
    false
}

async fn only_counters_lack_a_ttl(bench: &Bench) {
    let kept = bench.server.keys_without_ttl().await.unwrap();
    assert!(kept.iter().all(|key| key.ends_with("!f")), "{kept:?}");
}

/// Keys that are neither counters nor tombstones.
async fn left(bench: &Bench) -> Vec<String> {
    let keys = bench.server.keys().await.unwrap();
    keys.into_iter().filter(|key| !key.ends_with("!f") && !key.contains("}!x:")).collect()
}

/// Every value in the store but the counters.
async fn dump(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for key in left(bench).await {
        let value: redis::Value = bench.ask(&format!("DUMP {key}")).await;
        all.push((key, format!("{value:?}").into_bytes()));
    }
    all.sort();
    all
}
