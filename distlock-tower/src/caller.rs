//! The inner service on its way to one call: ready, or to be made ready again.

use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tower_service::Service;

/// An inner service that may hold what its readiness reserved (a concurrency permit, say).
#[derive(Debug)]
pub(crate) struct Caller<S> {
    service: S,
    is_ready: bool,
}

/// How a call went.
#[derive(Debug)]
pub(crate) enum Called<R, E> {
    /// The service never became ready: nothing was executed.
    NotReady(E),
    /// The service failed without a response.
    Failed(E),
    Answered(R),
}

/// The future panicked; the panic hook has told the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

impl<S> Caller<S> {
    pub(crate) fn ready(service: S) -> Self {
        Self { service, is_ready: true }
    }

    /// Gives back what the readiness reserved: who waits for another execution must not keep it from that one.
    pub(crate) fn park(&mut self)
    where
        S: Clone,
    {
        if mem::take(&mut self.is_ready) {
            let spare = self.service.clone();
            drop(mem::replace(&mut self.service, spare));
        }
    }

    pub(crate) async fn call<Request>(mut self, request: Request) -> Called<S::Response, S::Error>
    where
        S: Service<Request>,
    {
        if !self.is_ready
            && let Err(error) = poll_fn(|cx| self.service.poll_ready(cx)).await
        {
            return Called::NotReady(error);
        }
        match self.service.call(request).await {
            Ok(response) => Called::Answered(response),
            Err(error) => Called::Failed(error),
        }
    }
}

/// Runs a future to its end or its panic.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(poll) => poll.map(Ok),
        Err(_) => Poll::Ready(Err(Panicked)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    use super::*;

    /// Counts the permits that its ready instances hold; a clone isn't ready.
    #[derive(Debug)]
    struct Permits {
        held: Arc<AtomicUsize>,
        mine: bool,
    }

    impl Clone for Permits {
        fn clone(&self) -> Self {
            Self { held: Arc::clone(&self.held), mine: false }
        }
    }

    impl Drop for Permits {
        fn drop(&mut self) {
            self.held.fetch_sub(usize::from(self.mine), Ordering::Relaxed);
        }
    }

    impl Service<()> for Permits {
        type Response = ();
        type Error = Infallible;
        type Future = Ready<Result<(), Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            if !mem::replace(&mut self.mine, true) {
                self.held.fetch_add(1, Ordering::Relaxed);
            }
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, (): ()) -> Self::Future {
            assert!(self.mine, "called without being ready");
            ready(Ok(()))
        }
    }

    #[test]
    fn parking_frees_the_permit_and_calling_takes_it_again() {
        let held = Arc::new(AtomicUsize::new(0));
        let mut service = Permits { held: Arc::clone(&held), mine: false };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut caller = Caller::ready(service);
        assert_eq!(held.load(Ordering::Relaxed), 1);
        caller.park();
        caller.park();
        assert_eq!(held.load(Ordering::Relaxed), 0);
        let called = pin!(caller.call(())).poll(&mut cx);
        assert!(matches!(called, Poll::Ready(Called::Answered(()))));
    }

    #[test]
    fn a_panic_is_an_outcome() {
        let mut cx = Context::from_waker(Waker::noop());
        let outcome = pin!(caught(async { panic!("a test's own") })).poll(&mut cx);
        assert_eq!(outcome, Poll::Ready(Err::<(), _>(Panicked)));
    }
}
