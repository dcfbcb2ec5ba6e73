//! `IdempotencyLayer` end to end: axum behind real HTTP, on every store.

#[path = "../tower_support/mod.rs"]
mod tower_support;

mod bodies;
mod duplicates;
mod executions;
mod keys;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use distlock::LockManager;
use distlock_tower::{Execution, IdempotencyLayer};

use tower_support::Runs;

fn layer(locks: &LockManager) -> IdempotencyLayer {
    IdempotencyLayer::builder(locks).anonymous().build().unwrap()
}

async fn pay(State(runs): State<Runs>, execution: Option<Execution>) -> String {
    let key = execution.map_or_else(|| "-".to_owned(), |execution| execution.key().as_str().to_owned());
    format!("run {}", runs.run(&key).await)
}

fn app(runs: &Runs, layer: IdempotencyLayer) -> Router {
    Router::new().route("/pay", get(pay).post(pay).put(pay)).with_state(runs.clone()).layer(layer)
}
