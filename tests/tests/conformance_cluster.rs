//! The conformance suite on a Cluster, as the user with the least rights: the servers refuse nothing.

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

/// Two primaries, which all cases share: nothing fails over here.
struct Group(SharedRedis);

impl Group {
    fn start() -> Self {
        let more =
            "+cluster|slots +cluster|info +asking +spublish +ssubscribe +sunsubscribe &distlock!{*}!c:*";
        Self(SharedRedis::cluster(least_privilege::user(more)).unwrap())
    }

    fn name(key: &LockKey) -> String {
        format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE)
    }

    async fn admin(&self, key: &LockKey) -> redis::aio::MultiplexedConnection {
        self.0.admin_of(&Self::name(key)).await.unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        (0..self.0.count()).for_each(|server| least_privilege::check(async || self.0.admin(server).await));
    }
}

#[async_trait::async_trait]
impl Store for Group {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = RedisOptions::from_url(&self.0.url_as("locks:secret@", "")).unwrap().label(label);
        RedisBackend::open(&options, Clock::System).unwrap()
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        let mut push = redis::cmd("RPUSH");
        push.arg(Self::name(key)).arg("theirs").exec_async(&mut self.admin(key).await).await.unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let mut dump = redis::cmd("DUMP");
        dump.arg(Self::name(key)).query_async(&mut self.admin(key).await).await.unwrap()
    }
}

distlock_runtime::testkit::conformance!(Group::start());
