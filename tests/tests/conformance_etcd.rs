//! The conformance suite on one member of etcd, which all of its cases share.

use std::sync::Arc;

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        etcd::{EtcdBackend, EtcdOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::shared_etcd;

struct Etcd {
    url: String,
    namespace: String,
}

impl Etcd {
    fn start() -> Self {
        let namespace = format!("case-{:016x}", fastrand::u64(..));
        Self { url: shared_etcd().unwrap(), namespace }
    }

    fn name(&self, key: &LockKey) -> String {
        format!("{}/lock/{key}/theirs", self.namespace)
    }

    /// For what another program would do.
    async fn client(&self) -> etcd_client::Client {
        let place = self.url.replacen("etcd://", "http://", 1);
        etcd_client::Client::connect([place], None).await.unwrap()
    }
}

#[async_trait::async_trait]
impl Store for Etcd {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = EtcdOptions::from_url(&self.url).unwrap().namespace(&self.namespace).label(label);
        EtcdBackend::open(&options, Clock::System).unwrap()
    }

    fn has_latches(&self) -> bool {
        false
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        self.client().await.put(self.name(key), "theirs", None).await.unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let found = self.client().await.get(self.name(key), None).await.unwrap();
        Some(found.kvs().first()?.value().to_vec())
    }
}

distlock_runtime::testkit::conformance!(Etcd::start());
