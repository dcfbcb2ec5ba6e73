//! Releases that nobody waits for.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock_runtime::backend::{Backend, LeaseHandle, PostedRelease, Released, Unreleased};
use distlock_tests::wait;

use super::redis_backend::*;

/// Collects what fell back.
#[derive(Default)]
struct Fallback(Mutex<Vec<LeaseHandle>>);

impl Unreleased for Fallback {
    fn unreleased(&self, lease: LeaseHandle, _: Option<Duration>) {
        self.0.lock().unwrap().push(lease);
    }
}

#[tokio::test]
async fn a_posted_release_goes_before_the_next_acquire() {
    let bench = Bench::start().await;
    let fallback = Arc::new(Fallback::default());
    held(&bench.backend, "warm", 1_000).await;
    let (_, lease, _) = held(&bench.backend, "warm2", 1_000).await;
    bench.backend.release(&lease, None).await.unwrap();
    for _ in 0..200 {
        let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
        bench.backend.post_release(PostedRelease::new(lease, None, fallback.clone())).unwrap();
    }
    let free = async || (bench.ask::<i64>("EXISTS distlock:k").await == 0).then_some(());
    wait::until("the last release", LIMIT, free).await.unwrap();
    assert!(fallback.0.lock().unwrap().is_empty());
}

#[test]
fn a_posted_release_falls_back_when_its_runtime_goes() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outer = runtime();
    let bench = outer.block_on(Bench::start());
    let fallback = Arc::new(Fallback::default());
    let inner = runtime();
    let (_, lease, _) = inner.block_on(held(&bench.backend, "k", 30_000));
    inner.block_on(async {
        let release = PostedRelease::new(lease.clone(), None, fallback.clone());
        bench.backend.post_release(release).unwrap();
    });
    drop(inner);
    assert_eq!(*fallback.0.lock().unwrap(), std::slice::from_ref(&lease));
    // Without a runtime it comes straight back, and the same backend serves another runtime.
    let release = PostedRelease::new(lease.clone(), None, fallback.clone());
    let release = bench.backend.post_release(release).unwrap_err();
    let next = runtime();
    assert_eq!(next.block_on(bench.backend.release(release.lease(), None)).unwrap(), Released::Confirmed);
    release.done();
}
