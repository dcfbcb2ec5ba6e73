//! Every kind of receiver, and traits with async functions.

use std::sync::Arc;

use distlock::distributed_lock;

use super::other_work;
use crate::{AppResult, memory};

#[derive(Clone, Default)]
pub struct Service {
    pub(super) tenant: String,
    pub(super) calls: u32,
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
    pub(super) async fn owned(self) -> AppResult<Self> {
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

    pub(super) fn name(&self) -> String {
        format!("service {}", self.tenant)
    }

    pub(super) const fn lease(&self) -> std::time::Duration {
        std::time::Duration::from_secs(10 + self.calls as u64)
    }
}

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
