//! The same layer for gRPC calls: it answers in statuses and judges by them.

use std::sync::Arc;

use distlock_runtime::problem::{Problem, ProblemKind};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Uri, response};

use super::builder::IdempotencyBuilder;
use super::classifier::Rule;
use super::config::{Config, Rules};
use super::disposition::{Disposition, Preset};
use crate::grpc::{self, BusyCode, CallRule, Code, GRPC_STATUS, GrpcStatus, RequestStreams};
use crate::responder::{Responder, SharedResponder};

/// What a layer was told about calls.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(crate) responder: SharedResponder,
    pub(crate) rule: Option<CallRule>,
    pub(crate) streams: RequestStreams,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            responder: SharedResponder::new(GrpcStatus::new()),
            rule: None,
            streams: RequestStreams::default(),
        }
    }
}

/// Settings for gRPC calls.
impl<S> IdempotencyBuilder<S> {
    /// What calls are answered while their key is being executed; default `UNAVAILABLE`, with push-back in any case.
    pub fn grpc_in_flight(self, code: BusyCode) -> Self {
        self.grpc_responder(GrpcStatus::new().busy(code))
    }

    /// Who makes the responses of refusals to calls; default [`GrpcStatus`]. They must be Trailers-Only: a status in the headers,
    /// and no body. Where a call's response has begun, they end it as its trailers.
    ///
    /// ```
    /// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
    /// # async fn demo(locks: distlock::LockManager) -> Result<(), distlock_runtime::LockError> {
    /// use distlock::tower::grpc::GrpcStatus;
    /// use distlock::tower::{IdempotencyLayer, Problem, Responder};
    /// let layer = IdempotencyLayer::builder(&locks)
    ///     .anonymous()
    ///     .grpc_responder(|problem: &Problem| {
    ///         let mut response = GrpcStatus::new().respond(problem);
    ///         response.headers_mut().insert("x-problem", problem.kind().slug().parse().expect("visible ASCII"));
    ///         response
    ///     })
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn grpc_responder(mut self, responder: impl Responder) -> Self {
        self.rules.calls.responder = SharedResponder::new(responder);
        self
    }

    /// Which calls' responses are kept, by a rule of your own: it gets the code, and the metadata that came with it. Without one,
    /// the preset treats codes as the statuses that they correspond to. A handler's [`Outcome`](crate::grpc::OUTCOME) still counts more.
    pub fn grpc_classify(
        mut self,
        rule: impl Fn(Code, &HeaderMap) -> Disposition + Send + Sync + 'static,
    ) -> Self {
        self.rules.calls.rule = Some(CallRule::Custom(Arc::new(rule)));
        self
    }

    /// The methods whose requests are streams: their calls pass with `idempotency-status: ignored`. With a key, a call of any other
    /// method must be a single message, else it is refused.
    pub fn grpc_request_streams(mut self, methods: impl Into<RequestStreams>) -> Self {
        self.rules.calls.streams = methods.into();
        self
    }
}

impl Rules {
    /// Whether it is a call of a method whose requests are streams.
    pub(super) fn takes_stream(&self, uri: &Uri) -> bool {
        matches!(self.classifier.rule, Rule::Calls(_)) && self.calls.streams.contains(uri.path())
    }
}

impl Config {
    /// The same records, seen by calls.
    pub(super) fn for_calls(&self) -> Self {
        let mut config = self.clone();
        let rules = &mut config.rules;
        let preset = match &rules.classifier.rule {
            Rule::Preset(preset) => *preset,
            // It judges HTTP's statuses, and all calls have 200.
            _ => Preset::default(),
        };
        let rule = rules.calls.rule.clone().unwrap_or(CallRule::Preset(preset));
        rules.classifier.rule = Rule::Calls(rule);
        rules.responder = rules.calls.responder.clone();
        config
    }

    /// The trailers of a response that somebody gives whole, as a recovery does. A call's status belongs there, unless the response
    /// is one of headers alone.
    pub(super) fn trailers_of(&self, head: &mut response::Parts) -> Option<HeaderMap> {
        if !self.is_for_calls() || grpc::status_of(&head.headers).is_some() {
            return None;
        }
        head.headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/grpc"));
        Some(HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from(Code::Ok.number()))]))
    }

    fn is_for_calls(&self) -> bool {
        matches!(self.rules.classifier.rule, Rule::Calls(_))
    }

    /// What ends a call whose response has begun when its execution turns out to be superseded.
    pub(super) fn refusing_trailers(&self) -> Option<HeaderMap> {
        if !self.is_for_calls() {
            return None;
        }
        let response = self.rules.responder.respond(&Problem::new(ProblemKind::Superseded));
        let mut trailers = response.into_parts().0.headers;
        trailers.remove(CONTENT_TYPE);
        Some(trailers)
    }
}
