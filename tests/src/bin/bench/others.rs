//! The servers of the stores beside Redis, each started when the first measurement needs it.

use distlock_tests::server::{EtcdCluster, EtcdSetup, PostgresOptions, PostgresServer, ZooKeeperServer};
use tokio::sync::OnceCell;

use crate::job::Store;

/// One server each, on one disk, nothing synced: the stores' own work is compared, not the disk's.
#[derive(Debug, Default)]
pub(crate) struct Others {
    etcd: OnceCell<EtcdCluster>,
    zookeeper: OnceCell<ZooKeeperServer>,
    postgres: OnceCell<PostgresServer>,
}

impl Others {
    pub(crate) async fn url(&self, store: Store) -> anyhow::Result<String> {
        Ok(match store {
            Store::Redis => anyhow::bail!("Redis is the fleet's own"),
            Store::Etcd => self.etcd.get_or_try_init(|| EtcdCluster::start(EtcdSetup::new(1))).await?.url(),
            Store::ZooKeeper => {
                self.zookeeper.get_or_try_init(async || ZooKeeperServer::start()).await?.url()
            }
            Store::PostgresRow => format!("{}?mode=row", self.postgres().await?.url()),
            Store::PostgresAdvisory => format!("{}?mode=advisory", self.postgres().await?.url()),
        })
    }

    async fn postgres(&self) -> anyhow::Result<&PostgresServer> {
        self.postgres.get_or_try_init(async || PostgresServer::start(PostgresOptions::new())).await
    }
}
