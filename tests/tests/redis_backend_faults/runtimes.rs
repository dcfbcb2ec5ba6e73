//! Runtimes that go, or aren't there.

use distlock_runtime::backend::{Backend, BackendErrorKind, Released};
use distlock_tests::wait;

use super::redis_backend::*;

#[test]
fn one_backend_serves_many_runtimes_one_after_the_other() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outer = runtime();
    let bench = outer.block_on(Bench::start());
    for _ in 0..10 {
        let inner = runtime();
        let (_, lease, _) = inner.block_on(held(&bench.backend, "k", 30_000));
        drop(inner);
        assert_eq!(runtime().block_on(bench.backend.release(&lease, None)).unwrap(), Released::Confirmed);
    }
    outer
        .block_on(wait::until("no connection of the past", LIMIT, async || {
            (bench.server.client_count().await.unwrap() == 0).then_some(())
        }))
        .unwrap();
}

/// The first calls of others, while the server is away, don't take the place of the runtime that listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtimes_that_come_in_an_outage_leave_the_subscription_alone() {
    let bench = Bench::start().await;
    let backend = bench.backend.clone();
    let _serving = Serving::start(&backend);
    listening(&bench, &backend).await;
    bench.server.kill().unwrap();
    for _ in 0..20 {
        let other = backend.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(other.ping())
        });
        assert_eq!(asked.await.unwrap().unwrap_err().kind(), BackendErrorKind::Unavailable);
    }
    bench.server.restart().unwrap();
    let bench = Bench { admin: bench.server.admin().await.unwrap(), ..bench };
    wait::until("the server to be found", LIMIT, async || backend.ping().await.ok()).await.unwrap();
    listening(&bench, &backend).await;
}

#[test]
fn outside_of_a_runtime_is_an_error_and_not_a_panic() {
    let backend = open("redis://127.0.0.1:1");
    let mut ping = backend.ping();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = ping.as_mut().poll(&mut context) else { panic!("not refused") };
    assert_eq!(error.kind(), BackendErrorKind::Unsupported);
}
