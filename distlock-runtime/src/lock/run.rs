//! A body under a lock: polled in its scope, beside the lost signal.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::guard::Guard;
use super::options::OnLost;
use super::scope::Scope;
use crate::engine::{Hold, View};
use crate::error::LockError;

type Lost = Pin<Box<dyn Future<Output = LockError> + Send>>;

/// What polling a body under a lock needs beside the body.
pub(super) struct Leash {
    /// Not the hold itself: that is the guard's, and a body that is done doesn't keep it.
    view: Arc<View>,
    scope: Scope,
    policy: OnLost,
    /// Made when the body first has to wait: one that is done at once doesn't pay for it.
    lost: Option<Lost>,
    span: tracing::Span,
}

impl Leash {
    pub(super) fn new(hold: &Hold, policy: OnLost) -> Self {
        let view = hold.view();
        let span = tracing::info_span!(
            "distlock.hold",
            lock = view.template(),
            token = view.token().get(),
            key = tracing::field::Empty
        );
        if tracing::enabled!(tracing::Level::DEBUG) {
            span.record("key", tracing::field::display(hold.key()));
        }
        Self { view: view.clone(), scope: Scope::current().with_hold(hold), policy, lost: None, span }
    }

    /// Polls the body. An error means that the lock is lost and the body must be dropped.
    pub(super) fn poll<F: Future>(
        &mut self,
        body: Pin<&mut F>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<F::Output, LockError>> {
        // The clock is asked before the body runs: after a pause it must not do another step.
        self.check()?;
        let span = self.span.clone();
        let polled = span.in_scope(|| self.scope.enter(|| body.poll(cx)));
        if let Poll::Ready(output) = polled {
            // Done and lost in the same poll: the clock decides.
            self.check()?;
            return Poll::Ready(Ok(output));
        }
        if self.policy == OnLost::Cancel {
            let lost = self.lost.get_or_insert_with(|| {
                let view = self.view.clone();
                Box::pin(async move { view.lost().await })
            });
            let error = ready!(lost.as_mut().poll(cx));
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }

    fn check(&self) -> Result<(), LockError> {
        match self.policy {
            OnLost::Cancel => self.view.check(),
            OnLost::Signal | OnLost::Ignore => Ok(()),
        }
    }
}

pin_project! {
    /// The future of [`Guard::run`].
    #[must_use = "futures do nothing unless polled"]
    pub struct Run<'a, F> {
        #[pin]
        body: Option<F>,
        leash: Leash,
        guard: &'a Guard,
    }
}

impl<'a, F: Future> Run<'a, F> {
    pub(super) fn new(guard: &'a Guard, policy: OnLost, body: F) -> Self {
        Self { body: Some(body), leash: Leash::new(guard.hold(), policy), guard }
    }
}

impl<F: Future> Future for Run<'_, F> {
    type Output = Result<F::Output, LockError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let body = this.body.as_mut().as_pin_mut().expect("polled after completion");
        let outcome = ready!(this.leash.poll(body, cx));
        this.body.set(None);
        Poll::Ready(outcome)
    }
}

impl<F> fmt::Debug for Run<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("guard", &self.guard).finish_non_exhaustive()
    }
}
