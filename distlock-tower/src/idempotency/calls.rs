//! The same layer for gRPC calls: it answers in statuses and judges by them.

use std::sync::Arc;

use distlock_runtime::problem::{Problem, ProblemKind};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Uri};

use super::builder::IdempotencyBuilder;
use super::classifier::Rule;
use super::config::{Config, Rules};
use super::disposition::{Disposition, Preset};
use crate::grpc::{BusyCode, CallRule, Code, GrpcStatus, RequestStreams};
use crate::responder::SharedResponder;

/// What a layer was told about calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) status: GrpcStatus,
    pub(crate) rule: Option<CallRule>,
    pub(crate) streams: RequestStreams,
}

/// Settings for gRPC calls.
impl<S> IdempotencyBuilder<S> {
    /// What calls are answered while their key is being executed; default `UNAVAILABLE`, with push-back in any case.
    pub fn grpc_in_flight(mut self, code: BusyCode) -> Self {
        self.rules.calls.status = self.rules.calls.status.busy(code);
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
        rules.responder = SharedResponder::new(rules.calls.status);
        config
    }

    /// What ends a call whose response has begun when its execution turns out to be superseded.
    pub(super) fn refusing_trailers(&self) -> Option<HeaderMap> {
        let Rule::Calls(_) = self.rules.classifier.rule else { return None };
        let response = self.rules.responder.respond(&Problem::new(ProblemKind::Superseded));
        let mut trailers = response.into_parts().0.headers;
        trailers.remove(CONTENT_TYPE);
        Some(trailers)
    }
}
