//! Independent servers that are the nodes of one Redlock.

use super::{RedisOptions, RedisServer};

/// Several servers that know nothing of each other.
#[derive(Debug)]
pub struct RedlockNodes(Vec<RedisServer>);

impl RedlockNodes {
    /// Servers that keep what they were told through a crash of the machine: appended to a file, synced at every write.
    ///
    /// # Panics
    /// When one doesn't start; see [`RedisServer::start`].
    pub fn start(count: usize) -> Self {
        Self::start_with(count, RedisOptions::new().aof().config("appendfsync always"))
    }

    /// Servers with these settings.
    ///
    /// # Panics
    /// When one doesn't start; see [`RedisServer::start`].
    pub fn start_with(count: usize, options: RedisOptions) -> Self {
        let node = |_| RedisServer::start(options.clone()).unwrap_or_else(|error| panic!("{error:#}"));
        Self((0..count).map(node).collect())
    }

    /// The servers.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.0
    }

    /// The URL of all of them, with these parameters.
    pub fn url(&self, parameters: &str) -> String {
        let hosts: Vec<String> = self.0.iter().map(|node| node.address().to_string()).collect();
        format!("redlock://{}?{parameters}", hosts.join(","))
    }
}
