//! The conformance suite on three independent Redis servers, as the user with the least rights: they refuse nothing.

mod least_privilege;

use std::{sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        redis::RedisOptions,
        redlock::{RedlockBackend, RedlockOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::SharedRedis;

/// Three servers, which all cases share.
struct Redlock(SharedRedis);

impl Redlock {
    fn start() -> Self {
        Self(SharedRedis::redlock(least_privilege::user("")).unwrap())
    }
}

impl Drop for Redlock {
    fn drop(&mut self) {
        (0..self.0.count()).for_each(|server| least_privilege::check(async || self.0.admin(server).await));
    }
}

#[async_trait::async_trait]
impl Store for Redlock {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        // The machine is shared with other tests.
        let options = RedlockOptions::from_url(&self.0.url_as("locks:secret@", "")).unwrap();
        let options = options.or_label(label).node_timeout(Duration::from_secs(1));
        RedlockBackend::open(&options, Clock::System).unwrap()
    }

    fn has_records(&self) -> bool {
        false
    }

    fn has_latches(&self) -> bool {
        false
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        for node in 0..self.0.count() {
            let mut push = redis::cmd("RPUSH");
            let name = format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE);
            push.arg(name).arg("theirs").exec_async(&mut self.0.admin(node).await.unwrap()).await.unwrap();
        }
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let mut dump = redis::cmd("DUMP");
        let name = format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE);
        dump.arg(name).query_async(&mut self.0.admin(0).await.unwrap()).await.unwrap()
    }
}

distlock_runtime::testkit::conformance!(Redlock::start());
