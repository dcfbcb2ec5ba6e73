//! One call: the claim or the answer, the work in its caller's future or in a task of its own, the settlement.

use std::any::Any;
use std::future::poll_fn;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;

use tracing::Instrument;

use super::prepared::{Outcome, Prepared};
use super::stored::Kept;
use crate::backend::Settlement;
use crate::error::{ErrorKind, LockError};
use crate::lock::{GuardRef, Scope};
use crate::record::{ClaimGuard, Standing};

/// Runs the work if the key is new, else gives what is kept. The error is the call's own.
pub(crate) async fn execute<R, F>(
    call: Prepared,
    codec: Kept<R>,
    work: impl FnOnce(GuardRef) -> F,
) -> Result<R, LockError>
where
    F: Future<Output = R>,
{
    let span = call.span();
    let attempt = async {
        match call.begin(&codec).await {
            ControlFlow::Break(outcome) => call.told(outcome),
            ControlFlow::Continue(guard) => {
                let running = Running::new(&call, guard, Scope::current());
                let outcome = perform(&call, running, codec, work).await;
                call.told(outcome.unwrap_or_else(|panic| resume_unwind(panic)))
            }
        }
    };
    attempt.instrument(span).await
}

/// The same, with the work and all that comes after it in a task of its own.
pub(crate) async fn execute_detached<R, F>(
    call: Prepared,
    codec: Kept<R>,
    work: impl FnOnce(GuardRef) -> F + Send + 'static,
) -> Result<R, LockError>
where
    F: Future<Output = R> + Send + 'static,
    R: Send + 'static,
{
    let span = call.span();
    let attempt = async {
        // Up to here a caller that goes away leaves nothing.
        let guard = match call.begin(&codec).await {
            ControlFlow::Break(outcome) => return call.told(outcome),
            ControlFlow::Continue(guard) => guard,
        };
        let counted = call.shared().detached.enter();
        let running = Running::new(&call, guard, Scope::current().or_manager(call.shared()));
        let gone = call.error(ErrorKind::OutcomeUnknown).detail("its runtime went away while the work ran");
        let task = async move {
            let _counted = counted;
            let outcome = perform(&call, running, codec, work).await;
            outcome.map(|outcome| call.told(outcome))
        };
        match tokio::spawn(task.in_current_span()).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(error) => error.try_into_panic().map_or(Err(gone), |panic| resume_unwind(panic)),
        }
    };
    attempt.instrument(span).await
}

/// Runs the work under its claim and settles its record; `Err` if the work panicked.
async fn perform<R, F>(
    call: &Prepared,
    running: Running,
    codec: Kept<R>,
    work: impl FnOnce(GuardRef) -> F,
) -> Result<Outcome<R>, Panic>
where
    F: Future<Output = R>,
{
    let result = match running.run(work).await {
        Ok(result) => result,
        Err(panic) => {
            let _ = running.conclude(call.options().unknown()).await;
            return Err(panic);
        }
    };
    let kept = codec.encode(&result);
    let is_kept = kept.is_some();
    Ok(match running.conclude(call.settlement(kept)).await {
        // What isn't kept is true of this execution, whoever owns the record now.
        Standing::Superseded if is_kept => match call.successor().await {
            Ok(bytes) => call.read(&codec, &bytes).map(|result| (result, "superseded")),
            Err(error) => Err(error),
        },
        _ => Ok((result, if is_kept { "executed" } else { "failed" })),
    })
}

type Panic = Box<dyn Any + Send>;

/// A claim under which the work runs. Dropped before it is concluded, the work was cancelled.
struct Running {
    guard: Option<ClaimGuard>,
    cancelled: Settlement,
    /// The caller's, with the claim innermost.
    scope: Scope,
}

impl Running {
    fn new(call: &Prepared, guard: ClaimGuard, scope: Scope) -> Self {
        let scope = guard.innermost_of(scope);
        Self { guard: Some(guard), cancelled: call.options().cancelled(), scope }
    }

    /// Runs the work to its end or its panic; it is dropped before its record is settled.
    async fn run<F: Future>(&self, work: impl FnOnce(GuardRef) -> F) -> Result<F::Output, Panic> {
        let view = self.guard.as_ref().expect("concluded once, at the end").view();
        let scope = self.scope.clone();
        let work = catch_unwind(AssertUnwindSafe(|| Box::pin(scope.wrap(work(view)))));
        let mut work = work?;
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await
    }

    async fn conclude(mut self, settlement: Settlement) -> Standing {
        match self.guard.take() {
            Some(guard) => guard.conclude(settlement).await,
            None => Standing::Superseded,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.settle_later(self.cancelled.clone());
        }
    }
}
