//! Idempotency on Postgres, from the store up to the layer and the attribute.

#[path = "../postgres_naive/mod.rs"]
mod postgres_naive;
#[path = "../postgres_shop/mod.rs"]
mod postgres_shop;
#[path = "../tower_support/mod.rs"]
mod tower_support;

mod layer;
mod store;
