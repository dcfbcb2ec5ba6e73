//! The conformance suite on the primary of a group that a Sentinel watches, as the user with the least rights: the server refuses nothing.

mod least_privilege;

use std::sync::Arc;

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        redis::{RedisBackend, RedisOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::SharedRedis;

/// A primary and its replica, which all cases share: nothing fails over here.
struct Group(SharedRedis);

impl Group {
    fn start() -> Self {
        Self(SharedRedis::sentinel(least_privilege::user("+role +wait")).unwrap())
    }

    fn name(key: &LockKey) -> String {
        format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE)
    }

    async fn admin(&self) -> redis::aio::MultiplexedConnection {
        self.0.admin(0).await.unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        least_privilege::check(async || self.0.admin(0).await);
    }
}

#[async_trait::async_trait]
impl Store for Group {
    /// With all that is asked of replicas, so that every operation goes that way.
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let url = self.0.url_as("locks:secret@", "min_replicas=1&replica_timeout=1s&strict_failover=on");
        let options = RedisOptions::from_url(&url).unwrap().label(label);
        RedisBackend::open(&options, Clock::System).unwrap()
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        let mut push = redis::cmd("RPUSH");
        push.arg(Self::name(key)).arg("theirs").exec_async(&mut self.admin().await).await.unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let mut dump = redis::cmd("DUMP");
        dump.arg(Self::name(key)).query_async(&mut self.admin().await).await.unwrap()
    }
}

distlock_runtime::testkit::conformance!(Group::start());
