//! What `#[tokio::test]` and `#[tokio::main]` have rewritten can't be locked any more.
use distlock::{LockError, distributed_lock};

#[tokio::test]
#[distributed_lock(key = "test")]
async fn in_the_wrong_order() -> Result<(), LockError> {
    Ok(())
}

#[tokio::main]
#[distributed_lock(key = "main")]
async fn main() -> Result<(), LockError> {
    Ok(())
}
