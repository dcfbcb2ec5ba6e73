//! How often handlers ran.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use distlock_tests::wait;
use tokio::sync::Semaphore;

use super::LIMIT;

/// How often the handler ran for each key, and a gate that holds it until the test lets it go.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    pub(crate) counts: Arc<Mutex<HashMap<String, usize>>>,
    total: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Runs {
    pub(crate) fn open() -> Self {
        Self::with_gate(Semaphore::MAX_PERMITS)
    }

    pub(crate) fn gated() -> Self {
        Self::with_gate(0)
    }

    fn with_gate(permits: usize) -> Self {
        Self { counts: Arc::default(), total: Arc::default(), gate: Arc::new(Semaphore::new(permits)) }
    }

    pub(crate) async fn run(&self, key: &str) -> usize {
        *self.counts.lock().unwrap().entry(key.to_owned()).or_insert(0) += 1;
        let run = self.total.fetch_add(1, Ordering::SeqCst) + 1;
        self.gate.acquire().await.expect("the gate stays").forget();
        run
    }

    pub(crate) fn total(&self) -> usize {
        self.total.load(Ordering::SeqCst)
    }

    pub(crate) async fn reached(&self, runs: usize) {
        wait::until("the handler runs", LIMIT, async || (self.total() >= runs).then_some(())).await.unwrap();
    }

    pub(crate) fn let_go(&self, runs: usize) {
        self.gate.add_permits(runs);
    }
}
