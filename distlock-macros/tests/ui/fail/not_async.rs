//! The attribute goes on async functions, and on what `#[async_trait]` makes of them.
use std::future::Future;
use std::pin::Pin;

use distlock::{LockError, distributed_lock};

#[distributed_lock(key = "order:<id>")]
fn plain(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

struct Service;

impl Service {
    #[distributed_lock(key = "order:<id>")]
    pub fn method(&self, id: u64) -> Result<u64, LockError> {
        Ok(id)
    }
}

#[distributed_lock(key = "order:<id>")]
fn way_round_the_lock(id: u64) -> Pin<Box<dyn Future<Output = Result<u64, LockError>>>> {
    if id == 0 {
        return Box::pin(std::future::ready(Ok(0)));
    }
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(key = "service")]
struct NotAFunction;

#[distributed_lock(key = "service")]
impl Service {}

trait Ship {
    #[distributed_lock(key = "order:<id>")]
    async fn ship(&self, id: u64) -> Result<(), LockError>;
}

fn main() {
    let _ = (plain(1), Service.method(1), way_round_the_lock(1));
}
