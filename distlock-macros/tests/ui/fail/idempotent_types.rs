//! `#[idempotent]`: what can't be hashed or kept is told at its own place.
use distlock::{LockError, idempotent};

struct Pool;

#[idempotent(key = "payment:<id>")]
async fn argument_that_cannot_be_hashed(pool: &Pool, id: u64) -> Result<u64, LockError> {
    let _ = pool;
    Ok(id)
}

#[idempotent(key = "payment:<id>", fingerprint = (id, Pool))]
async fn fingerprint_that_cannot_be_hashed(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>")]
async fn value_that_cannot_be_kept(id: u64) -> Result<Pool, LockError> {
    let _ = id;
    Ok(Pool)
}

#[idempotent(key = "payment:<id>", on_failure = store)]
async fn error_that_cannot_be_kept(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>")]
async fn no_result(id: u64) -> u64 {
    id
}

#[idempotent(key = "payment:<id>", on_error = 0)]
async fn no_result_with_an_answer(id: u64) -> u64 {
    id
}

fn main() {}
