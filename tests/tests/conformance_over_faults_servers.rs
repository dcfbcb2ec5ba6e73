//! The conformance suite over lost requests and replies, on servers: what managers repeat and undo there is safe to repeat and to undo.

use std::{sync::Arc, time::Duration};

use distlock::{
    backend::{
        Backend, Clock,
        etcd::{EtcdBackend, EtcdOptions},
        postgres::{self, PostgresOptions},
        redis::{RedisBackend, RedisOptions},
        zookeeper::{ZooKeeperBackend, ZooKeeperOptions},
    },
    testkit::conformance::{OverFaults, Store, Trouble, check_all},
};
use distlock_tests::server::{
    RedisOptions as ServerOptions, RedisServer, SharedPostgres, shared_etcd, shared_zookeeper,
};

/// Gives handles to a store by their labels.
struct At<F>(F);

#[async_trait::async_trait]
impl<F: Fn(&str) -> Arc<dyn Backend> + Send + Sync> Store for At<F> {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        (self.0)(label)
    }
}

#[track_caller]
fn gets_over_what_is_lost<F>(open: F)
where
    F: Fn(&str) -> Arc<dyn Backend> + Clone + Send + Sync + 'static,
{
    for trouble in [Trouble::LostReplies, Trouble::LostRequests] {
        let shortfalls = check_all(8, async || OverFaults::new(At(open.clone()), trouble));
        let told: Vec<String> = shortfalls.iter().map(ToString::to_string).collect();
        assert!(told.is_empty(), "over {trouble:?}: {told:#?}");
    }
}

#[test]
fn redis_gets_over_what_is_lost() {
    let server = RedisServer::start(ServerOptions::new()).unwrap();
    let url = server.url();
    gets_over_what_is_lost(move |label| {
        let options = RedisOptions::from_url(&url).unwrap().label(label);
        RedisBackend::open(&options, Clock::System).unwrap()
    });
}

#[test]
fn etcd_gets_over_what_is_lost() {
    let url = shared_etcd().unwrap();
    gets_over_what_is_lost(move |label| {
        let options = EtcdOptions::from_url(&url).unwrap().namespace("over-faults").label(label);
        EtcdBackend::open(&options, Clock::System).unwrap()
    });
}

#[test]
fn zookeeper_gets_over_what_is_lost() {
    let address = shared_zookeeper().unwrap();
    gets_over_what_is_lost(move |label| {
        let options = ZooKeeperOptions::new([(address.ip().to_string(), address.port())])
            .namespace("over-faults")
            // The cases' longest lease takes an hour.
            .session_timeout(Duration::from_secs(2 * 3_600))
            .label(label);
        ZooKeeperBackend::open(&options, Clock::System).unwrap()
    });
}

#[test]
fn postgres_gets_over_what_is_lost() {
    let url = SharedPostgres::attach().unwrap().url();
    gets_over_what_is_lost(move |label| {
        let options = PostgresOptions::from_url(&url).unwrap().namespace("over-faults").label(label);
        postgres::open(&options, Clock::System).unwrap()
    });
}
