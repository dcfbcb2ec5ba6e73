//! Asking what became of an execution that died, before anything runs in its place.

use std::ops::ControlFlow;
use std::sync::Arc;

use distlock_runtime::Settlement;
use distlock_runtime::problem::{Problem, ProblemKind};
use http::Response;

use super::after_crash::{Lapsed, Plan, Recovered};
use super::body::ResponseBody;
use super::execution::Execution;
use super::held::HeldClaim;
use super::record;
use crate::caller::caught;

/// The claim to execute under, or the answer that makes an execution needless.
pub(super) async fn recover<B>(
    claim: HeldClaim,
    execution: &Execution,
) -> ControlFlow<Response<ResponseBody<B>>, HeldClaim> {
    let config = Arc::clone(&claim.entry.config);
    let rules = &config.rules;
    let Plan::Recover(function) = &rules.after_crash.0 else { return ControlFlow::Continue(claim) };
    if !execution.is_takeover() {
        return ControlFlow::Continue(claim);
    }
    let lapsed = Lapsed::new(execution.clone(), claim.entry.subject.clone());
    match caught(async { function(lapsed).await }).await {
        Ok(Recovered::NotStarted) => ControlFlow::Continue(claim),
        Ok(Recovered::Finished(response)) => {
            ControlFlow::Break(record::keep(claim, response, rules.retention).await)
        }
        Ok(Recovered::Unknown) => {
            claim.settle(Settlement::Unknown { retain: rules.retention }).await;
            ControlFlow::Break(config.refuse(&Problem::new(ProblemKind::OutcomeUnknown)))
        }
        // Dropped unsettled, the claim lapses, and the next request recovers.
        Ok(Recovered::TryLater) | Err(_) => ControlFlow::Break(config.in_flight()),
    }
}
