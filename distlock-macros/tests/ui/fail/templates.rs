//! Key templates are checked against themselves and the function's arguments.
use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "")]
async fn empty() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id")]
async fn not_closed(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<>")]
async fn no_name(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id + 1>")]
async fn no_path(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<oder.id>")]
async fn misspelt(order: Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<customer>")]
async fn unknown(id: u64, (pair, _): (u8, u8), Order { id: other }: Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<id>")]
async fn no_arguments() -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<self.id>")]
async fn no_receiver(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "<tenant><id>")]
async fn no_separator(tenant: u64, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "<tenant>-<id>")]
async fn weak_separator(tenant: u64, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "line\nbreak")]
async fn control_character() -> Result<(), LockError> {
    Ok(())
}

fn main() {}
