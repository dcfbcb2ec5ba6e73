//! A framework may re-export the kit under a name of its own.
#![deny(warnings)]

mod framework {
    pub use distlock as locks;
}

use framework::locks::{LockError, assert_held, distributed_lock, idempotent};

#[distributed_lock(key = "order:<id>", crate = crate::framework::locks)]
async fn ship(id: u64) -> Result<u64, LockError> {
    assert_held!("order:<id>");
    Ok(id)
}

#[distributed_lock(keys = ["order:<id>", "stock"], crate = crate::framework::locks)]
async fn ship_from_stock(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

#[idempotent(key = "order:<id>", crate = crate::framework::locks)]
async fn ship_once(id: u64) -> Result<u64, LockError> {
    Ok(id)
}

fn main() {
    drop((ship(1), ship_from_stock(1), ship_once(1)));
}
