//! Every kind of function that the attribute goes on.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use distlock::{ErrorKind, LockError, distributed_lock};

use crate::{AppError, AppResult, memory};

async fn other_work() {
    tokio::task::yield_now().await;
}

// --- return types ---

#[distributed_lock(key = "order:<id>", ttl = "30s", reentrant)]
async fn result(id: u64) -> Result<u64, AppError> {
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

// --- parameters ---

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

fn pay(id: u64) -> Pay {
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
async fn leaving(Pay { id, .. }: Pay, mut after: String) -> AppResult<String> {
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

// --- generics, lifetimes, qualifiers ---

#[distributed_lock(key = "g:<value>")]
async fn generic<T, const N: usize>(value: &T, list: [u8; N]) -> AppResult<(String, usize)>
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
async fn recursive(depth: u32) -> AppResult<u32> {
    if depth == 0 {
        return Ok(0);
    }
    Ok(1 + Box::pin(recursive(depth - 1)).await?)
}

// --- methods ---

#[derive(Clone, Default)]
pub struct Service {
    tenant: String,
    calls: u32,
}

impl Service {
    #[distributed_lock(key = "s:<self.tenant>")]
    async fn shared(&self, id: u64) -> AppResult<String> {
        other_work().await;
        Ok(format!("{}{id}", self.tenant))
    }

    #[distributed_lock(key = "s:<self.tenant>:<id>")]
    async fn exclusive(&mut self, id: u64) -> AppResult<u32> {
        self.calls += 1;
        other_work().await;
        Ok(self.calls)
    }

    #[distributed_lock(key = "s:<self.tenant>")]
    async fn owned(self) -> AppResult<Self> {
        other_work().await;
        Ok(self)
    }

    #[distributed_lock(key = "s:<self.tenant>")]
    async fn owned_mut(mut self) -> AppResult<Self> {
        self.calls += 1;
        other_work().await;
        Ok(self)
    }

    #[distributed_lock(key = "s:<self.tenant>")]
    async fn in_arc(self: Arc<Self>) -> AppResult<u32> {
        other_work().await;
        Ok(self.calls)
    }

    #[distributed_lock(key = "associated")]
    async fn associated() -> AppResult<Self> {
        other_work().await;
        Ok(Self::default())
    }

    #[distributed_lock(key = self.name(), ttl = self.lease(), wait = self.lease(), max_hold = self.lease())]
    async fn by_expressions(&self) -> AppResult<u32> {
        other_work().await;
        Ok(self.calls)
    }

    fn name(&self) -> String {
        format!("service {}", self.tenant)
    }

    const fn lease(&self) -> std::time::Duration {
        std::time::Duration::from_secs(10 + self.calls as u64)
    }
}

// --- traits ---

trait Native {
    async fn run(&self, id: u64) -> AppResult<u64>;
}

impl Native for Service {
    #[distributed_lock(key = "n:<self.tenant>:<id>")]
    async fn run(&self, id: u64) -> AppResult<u64> {
        other_work().await;
        Ok(id)
    }
}

#[async_trait::async_trait]
trait Object: Send {
    async fn shared(&self, id: u64) -> AppResult<String>;
    async fn exclusive(&mut self, pair: (u32, String)) -> AppResult<u32>;
    async fn quiet(&self, id: u64);
    async fn with_answers(&self) -> String;
    async fn generic<T: Display + Send + 'static>(self, value: T) -> AppResult<String>
    where
        Self: Sized;
    #[distributed_lock(key = "default:<id>")]
    async fn with_default(&self, id: u64) -> AppResult<u64> {
        other_work().await;
        Ok(id)
    }
}

#[async_trait::async_trait]
impl Object for Service {
    #[distributed_lock(key = "o:<self.tenant>:<id>")]
    async fn shared(&self, id: u64) -> AppResult<String> {
        other_work().await;
        if id == 0 {
            return Err(AppError("none".into()));
        }
        Ok(format!("{}{id}", self.tenant))
    }

    #[distributed_lock(key = "o:<self.tenant>:<a>:<b>", guard = hold)]
    async fn exclusive(&mut self, (a, b): (u32, String)) -> AppResult<u32> {
        self.calls += a;
        other_work().await;
        assert!(hold.is_valid());
        Ok(self.calls + u32::try_from(b.len()).expect("a short text"))
    }

    #[distributed_lock(key = "o:<id>", on_error = ())]
    async fn quiet(&self, id: u64) {
        other_work().await;
    }

    #[distributed_lock(key = self.name(), ttl = self.lease(), on_busy = self.name(), on_error = |_| self.name())]
    async fn with_answers(&self) -> String {
        other_work().await;
        self.tenant.clone()
    }

    #[distributed_lock(key = "o:<value>")]
    async fn generic<T: Display + Send + 'static>(self, value: T) -> AppResult<String> {
        other_work().await;
        Ok(value.to_string())
    }
}

// --- futures by hand ---

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "b:<id>")]
fn boxed(id: u64) -> BoxFuture<'static, AppResult<u64>> {
    let twice = id * 2;
    Box::pin(async move {
        other_work().await;
        Ok(twice)
    })
}

#[distributed_lock(key = "b:<id>")]
fn returned_block(id: u64) -> impl Future<Output = AppResult<u64>> + Send {
    async move {
        other_work().await;
        Ok(id)
    }
}

#[distributed_lock(key = "b:<id>")]
fn old_async_trait(id: u64) -> Pin<Box<dyn Future<Output = AppResult<u64>> + Send + 'static>> {
    async fn inner(id: u64) -> AppResult<u64> {
        other_work().await;
        Ok(id)
    }
    Box::pin(inner(id))
}

// --- other attributes, macros ---

#[distributed_lock(key = "i:<id>")]
#[tracing::instrument(skip(secret))]
async fn instrumented(id: u64, secret: String) -> AppResult<u64> {
    other_work().await;
    Ok(id + secret.len() as u64)
}

#[tracing::instrument(skip(secret))]
#[distributed_lock(key = "i:<id>")]
async fn instrumented_outside(id: u64, secret: String) -> AppResult<u64> {
    other_work().await;
    Ok(id + secret.len() as u64)
}

macro_rules! locked_function {
    ($name:ident, $arg:ident, $key:literal, $ttl:expr) => {
        #[distributed_lock(key = $key, ttl = $ttl)]
        async fn $name($arg: u64) -> AppResult<u64> {
            let hidden = 1;
            other_work().await;
            Ok($arg + hidden)
        }
    };
}
locked_function!(from_macro, id, "m:<id>", "5s");

macro_rules! hygienic_argument {
    ($name:ident) => {
        #[distributed_lock(key = "m:<arg>")]
        async fn $name(arg: u64) -> AppResult<u64> {
            other_work().await;
            Ok(arg)
        }
    };
}
hygienic_argument!(from_macro_too);

mod shadowed {
    //! Names that generated code must not stumble over.
    #![allow(dead_code, non_camel_case_types, unused_macros)]
    use ::distlock::distributed_lock;

    struct Option;
    struct Some;
    struct Result;
    struct Ok;
    struct Err;
    struct Duration;
    mod core {}
    mod std {}
    mod distlock {}
    type u64 = u8;
    macro_rules! concat {
        () => {};
    }
    macro_rules! stringify {
        () => {};
    }

    #[distributed_lock(key = "order:<id>", ttl = "3s", on_error = 1)]
    pub async fn works(id: u64) -> u64 {
        super::other_work().await;
        id
    }
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
            assert_eq!(generic("x", [0; 3]).await.expect("free"), ("x".into(), 3));
            let mut text = String::from("b");
            assert_eq!(lifetimes("a", &mut text).await.expect("free"), "a");
            assert_eq!(elided("a").await.expect("free"), "a");
            assert_eq!(inner_attributes().await.expect("free"), 2);
            assert_eq!(not_send().await.expect("free"), 1);
            assert_eq!(recursive(5).await.expect("free"), 5);
            assert_eq!(from_macro(1).await.expect("free"), 2);
            assert_eq!(from_macro_too(1).await.expect("free"), 1);
            assert_eq!(shadowed::works(2).await, 2);
        })
        .await;
}

#[tokio::test]
async fn methods_keep_their_receiver() {
    let locks = memory().await;
    let mut service = Service { tenant: "acme".into(), calls: 0 };
    locks
        .scope(async {
            assert_eq!(service.shared(1).await.expect("free"), "acme1");
            assert_eq!(service.exclusive(1).await.expect("free"), 1);
            assert_eq!(service.clone().owned().await.expect("free").calls, 1);
            assert_eq!(service.clone().owned_mut().await.expect("free").calls, 2);
            assert_eq!(Arc::new(service.clone()).in_arc().await.expect("free"), 1);
            assert_eq!(Service::associated().await.expect("free").calls, 0);
            assert_eq!(service.by_expressions().await.expect("free"), 1);
            assert_eq!(Native::run(&service, 4).await.expect("free"), 4);
        })
        .await;
}

#[tokio::test]
async fn boxed_futures_are_wrapped_inside() {
    let locks = memory().await;
    let mut service = Service { tenant: "acme".into(), calls: 0 };
    locks
        .scope(async {
            assert_eq!(Object::shared(&service, 1).await.expect("free"), "acme1");
            assert_eq!(Object::shared(&service, 0).await.expect_err("refused by the body").0, "none");
            assert_eq!(Object::exclusive(&mut service, (2, "abc".into())).await.expect("free"), 5);
            Object::quiet(&service, 1).await;
            assert_eq!(service.with_answers().await, "acme");
            assert_eq!(service.with_default(3).await.expect("free"), 3);
            assert_eq!(Object::generic(service, 7).await.expect("free"), "7");
            assert_eq!(boxed(3).await.expect("free"), 6);
            assert_eq!(returned_block(3).await.expect("free"), 3);
            assert_eq!(old_async_trait(3).await.expect("free"), 3);
        })
        .await;
}

#[tokio::test]
async fn other_attributes_may_stand_above_and_below() {
    let locks = memory().await;
    locks
        .scope(async {
            assert_eq!(instrumented(1, "s".into()).await.expect("free"), 2);
            assert_eq!(instrumented_outside(1, "s".into()).await.expect("free"), 2);
        })
        .await;
}

#[distributed_lock(key = "test", on_error = |error| assert_eq!(error.kind(), ErrorKind::Config))]
#[tokio::test]
async fn a_test_without_a_manager_gets_a_config_error() {
    unreachable!("no manager is installed in this process");
}

#[test]
fn futures_stay_send() {
    const fn is_send<T: Send>(_: &T) {}
    is_send(&result(1));
    is_send(&leaving(pay(1), String::new()));
    is_send(&boxed(1));
    is_send(&recursive(1));
    is_send(&Service::default().owned());
    is_send(&generic(&1, [1]));
}

#[test]
fn unused_shapes_compile() {
    drop((never(), never_inside(), never_returns(1)));
}
