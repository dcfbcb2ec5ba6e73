//! The layer around a service of tonic's, over real connections: once for each key, statuses and trailers kept, and answers that
//! gRPC clients understand.

#[path = "../tower_support/mod.rs"]
mod tower_support;

mod client_half;
mod clients;
mod crowd;
mod kept;
mod lock;
mod messages;
mod phases;
mod procs;
mod refused;
mod shop;

use distlock::LockManager;
use distlock_tower::IdempotencyLayer;
use distlock_tower::idempotency::{IdempotencyBuilder, Scoped};

fn layer(locks: &LockManager) -> IdempotencyBuilder<Scoped> {
    IdempotencyLayer::builder(locks)
        .anonymous()
        .grpc_request_streams(["/shop.Orders/Upload", "/shop.Orders/Talk"])
}

async fn memory() -> LockManager {
    LockManager::connect("memory:").await.unwrap()
}
