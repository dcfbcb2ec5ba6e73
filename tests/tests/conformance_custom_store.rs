//! The conformance suite on the store of `examples/custom_store.rs`, as its author would run it: through the facade alone.

#[path = "../../examples/file_store/mod.rs"]
#[allow(dead_code, unreachable_pub, reason = "the example's own module, of which this uses the store alone")]
mod file_store;

use std::sync::Arc;

use distlock::{
    backend::{Backend, Clock, LockKey},
    testkit::conformance::{Store, conformance},
};
use file_store::FileStore;
use tempfile::TempDir;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }
}

#[async_trait::async_trait]
impl Store for Files {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        FileStore::open(self.0.path(), label, Clock::System).unwrap()
    }

    fn calls_outlive_their_futures(&self) -> bool {
        false
    }

    fn has_records(&self) -> bool {
        false
    }

    fn has_latches(&self) -> bool {
        false
    }

    async fn put_foreign_value(&self, key: &LockKey) -> bool {
        std::fs::write(self.0.path().join(FileStore::file_of(key)), "theirs").unwrap();
        true
    }

    async fn foreign_value(&self, key: &LockKey) -> Option<Vec<u8>> {
        std::fs::read(self.0.path().join(FileStore::file_of(key))).ok()
    }
}

conformance!(Files::new());
