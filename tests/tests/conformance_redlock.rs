//! The conformance suite on three independent Redis servers, as the user with the least rights: they refuse nothing.

mod least_privilege;

use std::sync::Arc;

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        redis::RedisOptions,
        redlock::{RedlockBackend, RedlockOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::{self, RedisServer};

struct Redlock([RedisServer; 3]);

impl Redlock {
    fn start() -> Self {
        let options = server::RedisOptions::new().user(least_privilege::user(""));
        Self(std::array::from_fn(|_| RedisServer::start(options.clone()).unwrap()))
    }
}

impl Drop for Redlock {
    fn drop(&mut self) {
        self.0.iter().for_each(least_privilege::check);
    }
}

#[async_trait::async_trait]
impl Store for Redlock {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let url = |node: &RedisServer| node.url_with("locks", "secret", 0);
        let nodes = self.0.iter().map(|node| RedisOptions::from_url(&url(node)).unwrap().label(label));
        // The machine is shared with other tests.
        let options = RedlockOptions::new(nodes).node_timeout(std::time::Duration::from_secs(1));
        RedlockBackend::open(&options, Clock::System).unwrap()
    }

    fn has_records(&self) -> bool {
        false
    }

    fn has_latches(&self) -> bool {
        false
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        for node in &self.0 {
            let mut push = redis::cmd("RPUSH");
            let name = format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE);
            push.arg(name).arg("theirs").exec_async(&mut node.admin().await.unwrap()).await.unwrap();
        }
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let mut dump = redis::cmd("DUMP");
        let name = format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE);
        dump.arg(name).query_async(&mut self.0[0].admin().await.unwrap()).await.unwrap()
    }
}

distlock_runtime::testkit::conformance!(Redlock::start());
