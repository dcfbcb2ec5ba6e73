//! Braces are no placeholders: a key with an argument's name in braces would be one key for all.
use distlock::{LockError, distributed_lock};

struct Order {
    id: u64,
}

#[distributed_lock(key = "order:{id}")]
async fn as_in_format(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:{order.id}")]
async fn a_field(order: Order) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "<tenant>:{id:08}")]
async fn with_a_format(tenant: u64, id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "order:{}")]
async fn without_a_name(id: u64) -> Result<(), LockError> {
    Ok(())
}

impl Order {
    #[distributed_lock(key = "order:{self.id}")]
    async fn of_self(&self) -> Result<(), LockError> {
        Ok(())
    }
}

// These are right.

#[distributed_lock(key = "{orders}:<id>")]
async fn other_words(id: u64) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = String::from("order:{id}"))]
async fn an_expression(id: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
