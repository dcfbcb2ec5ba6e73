//! Type parameters, lifetimes, inner attributes, recursion.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;

use distlock::distributed_lock;

use super::other_work;
use crate::{AppError, AppResult, memory};

#[distributed_lock(key = "g:<value>")]
pub(super) async fn generic<T, const N: usize>(value: &T, list: [u8; N]) -> AppResult<(String, usize)>
where
    T: Display + Sync + ?Sized,
{
    other_work().await;
    Ok((value.to_string(), list.len()))
}

#[distributed_lock(key = "g:<a>")]
async fn lifetimes<'a, 'b: 'a>(a: &'a str, b: &'b mut String) -> Result<&'a str, AppError> {
    b.push('!');
    other_work().await;
    Ok(if a.is_empty() { b } else { a })
}

#[distributed_lock(key = "g:<a>")]
async fn elided(a: &str) -> Result<&str, AppError> {
    other_work().await;
    Ok(a)
}

#[distributed_lock(key = "inner")]
async fn inner_attributes() -> AppResult<u32> {
    #![allow(unused_variables)]
    let unused = 1;
    other_work().await;
    Ok(2)
}

#[distributed_lock(key = "local")]
fn not_send() -> Pin<Box<dyn Future<Output = AppResult<u32>>>> {
    Box::pin(async move {
        other_work().await;
        Ok(1)
    })
}

#[distributed_lock(key = "depth:<depth>")]
pub(super) async fn recursive(depth: u32) -> AppResult<u32> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursive(depth - 1)).await?)
}

#[tokio::test]
async fn generics_lifetimes_and_qualifiers_are_kept() {
    let locks = memory().await;
    locks
        .scope(async {
            assert_eq!(generic("x", [0; 3]).await.expect("free"), ("x".into(), 3));
            let mut text = String::from("b");
            assert_eq!(lifetimes("a", &mut text).await.expect("free"), "a");
            assert_eq!(elided("a").await.expect("free"), "a");
            assert_eq!(inner_attributes().await.expect("free"), 2);
            assert_eq!(not_send().await.expect("free"), 1);
            assert_eq!(recursive(5).await.expect("free"), 5);
        })
        .await;
}
