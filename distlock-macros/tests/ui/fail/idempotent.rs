//! `#[idempotent]`: each mistake is one error at its own place.
use distlock::{LockError, idempotent};

#[idempotent(retain = "24h")]
async fn no_key(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", retian = "24h")]
async fn misspelt(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", ttl = "30s")]
async fn of_the_other_attribute(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = ["payment", "refund"], timeout = "5s", fair)]
async fn several_keys(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<it>")]
async fn unknown_placeholder(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", retain = "500ms")]
async fn forgotten_at_once(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", lease = "1ms")]
async fn lapsed_at_once(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", wait = "forever")]
async fn waiting_for_ever(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", on_failure = "store", on_cancel = ignore, after_crash = "takeover")]
async fn words(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", result_limit = "1 MiB")]
async fn limit_of_another_type(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>")]
fn not_async(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>")]
struct NoFunction {
    id: u64,
}

fn main() {}
