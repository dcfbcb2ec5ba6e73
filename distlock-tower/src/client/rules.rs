//! What a policy was told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, StatusCode};
use tower::retry::budget::{Budget, TpsBudget};

use super::delay::Backoff;
use crate::grpc::Code;

#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) header: HeaderName,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) longest_told: Duration,
    pub(super) statuses: Vec<StatusCode>,
    pub(super) codes: Vec<Code>,
    pub(super) budget: SharedBudget,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            header: HeaderName::from_static("idempotency-key"),
            attempts: 5,
            backoff: Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) },
            longest_told: Duration::from_secs(60),
            statuses: vec![
                StatusCode::BAD_GATEWAY,
                StatusCode::SERVICE_UNAVAILABLE,
                StatusCode::GATEWAY_TIMEOUT,
            ],
            codes: vec![Code::Unavailable],
            budget: SharedBudget(Arc::new(TpsBudget::new(Duration::from_secs(10), 10, 0.2))),
        }
    }
}

/// The budget of all calls of one policy.
#[derive(Clone)]
pub(super) struct SharedBudget(pub(super) Arc<dyn Budget + Send + Sync>);

impl fmt::Debug for SharedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Budget")
    }
}
