//! The least that a lock on etcd can be.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, KvClient, PutOptions, Txn, TxnOp};

use super::Contender;
use crate::job::Job;

const RETRY: Duration = Duration::from_millis(100);
/// Longer than any run: a real one would keep it alive.
const LEASE: i64 = 300;

/// One lease for all: a key is made if it isn't there, and deleted by the revision that it was made in.
pub(crate) struct RawEtcd {
    kv: KvClient,
    lease: i64,
}

impl Contender for RawEtcd {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        let place = job.url.replacen("etcd://", "http://", 1);
        let mut client = Client::connect([place], None).await?;
        let lease = client.lease_grant(LEASE, None).await?.id();
        Ok(Self { kv: client.kv_client(), lease })
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let mut kv = self.kv.clone();
        let revision = loop {
            let put = TxnOp::put(key, "", Some(PutOptions::new().with_lease(self.lease)));
            let absent = Compare::create_revision(key, CompareOp::Equal, 0);
            let outcome = kv.txn(Txn::new().when([absent]).and_then([put])).await?;
            let revision = outcome.header().map_or(0, etcd_client::ResponseHeader::revision);
            if outcome.succeeded() {
                break revision;
            }
            tokio::time::sleep(RETRY).await;
        };
        let output = body();
        let ours = Compare::create_revision(key, CompareOp::Equal, revision);
        let outcome = kv.txn(Txn::new().when([ours]).and_then([TxnOp::delete(key, None)])).await?;
        anyhow::ensure!(outcome.succeeded(), "the lock was another's");
        Ok(output)
    }
}
