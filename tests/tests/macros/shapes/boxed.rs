//! Functions that return a boxed future: `async_trait`, and by hand.

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;

use distlock::distributed_lock;

use super::methods::Service;
use super::other_work;
use crate::{AppError, AppResult, memory};

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

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[distributed_lock(key = "b:<id>")]
pub(super) fn boxed(id: u64) -> BoxFuture<'static, AppResult<u64>> {
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
