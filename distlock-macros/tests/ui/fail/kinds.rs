//! Arguments that say the kind of lock: each that doesn't fit is one error, which tells how to mend it.
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "catalog", read, write)]
async fn read_and_write() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "catalog", write, read)]
async fn write_and_read() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "catalog", fair, read)]
async fn fair_reader() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "catalog", write, fair)]
async fn fair_writer() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4, fair)]
async fn fair_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4, read)]
async fn permits_to_read() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", write, permits = 4)]
async fn permits_to_write() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4, reentrant)]
async fn reentrant_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", weight = 2)]
async fn weight_without_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4, weight = 0)]
async fn weight_of_nothing() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", weight = 5, permits = 4)]
async fn weight_above_the_limit() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 0)]
async fn no_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = -1)]
async fn negative_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4294967296)]
async fn too_many_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = "4")]
async fn quoted_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = 4usize)]
async fn permits_of_another_type() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits)]
async fn permits_without_a_number() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "gpu", permits = name, weight = name.len())]
async fn wrong_expressions(name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", keys = ["b", "c"])]
async fn key_and_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["b", "c"], key = "a")]
async fn keys_and_key() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], read)]
async fn keys_to_read() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], write)]
async fn keys_to_write() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], permits = 4, weight = 2)]
async fn keys_with_permits() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], fair)]
async fn fair_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", "b"], guard = hold)]
async fn guard_of_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = "a")]
async fn one_as_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = [])]
async fn no_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a", 42])]
async fn number_among_keys() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a:<id>", "b:<"])]
async fn bad_template_among_keys(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ["a:<id>", "b:<di>"])]
async fn misspelt_argument_among_keys(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = ids)]
async fn keys_of_a_wrong_type(ids: Vec<u64>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(keys = id)]
async fn nothing_to_iterate(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", owner = id, fair)]
async fn fair_owner(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", read, owner = id)]
async fn reading_owner(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", owner)]
async fn owner_without_a_value() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", owner = id)]
async fn owner_that_has_no_text(id: Vec<u8>) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "a", fair, read, write, permits = 4, weight = 2, keys = ["b"], reentrant)]
async fn one_error_for_each_argument() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
