//! The conformance suite on one Redis as the user with the least rights: all of it passes, and the server refused nothing.

mod least_privilege;
mod redis_store;

use std::sync::Arc;

use distlock_runtime::{LockKey, backend::Backend, testkit::conformance::Store};
use distlock_tests::server::RedisOptions;
use redis_store::Redis;

struct Restricted(Redis);

impl Restricted {
    fn start() -> Self {
        Self(Redis::start(RedisOptions::new().user(least_privilege::user(""))).used_by("locks", "secret"))
    }
}

impl Drop for Restricted {
    fn drop(&mut self) {
        least_privilege::check(async || self.0.server().admin().await);
    }
}

#[async_trait::async_trait]
impl Store for Restricted {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        self.0.backend(label).await
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        self.0.put_foreign_value(key).await
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        self.0.foreign_value(key).await
    }
}

distlock_runtime::testkit::conformance!(Restricted::start());

/// The check bites.
#[tokio::test]
#[should_panic(expected = "flushall")]
async fn what_was_refused_is_seen() {
    let store = Restricted::start();
    let url = store.0.server().url_with("locks", "secret", 0);
    let mut connection = redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap();
    redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap_err();
}
