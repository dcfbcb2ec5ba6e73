//! This crate, in the ways in which it is used.

use std::time::Duration;

use distlock::{Guard, LockError, LockManager, Mutex, distributed_lock};

use super::{Contender, Holder, Kind};
use crate::job::Job;

/// The manager of a job, installed for the attribute.
async fn manager(job: &Job) -> anyhow::Result<LockManager> {
    let url = match job.contender {
        Kind::Memory | Kind::MemoryAttribute => "memory:",
        _ => job.url.as_str(),
    };
    let locks = LockManager::builder().ttl(job.ttl).connect(url).await?;
    locks.install()?;
    Ok(locks)
}

/// Longer than any run waits.
fn patient(lock: Mutex) -> Mutex {
    lock.wait(Duration::from_secs(60))
}

pub(crate) struct Awaited(LockManager);

impl Contender for Awaited {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        manager(job).await.map(Self)
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let guard = patient(self.0.mutex(key)).lock().await?;
        let output = body();
        guard.release().await?;
        Ok(output)
    }
}

pub(crate) struct Dropped(LockManager);

impl Contender for Dropped {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        manager(job).await.map(Self)
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let _guard = patient(self.0.mutex(key)).lock().await?;
        Ok(body())
    }
}

impl Holder for Dropped {
    type Guard = Guard;

    async fn hold(&self, key: String) -> anyhow::Result<Guard> {
        Ok(patient(self.0.mutex(&key)).lock().await?)
    }

    fn remaining(guard: &Guard) -> Option<Duration> {
        Some(guard.remaining())
    }
}

pub(crate) struct Strict(LockManager);

impl Contender for Strict {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        manager(job).await.map(Self)
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        // A lease with a bound on holding isn't handed on.
        let lock = patient(self.0.mutex(key)).max_hold(Duration::from_secs(3600));
        let _guard = lock.lock().await?;
        Ok(body())
    }
}

pub(crate) struct Attribute;

impl Contender for Attribute {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        manager(job).await?;
        Ok(Self)
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        Ok(with_attribute(key, body).await?)
    }
}

#[distributed_lock(key = "<key>", ttl = "30s", wait = "60s")]
async fn with_attribute<T: Send>(key: &str, body: impl FnOnce() -> T + Send) -> Result<T, LockError> {
    Ok(body())
}

/// How much larger the future of a function is with the attribute.
pub(crate) fn added_bytes() -> usize {
    size_of_val(&sized_locked(1, [0; 256])) - size_of_val(&sized_plain(1, [0; 256]))
}

#[distributed_lock(key = "order:<id>", ttl = "30s")]
async fn sized_locked(id: u64, order: [u8; 256]) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(order[usize::try_from(id % 256).expect("below 256")])
}

async fn sized_plain(id: u64, order: [u8; 256]) -> Result<u8, LockError> {
    tokio::task::yield_now().await;
    Ok(order[usize::try_from(id % 256).expect("below 256")])
}
