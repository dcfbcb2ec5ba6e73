//! ZooKeeper.

use std::time::Duration;

use distlock_tests::server::{Host, ZooKeeperEnsemble};
use tokio::time::sleep;
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::parted::{self, Servers, TTL};

/// What leases of this length need.
fn session(ttl: Duration) -> Duration {
    ttl * 4 / 3
}

impl Servers for ZooKeeperEnsemble {
    async fn start(hosts: &[Host]) -> Self {
        Self::start_on(hosts.first_chunk().expect("three hosts")).unwrap()
    }

    fn url(&self, ttl: Duration) -> String {
        format!("{}?session_timeout={}s", self.url(), session(ttl).as_secs())
    }

    async fn leader(&self) -> usize {
        self.leader().unwrap()
    }

    async fn take_naively(&self, name: &str) -> Box<dyn Send> {
        let places = self.url().trim_start_matches("zookeeper://").to_owned();
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        loop {
            // Its pings go on by themselves.
            if let Ok(client) = Client::connector().with_session_timeout(session(TTL)).connect(&places).await
            {
                let created = loop {
                    match client.create(&format!("/{name}"), b"", &options).await {
                        Err(Error::NodeExists) => sleep(Duration::from_millis(20)).await,
                        outcome => break outcome,
                    }
                };
                if created.is_ok() {
                    return Box::new(client);
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_holder_cut_off_with_the_leader_stops_before_the_next_one_enters() {
    parted::the_leader_is_cut_off_with_a_holder::<ZooKeeperEnsemble>().await;
}
