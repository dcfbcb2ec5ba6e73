//! One Redis, or what speaks like one, as the conformance suite wants it.

use std::sync::Arc;

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        redis::{RedisBackend, RedisOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::{self, RedisServer};

/// One server, for one case.
pub(crate) struct Redis {
    server: RedisServer,
    url: String,
}

impl Redis {
    pub(crate) fn start(options: server::RedisOptions) -> Self {
        let server = RedisServer::start(options).unwrap();
        Self { url: server.url(), server }
    }

    /// The same, to be used by this user of the server.
    #[allow(dead_code, reason = "one suite needs it")]
    pub(crate) fn used_by(mut self, name: &str, password: &str) -> Self {
        self.url = self.server.url_with(name, password, 0);
        self
    }

    #[allow(dead_code, reason = "one suite needs it")]
    pub(crate) fn server(&self) -> &RedisServer {
        &self.server
    }

    fn name(key: &LockKey) -> String {
        format!("{}:{key}", RedisOptions::DEFAULT_NAMESPACE)
    }
}

#[async_trait::async_trait]
impl Store for Redis {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = RedisOptions::from_url(&self.url).unwrap().label(label);
        let backend = RedisBackend::open(&options, Clock::System).unwrap();
        // As every manager does: it also learns what the server can.
        backend.check().await.unwrap();
        backend
    }

    /// A list: what another program might keep under such a name.
    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        let mut push = redis::cmd("RPUSH");
        push.arg(Self::name(key))
            .arg("theirs")
            .exec_async(&mut self.server.admin().await.unwrap())
            .await
            .unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let mut dump = redis::cmd("DUMP");
        dump.arg(Self::name(key)).query_async(&mut self.server.admin().await.unwrap()).await.unwrap()
    }
}
