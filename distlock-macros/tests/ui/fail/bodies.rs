//! Mistakes in the body are reported as in the plain function.
use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
async fn wrong_value(id: u64) -> Result<u64, LockError> {
    Ok("text")
}

#[distributed_lock(key = "order:<id>")]
async fn no_value(id: u64) -> Result<u64, LockError> {
    let _ = id;
}

#[distributed_lock(key = "order:<id>")]
async fn wrong_return(id: u64) -> Result<u64, LockError> {
    if id == 0 {
        return 0;
    }
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
async fn half_typed(id: String) -> Result<usize, LockError> {
    id.
}

#[deny(unused_variables)]
#[distributed_lock(key = "order:<id>", guard = guard)]
async fn unused(id: u64, other: u64) -> Result<(), LockError> {
    Ok(())
}

fn main() {}
