//! What is promised on ZooKeeper, under faults.

mod conversions;
mod ensemble;
mod ghosts;
mod herd;
mod kept;
mod rights;
mod secure;
mod sessions;
mod tokens;
mod wire;

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use distlock::LockManager;
use distlock_runtime::{
    Clock, LockKey, OwnerToken, Ttl,
    backend::{
        AcquireRequest, Mode,
        zookeeper::{ZooKeeperBackend, ZooKeeperOptions},
    },
};
use distlock_tests::naive::{NaiveZooKeeper, ZooKeeperFlaw};
use zookeeper_client::Client;

/// How long anything that must happen may take on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(30);

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[allow(clippy::disallowed_methods, reason = "measures how long others wait for a lock")]
fn now() -> Instant {
    Instant::now()
}

/// A key that no other test uses.
fn fresh(name: &str) -> String {
    format!("{name}-{:016x}", fastrand::u64(..))
}

fn options(address: SocketAddr, session: Duration) -> ZooKeeperOptions {
    ZooKeeperOptions::new([(address.ip().to_string(), address.port())]).session_timeout(session)
}

fn backend(address: SocketAddr, session: Duration) -> Arc<ZooKeeperBackend> {
    ZooKeeperBackend::open(&options(address, session), Clock::System).unwrap()
}

async fn manager(address: SocketAddr, session: Duration) -> LockManager {
    let builder = LockManager::builder().ttl(session * 3 / 4);
    builder.backend(backend(address, session)).await.unwrap()
}

fn request(key: &str, ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        key: LockKey::new(key).unwrap(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(ttl).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: true,
        tokens: 1,
    }
}

/// A client of the library's own, for looking and for the naive locks.
async fn raw(address: SocketAddr) -> Client {
    Client::connector()
        .with_session_timeout(Duration::from_secs(60))
        .connect(&address.to_string())
        .await
        .unwrap()
}

/// A naive lock with a session of its own.
async fn naive(places: &str, session: Duration, flaw: ZooKeeperFlaw) -> NaiveZooKeeper {
    NaiveZooKeeper::connect(places, session, flaw).await.unwrap()
}

/// What stands at a lock.
async fn places(client: &Client, key: &str) -> Vec<String> {
    client.list_children(&format!("/distlock/{key}")).await.unwrap_or_default()
}
