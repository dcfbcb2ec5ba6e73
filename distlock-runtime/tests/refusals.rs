//! What was certainly never applied needs no undoing: an outage must not leave a pile of cancels behind that keeps the
//! background busy and meets the store when it returns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use distlock_runtime::backend::{
    AcquireRequest, Attempt, Backend, BackendError, BackendErrorKind, Blocked, Claim, ClaimOutcome,
    CrashPolicy, Fingerprint, Guarantees, HolderState, LeaseHandle, LockState, Record, RecordKey,
    RecordLease, RecordStore, Released, Renewal, Settled, Settlement, Turn, Warning, memory::MemoryBackend,
};
use distlock_runtime::{ClaimRequest, ErrorKind, LockKey, LockManager, Ttl};

/// A store that is down: refuses everything, or is silent, and counts what it is asked to undo.
#[derive(Debug, Default)]
struct Down {
    silent: AtomicBool,
    undone: Mutex<Vec<String>>,
}

impl Down {
    fn failure(&self) -> BackendError {
        if self.silent.load(Ordering::SeqCst) {
            BackendError::unknown("no reply")
        } else {
            BackendError::refused(BackendErrorKind::Unavailable, "can't connect")
        }
    }
}

#[async_trait]
impl Backend for Down {
    fn name(&self) -> &'static str {
        "down"
    }

    fn guarantees(&self) -> Guarantees {
        MemoryBackend::promises()
    }

    async fn try_acquire(&self, _: &AcquireRequest) -> Result<Attempt, BackendError> {
        Err(self.failure())
    }

    async fn turn(&self, _: &AcquireRequest, _: &Blocked) -> Result<Turn, BackendError> {
        Err(self.failure())
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        leases.iter().map(|_| Renewal::Unknown(self.failure())).collect()
    }

    async fn release(&self, _: &LeaseHandle, _: Option<Duration>) -> Result<Released, BackendError> {
        Err(self.failure())
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.undone.lock().unwrap().push(request.key.to_string());
        Ok(())
    }

    async fn inspect(&self, _: &LockKey) -> Result<LockState, BackendError> {
        Err(self.failure())
    }

    async fn list(&self, _: &str, _: usize) -> Result<Vec<LockState>, BackendError> {
        Err(self.failure())
    }

    async fn force_release(&self, _: &LockKey) -> Result<Option<HolderState>, BackendError> {
        Err(self.failure())
    }

    async fn ping(&self) -> Result<(), BackendError> {
        Ok(())
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        Ok(Vec::new())
    }

    async fn serve(&self) {}

    fn records(self: Arc<Self>) -> Option<Arc<dyn RecordStore>> {
        Some(self)
    }
}

#[async_trait]
impl RecordStore for Down {
    async fn claim(&self, _: &Claim) -> Result<ClaimOutcome, BackendError> {
        Err(self.failure())
    }

    async fn withdraw(&self, claim: &Claim) -> Result<(), BackendError> {
        self.undone.lock().unwrap().push(claim.key.to_hex());
        Ok(())
    }

    async fn renew_claims(&self, leases: &[RecordLease]) -> Vec<Renewal> {
        leases.iter().map(|_| Renewal::Unknown(self.failure())).collect()
    }

    async fn settle(&self, _: &RecordLease, _: &Settlement) -> Result<Settled, BackendError> {
        Err(self.failure())
    }

    async fn look_up(&self, _: &RecordKey) -> Result<Option<Record>, BackendError> {
        Err(self.failure())
    }

    async fn changed(&self, _: &RecordKey, _: Duration) {}
}

async fn down() -> (Arc<Down>, LockManager) {
    let store = Arc::new(Down::default());
    let locks = LockManager::builder().backend(store.clone()).await.unwrap();
    (store, locks)
}

/// Undoing begins in the order in which it was asked for: what is needed last shows that nothing else was.
async fn only_this_is_undone(store: &Down, last: &str) {
    let undone = async {
        while !store.undone.lock().unwrap().iter().any(|key| key == last) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), undone)
        .await
        .expect("what may have been applied is undone");
    assert_eq!(*store.undone.lock().unwrap(), [last]);
}

#[tokio::test]
async fn a_refused_acquire_needs_no_cancel() {
    let (store, locks) = down().await;
    for n in 0..20 {
        let mutex = locks.mutex(format!("k{n}"));
        for outcome in [mutex.clone().try_lock().await, mutex.wait(Duration::from_millis(20)).lock().await] {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Connection);
        }
    }
    store.silent.store(true, Ordering::SeqCst);
    locks.mutex("last").try_lock().await.unwrap_err();
    only_this_is_undone(&store, "last").await;
}

#[tokio::test]
async fn a_refused_claim_needs_no_withdrawal() {
    let (store, locks) = down().await;
    let records = locks.records().unwrap();
    let key = |n: u8| RecordKey::derive("refusals", &[&[n]]);
    let claim = |n: u8| {
        records.claim(ClaimRequest {
            key: key(n),
            fingerprint: Fingerprint { version: 1, digest: [0; 32] },
            lease: Ttl::DEFAULT,
            after_crash: CrashPolicy::Reject,
            retain: Duration::from_secs(60),
            note: distlock_runtime::RecordNote::new(),
        })
    };
    claim(0).await.unwrap_err();
    store.silent.store(true, Ordering::SeqCst);
    claim(1).await.unwrap_err();
    only_this_is_undone(&store, &key(1).to_hex()).await;
}
