//! What a layer was told, shared by all its services.

use std::time::Duration;

use bytes::Bytes;
use distlock_runtime::__layers::Waiters;
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{Executions, LockManager, Records, Ttl, telemetry};
use http::{HeaderName, Method, Response};

use super::after_crash::AfterCrash;
use super::body::ResponseBody;
use super::by_request::ByRequest;
use super::calls::Calls;
use super::classifier::Classifier;
use super::disposition::OnPanic;
use super::fingerprint::Fingerprinting;
use super::key::KeySyntax;
use super::key_rule::KeyRule;
use super::scope::Scoping;
use super::stale::StaleKeys;
use crate::responder::SharedResponder;

/// What happens to an execution whose client goes away before the handler has answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDisconnect {
    /// It runs on to its end and its response is kept for the retry.
    #[default]
    Finish,
    /// The handler is dropped where it stands; the outcome is unknown and nothing runs again under the key.
    CancelThenUnknown,
    /// The handler is dropped where it stands and the record is forgotten. Only for handlers that have no effect before
    /// their very end, such as a single database transaction.
    CancelThenRelease,
}

/// What happens to a request with a key while the store can't be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDown {
    /// It is refused with 503 and `Retry-After`, before anything ran.
    #[default]
    Refuse,
    /// It runs without protection against repetition; its response says `Idempotency-Status: unprotected`. Still refused: a
    /// request that has seen another execution in flight before the store went away, and one whose record can't be read.
    RunUnprotected,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) locks: LockManager,
    pub(crate) records: Records,
    pub(crate) scoping: Scoping,
    pub(crate) rules: Rules,
    pub(crate) lease: Ttl,
    pub(crate) waiters: Waiters,
    pub(crate) executions: Executions,
}

/// The part of the configuration that has defaults.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) header: HeaderName,
    pub(crate) syntax: KeySyntax,
    pub(crate) key_rules: Vec<KeyRule>,
    pub(crate) key_required: ByRequest<bool>,
    pub(crate) key_per_route: bool,
    pub(crate) stale_keys: StaleKeys,
    pub(crate) first_sent: Option<HeaderName>,
    pub(crate) methods: Vec<Method>,
    pub(crate) tell_ignored: bool,
    pub(crate) fingerprinting: Fingerprinting,
    pub(crate) request_limit: usize,
    pub(crate) response_limit: usize,
    pub(crate) body_deadline: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_waiters: usize,
    pub(crate) retry_after: Duration,
    pub(crate) retention: Duration,
    pub(crate) after_crash: AfterCrash,
    pub(crate) classifier: Classifier,
    pub(crate) on_panic: OnPanic,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) store_down: ByRequest<StoreDown>,
    pub(crate) responder: SharedResponder,
    pub(crate) calls: Calls,
}

impl Config {
    /// The response that refuses a request.
    pub(crate) fn refuse<B>(&self, problem: &Problem) -> Response<ResponseBody<B>> {
        tracing::debug!(problem = problem.kind().slug(), detail = problem.detail_text(), "request refused");
        telemetry::idempotent_request(problem.kind().slug());
        told(self.rules.responder.respond(problem))
    }

    /// The refusal while another request executes under the key.
    pub(crate) fn in_flight<B>(&self) -> Response<ResponseBody<B>> {
        self.refuse(&Problem::new(ProblemKind::InFlight).retry_after(self.rules.retry_after))
    }
}

/// A whole response as the layer's own.
pub(crate) fn told<B>(response: Response<Bytes>) -> Response<ResponseBody<B>> {
    response.map(|body| ResponseBody::stored(body, None))
}
