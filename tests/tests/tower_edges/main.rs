//! The edge cases of the idempotency layer, one test each, by the part of the contract that they belong to.
//!
//! What an ordinary request sees is in `tower_idempotency`, failures of a real store in `tower_faults`.

#[path = "../tower_support/mod.rs"]
mod tower_support;

mod attached;
mod bodies;
mod clients;
mod keys;
mod leases;
mod outcomes;
mod stack;
mod store;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use distlock::LockManager;
use distlock_tower::idempotency::{IdempotencyBuilder, Scoped};
use distlock_tower::{Execution, IdempotencyLayer};

use tower_support::Runs;

fn builder(locks: &LockManager) -> IdempotencyBuilder<Scoped> {
    IdempotencyLayer::builder(locks).anonymous()
}

async fn memory() -> LockManager {
    LockManager::connect("memory:").await.unwrap()
}

/// Counts its runs.
async fn pay(State(runs): State<Runs>, execution: Option<Execution>) -> String {
    let key = execution.map_or_else(|| "-".to_owned(), |execution| execution.key().as_str().to_owned());
    format!("run {}", runs.run(&key).await)
}

/// `pay` on some routes.
fn app(runs: &Runs, builder: IdempotencyBuilder<Scoped>) -> Router {
    let pay = || axum::routing::any(pay);
    Router::new()
        .route("/pay", pay())
        .route("/refund", pay())
        .with_state(runs.clone())
        .layer(builder.build().unwrap())
}

/// A route with a handler that says `text` and counts its runs.
fn counting(
    runs: &Runs,
    answer: impl Fn() -> axum::response::Response + Clone + Send + Sync + 'static,
) -> Router {
    let handler = move |State(runs): State<Runs>| {
        let answer = answer.clone();
        async move {
            runs.run("").await;
            answer()
        }
    };
    Router::new().route("/", post(handler)).with_state(runs.clone())
}
