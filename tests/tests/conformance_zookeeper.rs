//! The conformance suite on one ZooKeeper server, which all of its cases share.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, LockKey,
    backend::{
        Backend,
        zookeeper::{ZooKeeperBackend, ZooKeeperOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::shared_zookeeper;
use zookeeper_client::{Acls, Client, CreateMode, Error};

struct ZooKeeper {
    address: SocketAddr,
    namespace: String,
}

impl ZooKeeper {
    fn start() -> Self {
        let namespace = format!("case-{:016x}", fastrand::u64(..));
        Self { address: shared_zookeeper().unwrap(), namespace }
    }

    fn path(&self, key: &LockKey) -> String {
        format!("/{}/{key}", self.namespace)
    }
}

#[async_trait::async_trait]
impl Store for ZooKeeper {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = ZooKeeperOptions::new([(self.address.ip().to_string(), self.address.port())])
            .namespace(&self.namespace)
            // The cases' longest lease takes an hour.
            .session_timeout(Duration::from_secs(2 * 3_600))
            .label(label);
        ZooKeeperBackend::open(&options, Clock::System).unwrap()
    }

    fn has_records(&self) -> bool {
        false
    }

    fn has_latches(&self) -> bool {
        false
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        let client = Client::connect(&self.address.to_string()).await.unwrap();
        let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(&self.path(key), &mode).await.unwrap();
        client.create(&format!("{}/theirs", self.path(key)), b"theirs", &mode).await.unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        let client = Client::connect(&self.address.to_string()).await.unwrap();
        let mut names = client.list_children(&self.path(key)).await.unwrap();
        names.sort();
        let theirs = client.get_data(&format!("{}/theirs", self.path(key))).await;
        let (data, stat) = theirs.unwrap_or_else(|error: Error| panic!("it is gone: {error}"));
        Some(format!("{names:?} {data:?} {}", stat.mzxid).into_bytes())
    }
}

distlock_runtime::testkit::conformance!(ZooKeeper::start());
