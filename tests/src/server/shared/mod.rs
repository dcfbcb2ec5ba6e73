//! Servers that all tests of one run share: starting one costs more than most tests that only use it.
//!
//! The first test that asks starts a keeper, a process of its own, which starts the servers, says where they are and ends them when the
//! run has ended. They die with the keeper, however it ends. Tests use names of their own on them, and never stop them.

mod keeper;
mod kind;
mod postgres;
mod redis;

use std::net::SocketAddr;

use anyhow::Context;

use self::{keeper::attach, kind::Kind};
pub use self::{keeper::keep, postgres::SharedPostgres, redis::SharedRedis};

/// Where the etcd of this run is: one member, without users.
///
/// # Errors
/// When etcd isn't installed (the message says how to get it), or isn't up in time.
pub fn shared_etcd() -> anyhow::Result<String> {
    Ok(attach(&Kind::Etcd)?.url)
}

/// Where the ZooKeeper server of this run is.
///
/// # Errors
/// As [`ZooKeeperServer::start`](super::ZooKeeperServer::start).
pub fn shared_zookeeper() -> anyhow::Result<SocketAddr> {
    let place = attach(&Kind::ZooKeeper)?;
    place.url.trim_start_matches("zookeeper://").parse().context("an address of the harness")
}
