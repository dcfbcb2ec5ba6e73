//! One etcd as the conformance suite wants it.

use std::sync::Arc;

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        etcd::{EtcdBackend, EtcdOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::{EtcdCluster, EtcdSetup};

/// A cluster of its own for one case.
pub(crate) struct Etcd(EtcdCluster);

impl Etcd {
    pub(crate) async fn start(setup: EtcdSetup) -> Self {
        Self(EtcdCluster::start(setup).await.unwrap())
    }

    fn name(key: &LockKey) -> String {
        format!("{}/lock/{key}/theirs", EtcdOptions::DEFAULT_NAMESPACE)
    }
}

#[async_trait::async_trait]
impl Store for Etcd {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = EtcdOptions::from_url(&self.0.url()).unwrap().label(label);
        EtcdBackend::open(&options, Clock::System).unwrap()
    }

    fn has_latches(&self) -> bool {
        false
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        self.0.client().await.unwrap().put(Self::name(key), "theirs", None).await.unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let found = self.0.client().await.unwrap().get(Self::name(key), None).await.unwrap();
        Some(found.kvs().first()?.value().to_vec())
    }
}
