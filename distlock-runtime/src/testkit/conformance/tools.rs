//! What the cases share.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use crate::backend::{AcquireRequest, Attempt, Backend, Blocked, Grant, Mode};
use crate::clock::Clock;
use crate::key::LockKey;
use crate::lock::Guard;
use crate::manager::LockManager;
use crate::token::OwnerToken;
use crate::ttl::Ttl;

/// How long anything that must happen may take on a machine that is busy with other tests.
pub(super) const LIMIT: Duration = Duration::from_secs(20);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn ttl(millis: u64) -> Ttl {
    Ttl::new(ms(millis)).unwrap()
}

/// A key that no other case uses.
pub(super) fn fresh_key(name: &str) -> LockKey {
    LockKey::new(format!("{name}-{:016x}", fastrand::u64(..))).unwrap()
}

/// A request that isn't queued, with the default ttl.
pub(super) fn request(key: &LockKey) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::DEFAULT,
        mode: Mode::Exclusive,
        fair: false,
        queue: false,
        tokens: 1,
    }
}

pub(super) fn queued_request(key: &LockKey) -> AcquireRequest {
    AcquireRequest { queue: true, ..request(key) }
}

/// Asks until there is something to give.
pub(super) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} in vain for: {what}");
        tokio::time::sleep(ms(3)).await;
    }
}

/// Something that must come to an end.
pub(super) async fn in_time<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(LIMIT, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited {LIMIT:?} in vain for: {what}"),
    }
}

/// A backend with its background work running, as a process would have it.
pub(super) struct Client {
    label: String,
    backend: Arc<dyn Backend>,
    serving: tokio::task::JoinHandle<()>,
}

impl Client {
    pub(super) async fn open(store: &impl Store, label: &str) -> Self {
        let backend = store.backend(label).await;
        let serving = backend.clone();
        Self { label: label.to_owned(), backend, serving: tokio::spawn(async move { serving.serve().await }) }
    }

    pub(super) fn shared(&self) -> Arc<dyn Backend> {
        self.backend.clone()
    }

    pub(super) async fn granted(&self, request: &AcquireRequest) -> Grant {
        match self.attempt(request).await {
            Attempt::Granted(grant) => {
                let now = Clock::System.now();
                assert!(
                    grant.sent <= now,
                    "the grant says that it was sent in the future: {grant:?} at {now:?}"
                );
                grant
            }
            other => self.unexpected(request, "granted", &other),
        }
    }

    pub(super) async fn busy(&self, request: &AcquireRequest) -> Blocked {
        match self.attempt(request).await {
            Attempt::Busy(blocked) => blocked,
            other => self.unexpected(request, "busy, as another holds the lock", &other),
        }
    }

    pub(super) async fn queued(&self, request: &AcquireRequest) -> Blocked {
        match self.attempt(request).await {
            Attempt::Queued(blocked) => blocked,
            other => self.unexpected(request, "queued, as another holds the lock", &other),
        }
    }

    async fn attempt(&self, request: &AcquireRequest) -> Attempt {
        let outcome = self.backend.try_acquire(request).await;
        outcome.unwrap_or_else(|error| {
            panic!("try_acquire of {} by {} failed: {error:?}", request.key, self.label)
        })
    }

    fn unexpected(&self, request: &AcquireRequest, wanted: &str, got: &Attempt) -> ! {
        let AcquireRequest { key, owner, .. } = request;
        panic!("try_acquire of {key} by {} for {owner:?} must be {wanted}, and is {got:?}", self.label)
    }

    /// Waits and asks as the floors above do.
    pub(super) async fn wait_for(&self, request: &AcquireRequest) -> Grant {
        in_time("the turn of a queued request", async {
            loop {
                let blocked = match self.backend.try_acquire(request).await.unwrap() {
                    Attempt::Granted(grant) => return grant,
                    Attempt::Busy(blocked) | Attempt::Queued(blocked) => blocked,
                };
                if let crate::backend::Turn::Granted(grant) =
                    self.backend.turn(request, &blocked).await.unwrap()
                {
                    return grant;
                }
            }
        })
        .await
    }

    pub(super) async fn is_free(&self, key: &LockKey) -> bool {
        self.backend.inspect(key).await.unwrap().holder.is_none()
    }

    pub(super) async fn waiters(&self, key: &LockKey) -> u64 {
        self.backend.inspect(key).await.unwrap().waiters
    }
}

impl Deref for Client {
    type Target = dyn Backend;
    fn deref(&self) -> &Self::Target {
        &*self.backend
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Waits until the store hands a lock on to this client directly: the subscription for it may still be under way. A store
/// that never does so isn't waited for.
pub(super) async fn listening(client: &Client) {
    let start = Instant::now();
    while start.elapsed() < ms(2_000) {
        let key = fresh_key("listening");
        let (held, waiter) = (request(&key), queued_request(&key));
        client.granted(&held).await;
        client.queued(&waiter).await;
        client.release(&held.lease(), None).await.unwrap();
        let holder = client.inspect(&key).await.unwrap().holder;
        client.cancel(&waiter).await.unwrap();
        if holder.is_some_and(|holder| holder.owner == Some(waiter.owner)) {
            return;
        }
        tokio::time::sleep(ms(5)).await;
    }
}

/// A manager, as a process would have it.
pub(super) async fn manager(store: &impl Store, label: &str) -> LockManager {
    LockManager::builder().label(label).backend(store.backend(label).await).await.unwrap()
}

/// A lock that must be had at once.
pub(super) async fn lock(locks: &LockManager, key: &LockKey) -> Guard {
    locks.mutex(key).lock().await.unwrap()
}

/// Waits until the store knows of so many waiters, as this manager sees it.
pub(super) async fn waiters(locks: &LockManager, key: &LockKey, count: u64) {
    let what = format!("{count} waiters for {key}");
    eventually(&what, async || (locks.inspect(key).await.unwrap().waiters == count).then_some(())).await;
}

/// Waits until nobody holds the lock.
pub(super) async fn free(locks: &LockManager, key: &LockKey) {
    let what = format!("{key} is free");
    eventually(&what, async || locks.inspect(key).await.unwrap().holder.is_none().then_some(())).await;
}

/// Says when it is dropped.
pub(super) struct OnDrop(pub(super) Arc<std::sync::atomic::AtomicBool>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}
