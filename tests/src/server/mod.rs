//! Real servers on free loopback ports, one for each test: a Redis is up in about 15 ms. Those that take seconds are shared.
//!
//! ```no_run
//! # async fn demo() -> anyhow::Result<()> {
//! use distlock_tests::server::{RedisOptions, RedisServer};
//!
//! let server = RedisServer::start(RedisOptions::new().aof())?;
//! let url = server.url();
//! server.kill()?;
//! server.restart()?;
//! assert_eq!(server.keys().await?, Vec::<String>::new());
//! # Ok(()) }
//! ```
//!
//! * `redis` - the server's life: start, pause, kill, restart
//! * `options` - what it is started with
//! * `redlock` - several independent servers
//! * `sentinel` - a primary with replicas and Sentinels
//! * `zookeeper`, `zookeeper_setup` - one server, and three that vote
//! * `clock` - a wall clock that can be moved
//! * `cluster` - primaries that share the slots, with replicas
//! * `etcd` - an etcd cluster
//! * `admin` - looking into it: keys, clients, command counts, MONITOR
//! * `tls` - a throw-away certificate authority
//! * `postgres`, `pgbouncer` - a Postgres of one test, and a pooler in front
//! * `postgres_standby` - a second Postgres that follows the first, and may take over
//! * `shared` - servers for all tests of a run that only use them
//! * `account` - programs that refuse to run as root
//! * `link` - a way between two servers on which nothing may pass
//! * `network` - hosts with a network of their own, which can be parted
//! * `child`, `port` - processes that die with us, ports that nobody else takes
//!
//! A missing server program is an error that names the package to install, never a skipped test.

mod account;
mod admin;
pub(crate) mod child;
mod clock;
mod cluster;
mod etcd;
mod link;
mod network;
mod options;
mod pgbouncer;
mod port;
mod postgres;
mod postgres_standby;
mod redis;
mod redlock;
mod sentinel;
mod shared;
mod tls;
mod zookeeper;
mod zookeeper_setup;

pub use self::{
    admin::Monitor,
    child::find_program,
    cluster::ClusterGroup,
    etcd::{EtcdCluster, EtcdSetup},
    network::{Host, Network},
    options::{ClientCerts, RedisOptions},
    pgbouncer::PgBouncer,
    port::PortLease,
    postgres::{PostgresOptions, PostgresServer, client as postgres_client},
    redis::RedisServer,
    redlock::RedlockNodes,
    sentinel::{GROUP, SentinelGroup},
    shared::{SharedPostgres, SharedRedis, keep, shared_etcd, shared_zookeeper},
    tls::{TestCa, TlsFiles},
    zookeeper::{TICK, ZooKeeperEnsemble, ZooKeeperServer},
    zookeeper_setup::ZooKeeperSetup,
};
