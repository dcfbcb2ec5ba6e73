//! The least that a lock on Redis can be.

use std::time::Duration;

use anyhow::bail;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};

use super::Contender;
use crate::job::Job;

const RELEASE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";
/// The pause before another try at a busy lock.
const RETRY: Duration = Duration::from_millis(100);

pub(crate) struct Raw {
    connection: MultiplexedConnection,
    release: String,
    ttl: u64,
}

impl Raw {
    /// The time of a command that does nothing.
    pub(crate) async fn ping(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("PING").exec_async(&mut self.connection.clone()).await?)
    }
}

impl Contender for Raw {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        // The default of 500 ms fires on a busy machine, and then measures nothing.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let client = redis::Client::open(job.url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let release = redis::cmd("SCRIPT").arg("LOAD").arg(RELEASE).query_async(&mut connection).await?;
        Ok(Self { connection, release, ttl: u64::try_from(job.ttl.as_millis())? })
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let mut connection = self.connection.clone();
        let owner = fastrand::u128(..).to_ne_bytes();
        let mut acquire = redis::cmd("SET");
        acquire.arg(key).arg(&owner).arg("NX").arg("PX").arg(self.ttl);
        loop {
            match acquire.query_async(&mut connection).await? {
                Value::Okay => break,
                Value::Nil => tokio::time::sleep(RETRY).await,
                other => bail!("the answer to SET is {other:?}"),
            }
        }
        let output = body();
        let mut release = redis::cmd("EVALSHA");
        release.arg(&self.release).arg(1).arg(key).arg(&owner);
        match release.query_async(&mut connection).await? {
            Value::Int(1) => Ok(output),
            other => bail!("the answer to the release is {other:?}"),
        }
    }
}
