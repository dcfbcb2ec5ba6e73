//! The Redis servers of a run: several of them, that are one store.

use anyhow::Context;
use redis::aio::MultiplexedConnection;

use super::{
    super::admin,
    Kind, attach,
    kind::{Place, RedisGroup},
};

/// Servers that the tests of one run share, with the default user and one that is given.
#[derive(Clone, Debug)]
pub struct SharedRedis(Place);

impl SharedRedis {
    /// A Cluster of two primaries without replicas, whose servers know this user: what follows `user` in a configuration.
    ///
    /// # Errors
    /// As [`RedisServer::start`](crate::server::RedisServer::start).
    pub fn cluster(user: impl Into<String>) -> anyhow::Result<Self> {
        Self::attach(RedisGroup::Cluster, user.into())
    }

    /// A primary with one replica, which knows this user, and one Sentinel.
    ///
    /// # Errors
    /// As [`RedisServer::start`](crate::server::RedisServer::start).
    pub fn sentinel(user: impl Into<String>) -> anyhow::Result<Self> {
        Self::attach(RedisGroup::Sentinel, user.into())
    }

    /// Three servers that know nothing of each other, and this user.
    ///
    /// # Errors
    /// As [`RedisServer::start`](crate::server::RedisServer::start).
    pub fn redlock(user: impl Into<String>) -> anyhow::Result<Self> {
        Self::attach(RedisGroup::Redlock, user.into())
    }

    fn attach(group: RedisGroup, user: String) -> anyhow::Result<Self> {
        attach(&Kind::Redis { group, user }).map(Self)
    }

    /// The URL of all of them, with these credentials (`user:password@`) and parameters.
    pub fn url_as(&self, credentials: &str, parameters: &str) -> String {
        format!("{}{parameters}", self.0.url.replacen("://", &format!("://{credentials}"), 1))
    }

    /// How many servers there are. The first of a group that a Sentinel watches is its primary.
    pub fn count(&self) -> usize {
        self.0.servers.len()
    }

    /// A connection to one of them with all rights.
    ///
    /// # Errors
    /// When the server doesn't answer within 5 s.
    pub async fn admin(&self, server: usize) -> anyhow::Result<MultiplexedConnection> {
        admin::connect(&redis::Client::open(self.0.servers[server].as_str())?).await
    }

    /// The same to the one that serves this key.
    ///
    /// # Errors
    /// When no server does.
    pub async fn admin_of(&self, key: &str) -> anyhow::Result<MultiplexedConnection> {
        for server in 0..self.count() {
            let mut connection = self.admin(server).await?;
            // Of a Cluster all others say where it went.
            let asked = redis::cmd("EXISTS").arg(key).exec_async(&mut connection).await;
            if asked.is_ok() {
                return Ok(connection);
            }
        }
        None.context("no server of the group serves the key")
    }
}
