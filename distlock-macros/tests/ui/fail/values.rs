//! What the compiler finds in a template or an expression is reported at the argument.
use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:<order>")]
async fn no_display(order: &Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<order.number>")]
async fn no_field(order: &Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:<order.number()>")]
async fn no_method(order: &Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = id)]
async fn no_key(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", ttl = seconds)]
async fn no_duration(seconds: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order", locks = name)]
async fn no_manager(name: &str) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = order)]
async fn no_key_of_a_struct(order: Order) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
