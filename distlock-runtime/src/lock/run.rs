//! A body under a lock: polled in its scope, beside the lost signal.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::options::OnLost;
use super::scope::Scope;
use crate::engine::{Hold, View};
use crate::error::LockError;

type Lost = Pin<Box<dyn Future<Output = LockError> + Send>>;

/// What polling a body under its locks needs beside the body.
pub(super) struct Leash {
    /// Not the hold itself: that is the guard's, and a body that is done doesn't keep it.
    view: Arc<View>,
    /// Further locks that the body is under; most have none.
    others: Box<[Arc<View>]>,
    scope: Scope,
    policy: OnLost,
    /// Made when the body first has to wait: one that is done at once doesn't pay for it.
    lost: Option<Lost>,
    span: tracing::Span,
}

impl Leash {
    pub(super) fn new(hold: &Hold, policy: OnLost) -> Self {
        Self::of_many(hold, std::iter::empty(), policy)
    }

    /// The first hold gives the span its name.
    pub(super) fn of_many<'a>(hold: &Hold, others: impl Iterator<Item = &'a Hold>, policy: OnLost) -> Self {
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
        let mut scope = Scope::current().with_hold(hold);
        let mut views = Vec::new();
        for other in others {
            scope = scope.with_hold(other);
            views.push(other.view().clone());
        }
        Self { view: view.clone(), others: views.into(), scope, policy, lost: None, span }
    }

    /// Polls the body. An error means that a lock is lost and the body must be dropped.
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
            let error = ready!(self.lost().as_mut().poll(cx));
            return Poll::Ready(Err(error));
        }
        Poll::Pending
    }

    fn check(&self) -> Result<(), LockError> {
        match self.policy {
            OnLost::Cancel => self.views().try_for_each(|view| view.check()),
            OnLost::Signal | OnLost::Ignore => Ok(()),
        }
    }

    fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        std::iter::once(&self.view).chain(&self.others)
    }

    fn lost(&mut self) -> &mut Lost {
        if self.lost.is_none() {
            let view = self.view.clone();
            let others = self.others.clone();
            self.lost = Some(match others.is_empty() {
                true => Box::pin(async move { view.lost().await }),
                false => Box::pin(async move {
                    first(std::iter::once(&view).chain(&others).map(|view| view.lost())).await
                }),
            });
        }
        self.lost.as_mut().expect("made above")
    }
}

/// The output of the first of these futures that is ready.
pub(super) async fn first<F: Future>(futures: impl Iterator<Item = F>) -> F::Output {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    std::future::poll_fn(|cx| {
        for future in &mut futures {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}

/// The outputs of all of these futures, in order.
pub(super) async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut futures: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, output) in futures.iter_mut().filter(|(_, output)| output.is_none()) {
            match future.as_mut().poll(cx) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    futures.into_iter().filter_map(|(_, output)| output).collect()
}

pin_project! {
    /// The future of `Guard::run` and `MultiGuard::run`.
    #[must_use = "futures do nothing unless polled"]
    pub struct Run<'a, F> {
        #[pin]
        body: Option<F>,
        leash: Leash,
        // The guard can't be released while the body runs.
        guard: PhantomData<&'a ()>,
    }
}

impl<F: Future> Run<'_, F> {
    pub(super) fn new(leash: Leash, body: F) -> Self {
        Self { body: Some(body), leash, guard: PhantomData }
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
        f.debug_struct("Run").field("hold", &self.leash.view).finish_non_exhaustive()
    }
}
