//! etcd.

use std::time::Duration;

use distlock_tests::server::{EtcdCluster, Host};
use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use tokio::time::{sleep, timeout};

use super::parted::{self, Servers, TTL};

impl Servers for EtcdCluster {
    async fn start(hosts: &[Host]) -> Self {
        Self::start_on(hosts).await.unwrap()
    }

    fn url(&self, _: Duration) -> String {
        self.url()
    }

    async fn leader(&self) -> usize {
        self.leader().await.unwrap()
    }

    async fn take_naively(&self, name: &str) -> Box<dyn Send> {
        loop {
            // Some member that answers; who is cut off would wait long for one that doesn't.
            if let Ok(Ok(true)) = timeout(Duration::from_secs(2), attempt(self, name)).await {
                return Box::new(());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Puts the name if it isn't there, on a lease that is kept alive for as long as somebody answers.
async fn attempt(cluster: &EtcdCluster, name: &str) -> anyhow::Result<bool> {
    let mut client = cluster.client().await?;
    let lease = client.lease_grant(i64::try_from(TTL.as_secs())?, None).await?.id();
    let put = TxnOp::put(name, "", Some(PutOptions::new().with_lease(lease)));
    let free = Compare::create_revision(name, CompareOp::Equal, 0);
    if !client.txn(Txn::new().when([free]).and_then([put])).await?.succeeded() {
        client.lease_revoke(lease).await?;
        return Ok(false);
    }
    tokio::spawn(async move {
        let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
        while keeper.keep_alive().await.is_ok() {
            answers.message().await?;
            sleep(TTL / 3).await;
        }
        anyhow::Ok(())
    });
    Ok(true)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_holder_cut_off_with_the_leader_stops_before_the_next_one_enters() {
    parted::the_leader_is_cut_off_with_a_holder::<EtcdCluster>().await;
}
