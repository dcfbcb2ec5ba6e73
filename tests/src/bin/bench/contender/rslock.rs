//! The peer: `rslock`, the crate most used for this.

use std::time::Duration;

use rslock::LockManager;
use tokio::sync::oneshot;

use super::{Contender, Holder};
use crate::job::Job;

pub(crate) struct Rslock {
    locks: LockManager,
    ttl: Duration,
}

impl Contender for Rslock {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        Ok(Self { locks: LockManager::new(vec![job.url.clone()]), ttl: job.ttl })
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let guard = self.locks.acquire(key.as_bytes(), self.ttl).await?;
        let output = body();
        guard.release().await;
        Ok(output)
    }
}

impl Holder for Rslock {
    type Guard = oneshot::Sender<()>;

    /// It renews only inside of `using`: a held lock is a `using` that waits.
    async fn hold(&self, key: String) -> anyhow::Result<Self::Guard> {
        let (end, ended) = oneshot::channel();
        let (held, holding) = oneshot::channel();
        let (locks, ttl) = (self.locks.clone(), self.ttl);
        tokio::spawn(async move {
            let work = async move || {
                let _ = held.send(());
                let _: Result<(), _> = ended.await;
            };
            locks.using(key.as_bytes(), ttl, work).await
        });
        holding.await?;
        Ok(end)
    }

    fn remaining(_: &Self::Guard) -> Option<Duration> {
        None
    }
}
