//! Every kind of return type.

use std::fmt::{Debug, Display};
use std::future::Future;

use distlock::{LockError, distributed_lock};

use super::other_work;
use crate::{AppError, AppResult, memory};

#[distributed_lock(key = "order:<id>", ttl = "30s", reentrant)]
pub(super) async fn result(id: u64) -> Result<u64, AppError> {
    other_work().await;
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
async fn alias(id: u64) -> AppResult<String> {
    other_work().await;
    let text = format!("order {id}");
    if id == 0 {
        return Err(AppError("no order".into()));
    }
    Ok(text)
}

#[distributed_lock(key = "order:<id>")]
async fn lock_error(id: u64) -> Result<u64, LockError> {
    other_work().await;
    Ok(id)
}

#[distributed_lock(key = "order:<id>")]
async fn boxed_error(id: u64) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    other_work().await;
    Ok("7".parse::<u64>()? + id)
}

#[distributed_lock(key = "order:<id>", on_error = None)]
async fn option(id: u64) -> Option<u64> {
    other_work().await;
    let next = id.checked_add(1)?;
    Some(next)
}

#[distributed_lock(key = "order:<id>", on_error = ())]
async fn unit(id: u64) {
    other_work().await;
    if id == 0 {
        return;
    }
    other_work().await;
}

#[distributed_lock(key = "order:<id>", on_error = drop)]
async fn explicit_unit(id: u64) -> () {
    other_work().await;
    assert_ne!(id, 0);
}

#[distributed_lock(key = "order:<id>")]
async fn impl_inside(id: u64) -> Result<impl Iterator<Item = u64> + Debug, AppError> {
    other_work().await;
    Ok(0..id)
}

#[distributed_lock(key = "order:<id>")]
async fn unsized_inside(id: u64) -> AppResult<Box<dyn Display + Send>> {
    other_work().await;
    if id == 0 {
        return Ok(Box::new("none"));
    }
    Ok(Box::new(id))
}

#[distributed_lock(key = "order:<id>", on_error = |_| 0)]
async fn impl_whole(id: u64) -> impl Display {
    other_work().await;
    id
}

#[distributed_lock(key = "order:<id>")]
async fn returns_a_future(id: u64) -> Result<impl Future<Output = u64>, LockError> {
    other_work().await;
    Ok(async move { id + 1 })
}

#[must_use]
#[distributed_lock(key = "order:<id>", on_error = 0)]
async fn must_use(id: u64) -> u64 {
    other_work().await;
    id
}

#[distributed_lock(key = "never", on_error = |error| panic!("{error}"))]
async fn never() -> ! {
    loop {
        other_work().await;
    }
}

#[distributed_lock(key = "never")]
async fn never_inside() -> Result<std::convert::Infallible, AppError> {
    loop {
        other_work().await;
    }
}

#[distributed_lock(key = "order:<id>")]
async fn never_returns(id: u64) -> AppResult<String> {
    panic!("order {id} has no body")
}

#[tokio::test]
async fn returned_values_pass_through() {
    let locks = memory().await;
    locks
        .scope(async {
            assert_eq!(result(3).await.expect("free"), 3);
            assert_eq!(alias(3).await.expect("free"), "order 3");
            assert_eq!(alias(0).await.expect_err("refused by the body").0, "no order");
            assert_eq!(lock_error(3).await.expect("free"), 3);
            assert_eq!(boxed_error(3).await.expect("free"), 10);
            assert_eq!(option(3).await, Some(4));
            assert_eq!(option(u64::MAX).await, None);
            unit(1).await;
            explicit_unit(1).await;
            assert_eq!(impl_inside(3).await.expect("free").sum::<u64>(), 3);
            assert_eq!(unsized_inside(0).await.expect("free").to_string(), "none");
            assert_eq!(impl_whole(3).await.to_string(), "3");
            assert_eq!(returns_a_future(3).await.expect("free").await, 4);
            assert_eq!(must_use(3).await, 3);
        })
        .await;
}

#[test]
fn unused_shapes_compile() {
    drop((never(), never_inside(), never_returns(1)));
}
