//! The least that a lock on ZooKeeper can be.

use std::time::Duration;

use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::Contender;
use crate::job::Job;

const RETRY: Duration = Duration::from_millis(100);

/// The recipe: an ephemeral node with a number, and the lock is that of the smallest.
pub(crate) struct RawZookeeper(Client);

impl Contender for RawZookeeper {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        let place = job.url.trim_start_matches("zookeeper://");
        let client = Client::connector().with_session_timeout(Duration::from_secs(30)).connect(place).await?;
        Ok(Self(client))
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let parent = format!("/raw-{key}");
        let prefix = format!("{parent}/lock-");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let number = loop {
            match self.0.create(&prefix, b"", &options).await {
                Ok((_, number)) => break number,
                Err(Error::NoNode) => {
                    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
                    self.0.mkdir(&parent, &options).await?;
                }
                Err(error) => return Err(error.into()),
            }
        };
        let path = format!("{prefix}{number}");
        let name = path.rsplit('/').next().unwrap_or_default();
        while self.0.list_children(&parent).await?.iter().min().is_some_and(|first| first != name) {
            tokio::time::sleep(RETRY).await;
        }
        let output = body();
        self.0.delete(&path, None).await?;
        Ok(output)
    }
}
