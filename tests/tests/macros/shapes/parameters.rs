//! Patterns and names of arguments.

use std::fmt::Display;

use distlock::distributed_lock;

use super::other_work;
use crate::{AppResult, memory};

pub struct Pay {
    pub id: u64,
    pub customer: Customer,
    pub r#type: String,
}

pub struct Customer {
    pub name: String,
}

impl Pay {
    pub const fn customer(&self) -> &Customer {
        &self.customer
    }
}

pub(super) fn pay(id: u64) -> Pay {
    Pay { id, customer: Customer { name: "Ada".into() }, r#type: "card".into() }
}

#[distributed_lock(
    key = "p:<pay.id>/<pay.customer.name>/<pay.customer().name.len()>/<pay.r#type>/<pair.0.1>#<r#type>"
)]
async fn paths(pay: &Pay, pair: ((u8, u8), u8), r#type: &str) -> AppResult<String> {
    other_work().await;
    Ok(format!("{}{}{}", pay.id, pair.0.1, r#type))
}

#[distributed_lock(key = "t:<a>:<b>")]
async fn tuple((a, b): (u32, String)) -> AppResult<usize> {
    other_work().await;
    Ok(a as usize + b.len())
}

#[distributed_lock(key = "t:<id>")]
pub(super) async fn leaving(Pay { id, .. }: Pay, mut after: String) -> AppResult<String> {
    other_work().await;
    after.push_str(&id.to_string());
    Ok(after)
}

/// `id` and `after` are used by the attribute alone, and are no unused variables.
#[distributed_lock(key = "t:<id>:<after>")]
async fn leaving_for_the_key(Pay { id, .. }: Pay, after: u64) -> AppResult<()> {
    other_work().await;
    Ok(())
}

#[distributed_lock(key = Pay { id, customer: Customer { name: String::new() }, r#type: String::new() }.id.to_string())]
async fn leaving_in_expression(Pay { id, .. }: Pay) -> AppResult<u64> {
    other_work().await;
    Ok(id)
}

#[distributed_lock(key = "t:<id>/<first>")]
#[allow(clippy::needless_borrowed_reference)]
async fn by_reference(&Customer { ref name }: &Customer, &id: &u64, [first, ..]: [u8; 3]) -> AppResult<u64> {
    other_work().await;
    Ok(id + name.len() as u64 + u64::from(first))
}

#[distributed_lock(key = "t:<x>")]
async fn mutable(mut x: u32, (mut y, z): (u32, u32), _: String) -> AppResult<u32> {
    x += 1;
    other_work().await;
    y += z;
    Ok(x + y)
}

#[distributed_lock(key = "t:<key>:<error>")]
#[allow(clippy::too_many_arguments)]
async fn names_of_ours(
    key: u32,
    body: u32,
    ret: u32,
    error: u32,
    value: u32,
    guard: u32,
    length: u32,
    __arg0: u32,
) -> AppResult<u32> {
    other_work().await;
    Ok(key + body + ret + error + value + guard + length + __arg0)
}

#[distributed_lock(key = "t:<id>")]
async fn configured(
    id: u64,
    #[cfg(not(test))] missing: NoSuchType,
    #[cfg(test)] present: u64,
    #[cfg(test)] Pay { id: other, .. }: Pay,
) -> AppResult<u64> {
    other_work().await;
    Ok(id + present + other)
}

#[distributed_lock(key = "underscored")]
async fn underscored(_unused: u64, _other: String) -> AppResult<()> {
    other_work().await;
    Ok(())
}

#[distributed_lock(key = "<who>")]
async fn impl_argument(who: impl Display + Send) -> AppResult<String> {
    other_work().await;
    Ok(who.to_string())
}

#[tokio::test]
async fn arguments_reach_the_body() {
    let locks = memory().await;
    locks
        .scope(async {
            assert_eq!(paths(&pay(1), ((2, 3), 4), "x").await.expect("free"), "13x");
            assert_eq!(tuple((1, "ab".into())).await.expect("free"), 3);
            assert_eq!(leaving(pay(5), "n".into()).await.expect("free"), "n5");
            leaving_for_the_key(pay(5), 6).await.expect("free");
            assert_eq!(leaving_in_expression(pay(5)).await.expect("free"), 5);
            assert_eq!(by_reference(&Customer { name: "Ada".into() }, &1, [1, 2, 3]).await.expect("free"), 5);
            assert_eq!(mutable(1, (2, 3), String::new()).await.expect("free"), 7);
            assert_eq!(names_of_ours(1, 1, 1, 1, 1, 1, 1, 1).await.expect("free"), 8);
            assert_eq!(configured(1, 2, pay(3)).await.expect("free"), 6);
            underscored(1, String::new()).await.expect("free");
            assert_eq!(impl_argument("x").await.expect("free"), "x");
        })
        .await;
}
