//! `memory:` as the conformance suite takes it.

use std::sync::Arc;

use distlock_runtime::{
    Clock,
    backend::{Backend, memory::MemoryBackend},
    testkit::conformance::Store,
};

/// A named store: every backend that opens it is a rival of the others, as processes are.
pub(crate) struct Memory(String);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(format!("conformance-{:016x}", fastrand::u64(..)))
    }
}

#[async_trait::async_trait]
impl Store for Memory {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        Arc::new(MemoryBackend::named(&self.0, Clock::System, label))
    }

    fn calls_outlive_their_futures(&self) -> bool {
        false
    }
}
