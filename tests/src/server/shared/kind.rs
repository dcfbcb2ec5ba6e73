//! What can be shared, and how it is started.

use serde::{Deserialize, Serialize};

use super::super::{
    ClusterGroup, EtcdCluster, EtcdSetup, PostgresOptions, PostgresServer, RedisOptions, RedisServer,
    RedlockNodes, SentinelGroup, ZooKeeperServer,
};

/// Kinds of servers. Equal ones are shared.
#[derive(Clone, Debug, Hash, Serialize, Deserialize)]
pub(super) enum Kind {
    Etcd,
    Postgres,
    Redis { group: RedisGroup, user: String },
    ZooKeeper,
}

#[derive(Clone, Copy, Debug, Hash, Serialize, Deserialize)]
pub(super) enum RedisGroup {
    Cluster,
    Redlock,
    Sentinel,
}

/// Where they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Place {
    /// For clients, without credentials.
    pub(super) url: String,
    /// For the harness's own questions to a Redis: a URL with all rights for each server.
    pub(super) servers: Vec<String>,
}

/// Servers that run until this is dropped.
pub(super) type Running = Box<dyn std::any::Any>;

impl Kind {
    /// A word for the names of folders.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Postgres => "postgres",
            Self::Redis { group: RedisGroup::Cluster, .. } => "cluster",
            Self::Redis { group: RedisGroup::Redlock, .. } => "redlock",
            Self::Redis { group: RedisGroup::Sentinel, .. } => "sentinel",
            Self::ZooKeeper => "zookeeper",
        }
    }

    /// Starts servers, small ones: the machine is full of tests, and nothing fails over here.
    pub(super) fn start(&self) -> anyhow::Result<(Place, Running)> {
        let place = |url, servers: &[RedisServer]| {
            let servers = servers.iter().map(RedisServer::admin_url).collect();
            Place { url, servers }
        };
        Ok(match self {
            Self::Etcd => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let server = runtime.block_on(EtcdCluster::start(EtcdSetup::new(1)))?;
                (place(server.url(), &[]), Box::new(server))
            }
            Self::Postgres => {
                let server = PostgresServer::start(PostgresOptions::new())?;
                (place(server.url(), &[]), Box::new(server))
            }
            Self::ZooKeeper => {
                let server = ZooKeeperServer::start()?;
                (place(server.url(), &[]), Box::new(server))
            }
            Self::Redis { group, user } => {
                let options = RedisOptions::new().user(user);
                match group {
                    RedisGroup::Cluster => {
                        let group = ClusterGroup::start_with(2, 0, options);
                        group.be_patient()?;
                        (place(group.url(""), group.servers()), Box::new(group))
                    }
                    RedisGroup::Redlock => {
                        let group = RedlockNodes::start_with(3, options);
                        (place(group.url(""), group.nodes()), Box::new(group))
                    }
                    RedisGroup::Sentinel => {
                        let group = SentinelGroup::start_with(1, 1, options, RedisOptions::new());
                        group.be_patient()?;
                        (place(group.url(""), group.servers()), Box::new(group))
                    }
                }
            }
        })
    }
}
