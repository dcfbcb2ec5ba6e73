//! Naive locks over etcd: one name for a lock, which is there while somebody has it.

use std::time::Duration;

use anyhow::Context;
use etcd_client::{Client, Compare, CompareOp, PutOptions, Txn, TxnOp};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::contend::{Contender, Held};

/// What is wrong with a naive lock over etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EtcdFlaw {
    /// Puts the name if it isn't there, on a lease that it keeps alive for as long as its server answers. Never asks whether it is still
    /// there, and deletes by name, whosever it is.
    ByName,
    /// Looks whether the name is there, and puts it in the next call.
    LooksFirst,
    /// Puts the name if it isn't there, without a lease.
    NoLease,
}

/// A naive lock over etcd.
#[derive(Clone)]
pub struct NaiveEtcd {
    client: Client,
    flaw: EtcdFlaw,
}

/// What it gives. Dropped, it renews its lease no longer.
pub struct NaiveName {
    locks: NaiveEtcd,
    name: String,
    _renewal: JoinSet<()>,
}

impl NaiveEtcd {
    /// Over a client of one's own.
    pub fn new(client: Client, flaw: EtcdFlaw) -> Self {
        Self { client, flaw }
    }

    /// The name of a lock in the store.
    pub fn name(key: &str) -> String {
        format!("naive/{key}")
    }

    async fn attempt(&self, name: &str, ttl: Duration) -> anyhow::Result<Option<JoinSet<()>>> {
        let mut client = self.client.clone();
        let is_free = client.get(name, None).await?.count() == 0;
        if !is_free {
            return Ok(None);
        }
        let mut renewal = JoinSet::new();
        let options = match self.flaw {
            EtcdFlaw::NoLease => PutOptions::new(),
            EtcdFlaw::ByName | EtcdFlaw::LooksFirst => {
                let seconds = i64::try_from(ttl.as_millis().div_ceil(1_000))?;
                let lease = client.lease_grant(seconds, None).await?.id();
                renewal.spawn(renew(client.clone(), lease, ttl / 3));
                PutOptions::new().with_lease(lease)
            }
        };
        if self.flaw == EtcdFlaw::LooksFirst {
            client.put(name, "", Some(options)).await?;
            return Ok(Some(renewal));
        }
        let free = Compare::create_revision(name, CompareOp::Equal, 0);
        let put = TxnOp::put(name, "", Some(options));
        let put = client.txn(Txn::new().when([free]).and_then([put])).await?;
        Ok(put.succeeded().then_some(renewal))
    }
}

/// For as long as the stream that it has is answered.
async fn renew(mut client: Client, lease: i64, pause: Duration) {
    let Ok((mut keeper, mut answers)) = client.lease_keep_alive(lease).await else { return };
    while keeper.keep_alive().await.is_ok() {
        if !matches!(answers.message().await, Ok(Some(_))) {
            return;
        }
        sleep(pause).await;
    }
}

impl Contender for NaiveEtcd {
    type Hold = NaiveName;

    /// Asks every 5 ms until it is granted.
    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<NaiveName> {
        let name = Self::name(key);
        loop {
            let attempt = timeout(Duration::from_secs(2), self.attempt(&name, ttl)).await;
            if let Some(renewal) = attempt.context("nobody answers")?? {
                return Ok(NaiveName { locks: self.clone(), name, _renewal: renewal });
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Held for NaiveName {
    fn token(&self) -> Option<u64> {
        None
    }

    fn is_valid(&self) -> bool {
        true
    }

    async fn release(self) -> anyhow::Result<()> {
        self.locks.client.clone().delete(&*self.name, None).await?;
        Ok(())
    }
}
