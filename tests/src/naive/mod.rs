//! Locks that are wrong on purpose. Every safety test runs against one of them too, and must fail: a test that they pass has no
//! bite.

#[allow(missing_debug_implementations, reason = "nobody prints its connection")]
mod etcd;
mod kinds;
#[allow(missing_debug_implementations, reason = "nobody prints its connection")]
mod postgres;
#[allow(missing_debug_implementations, reason = "nobody prints its connection")]
mod zookeeper;

use std::time::Duration;

use redis::{Script, aio::MultiplexedConnection};

pub use self::{
    etcd::{EtcdFlaw, NaiveEtcd, NaiveName},
    kinds::{KindFlaw, NaiveKinds, NaiveShare},
    postgres::{NaivePostgres, NaiveRow, PostgresFlaw},
    zookeeper::{NaiveNode, NaiveZooKeeper, ZooKeeperFlaw},
};
use crate::contend::{Contender, Held};

/// What is wrong with a naive lock. None of them renews its lease or has a fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// `SET NX PX` and a plain `DEL`: a holder that comes late deletes the lock of the next one.
    BlindRelease,
    /// Releases only its own lock, and believes for ever that it holds it.
    EndlessValidity,
}

/// A naive lock over Redis.
#[derive(Clone)]
pub struct NaiveLocks {
    connection: MultiplexedConnection,
    flaw: Flaw,
}

impl NaiveLocks {
    /// Connects to a plain `redis://` URL.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn connect(url: &str, flaw: Flaw) -> anyhow::Result<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { connection, flaw })
    }
}

impl Contender for NaiveLocks {
    type Hold = NaiveGuard;

    /// Asks every 5 ms until it is granted.
    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<NaiveGuard> {
        let mut guard = NaiveGuard {
            locks: self.clone(),
            key: key.to_owned(),
            owner: format!("{:032x}", fastrand::u128(..)),
        };
        loop {
            let mut set = redis::cmd("SET");
            set.arg(key).arg(&guard.owner).arg("NX").arg("PX").arg(u64::try_from(ttl.as_millis())?);
            let granted: Option<String> = set.query_async(&mut guard.locks.connection).await?;
            if granted.is_some() {
                return Ok(guard);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What a naive lock gives. Dropping it leaves the key to its ttl.
#[derive(Debug)]
pub struct NaiveGuard {
    locks: NaiveLocks,
    key: String,
    owner: String,
}

impl Held for NaiveGuard {
    fn token(&self) -> Option<u64> {
        None
    }

    fn is_valid(&self) -> bool {
        true
    }

    async fn release(mut self) -> anyhow::Result<()> {
        let connection = &mut self.locks.connection;
        match self.locks.flaw {
            Flaw::BlindRelease => redis::cmd("DEL").arg(&self.key).exec_async(connection).await?,
            Flaw::EndlessValidity => {
                let compare_and_delete = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
                let script = Script::new(compare_and_delete);
                script.key(&self.key).arg(&self.owner).invoke_async::<()>(connection).await?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for NaiveLocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NaiveLocks").field("flaw", &self.flaw).finish_non_exhaustive()
    }
}
