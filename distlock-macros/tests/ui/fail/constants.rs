//! Text with placeholders where it is no template: it would be the same in every call.
use distlock::{LockError, distributed_lock, idempotent};

struct Step {
    saga: u64,
}

#[distributed_lock(key = "order:<id>", owner = "<saga>")]
async fn owner_in_quotes(id: u64, saga: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>", owner = "saga:{saga:08}/<step.saga>")]
async fn owner_with_braces(id: u64, saga: u64, step: Step) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>", owner = &"saga {}")]
async fn owner_without_a_name(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>", owner = "")]
async fn empty_owner(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[idempotent(key = "payment:<id>", fingerprint = "<cents>", scope = "{tenant}")]
async fn fingerprint_and_scope(id: u64, cents: u64, tenant: &str) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "payment:<id>", fingerprint = (id, "<cents>"), scope = "")]
async fn one_of_a_fingerprint(id: u64, cents: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(keys = vec!["account:<a>", "account:<b>"])]
async fn vec_of_keys(a: u64, b: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = &["account:<step.saga>"])]
async fn slice_of_keys(step: Step) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["account:<a>", String::from("account:<b>")])]
async fn one_expression(a: u64, b: u64) -> Result<(), LockError> {
    Ok(())
}

// These are right.

#[distributed_lock(key = "order:<id>", owner = "billing")]
async fn one_owner(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>", owner = format!("saga:<{saga}>"))]
async fn owner_as_an_expression(id: u64, saga: u64) -> Result<(), LockError> {
    Ok(())
}

#[idempotent(key = "payment:<id>", fingerprint = ("v2", cents), scope = "billing")]
async fn constants(id: u64, cents: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[distributed_lock(keys = ids.iter().map(|id| format!("account:{id}<id")))]
async fn keys_as_an_expression(ids: &[u64]) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = vec![format!("account:<{id}>"), "<stock>".into()])]
async fn keys_with_other_words(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
