//! What a layer was told, shared by all its services.

use std::time::Duration;

use bytes::Bytes;
use distlock_runtime::__layers::Waiters;
use distlock_runtime::problem::Problem;
use distlock_runtime::{CrashPolicy, LockManager, Records, Ttl, telemetry};
use http::{HeaderName, Method, Response};

use super::body::ResponseBody;
use super::calls::Calls;
use super::disposition::Classifier;
use super::executions::Executions;
use super::key::KeySyntax;
use super::scope::Scoping;
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
    pub(crate) methods: Vec<Method>,
    pub(crate) key_required: bool,
    pub(crate) request_limit: usize,
    pub(crate) response_limit: usize,
    pub(crate) body_deadline: Duration,
    pub(crate) wait: Duration,
    pub(crate) max_waiters: usize,
    pub(crate) retention: Duration,
    pub(crate) after_crash: CrashPolicy,
    pub(crate) classifier: Classifier,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) store_down: StoreDown,
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
}

/// A whole response as the layer's own.
pub(crate) fn told<B>(response: Response<Bytes>) -> Response<ResponseBody<B>> {
    response.map(|body| ResponseBody::stored(body, None))
}
