//! What the suites share.

use std::{sync::Arc, time::Duration};

use distlock_runtime::{
    Clock, LockKey, LockManager, OwnerToken, Ttl,
    backend::{
        AcquireRequest, Attempt, Backend, Grant, Mode,
        etcd::{EtcdBackend, EtcdOptions},
    },
};
use distlock_tests::{
    naive::{EtcdFlaw, NaiveEtcd},
    server::EtcdCluster,
    wait,
};

/// How long anything that must happen may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(name).unwrap()
}

/// As another process would open it, with its background work running.
pub(crate) struct Client(Arc<EtcdBackend>, tokio::task::JoinHandle<()>);

impl Client {
    pub(crate) fn open(cluster: &EtcdCluster, label: &str) -> Self {
        Self::at(&cluster.url(), label)
    }

    pub(crate) fn at(url: &str, label: &str) -> Self {
        let options = EtcdOptions::from_url(url).unwrap().label(label);
        let backend = EtcdBackend::open(&options, Clock::System).unwrap();
        let serving = backend.clone();
        Self(backend, tokio::spawn(async move { serving.serve().await }))
    }

    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Grant {
        match self.0.try_acquire(request).await.unwrap() {
            Attempt::Granted(grant) => grant,
            other => panic!("not granted but {other:?}"),
        }
    }

    pub(crate) async fn queued(&self, request: &AcquireRequest) {
        let outcome = self.0.try_acquire(request).await.unwrap();
        assert!(matches!(outcome, Attempt::Queued(_)), "{outcome:?}");
    }
}

impl std::ops::Deref for Client {
    type Target = EtcdBackend;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.1.abort();
    }
}

pub(crate) fn request(key: &LockKey, millis: u64) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(ms(millis)).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: false,
        tokens: 1,
    }
}

pub(crate) fn queued(key: &LockKey, millis: u64) -> AcquireRequest {
    AcquireRequest { queue: true, ..request(key, millis) }
}

pub(crate) async fn manager(url: &str, label: &str) -> LockManager {
    LockManager::builder().label(label).connect(url).await.unwrap()
}

/// A naive lock over all members.
pub(crate) async fn naive(cluster: &EtcdCluster, flaw: EtcdFlaw) -> NaiveEtcd {
    NaiveEtcd::new(cluster.client().await.unwrap(), flaw)
}

/// A naive lock over one member.
pub(crate) async fn naive_of(cluster: &EtcdCluster, member: usize, flaw: EtcdFlaw) -> NaiveEtcd {
    NaiveEtcd::new(cluster.client_of(member).await.unwrap(), flaw)
}

pub(crate) async fn eventually<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    wait::until(what, LIMIT, probe).await.unwrap()
}

/// The names in the store that start so, each with the lease that it stands on.
pub(crate) async fn names(cluster: &EtcdCluster, prefix: &str) -> Vec<(String, i64)> {
    let options = etcd_client::GetOptions::new().with_prefix();
    let found = cluster.client().await.unwrap().get(prefix, Some(options)).await.unwrap();
    found.kvs().iter().map(|kv| (kv.key_str().unwrap().to_owned(), kv.lease())).collect()
}
