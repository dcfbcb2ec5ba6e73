//! What a lock within one process costs.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Mutex;

use super::Contender;
use crate::job::Job;

/// `tokio::sync::Mutex`, one for each key. The map is a local one that is looked up without a lock: its keys are known.
pub(crate) struct TokioMutex {
    locks: HashMap<String, Arc<Mutex<()>>>,
}

impl Contender for TokioMutex {
    async fn connect(_: &Job) -> anyhow::Result<Self> {
        Ok(Self { locks: HashMap::from([(crate::work::KEY.to_owned(), Arc::default())]) })
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let _guard = self.locks[key].lock().await;
        Ok(body())
    }
}
