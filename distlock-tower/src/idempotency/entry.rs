//! The record that a request is about, and what it says to the request.

use std::ops::ControlFlow;
use std::sync::Arc;

use distlock_runtime::__layers::Found;
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{Fingerprint, RecordKey, RecordNote, telemetry};
use http::Response;

use super::body::ResponseBody;
use super::codec::{DecodeError, StoredResponse};
use super::config::Config;
use super::subject::Subject;
use super::trace::OriginalTrace;
use super::{fidelity, variant};

/// Where a request's record is, and what the request looks like.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) config: Arc<Config>,
    pub(super) key: RecordKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) subject: Subject,
    /// It was first sent before the oldest record that can still be there.
    pub(super) is_stale: bool,
    /// The execution goes with its client.
    pub(super) is_attached: bool,
    pub(super) note: RecordNote,
}

impl Entry {
    /// Whether a record with this fingerprint is about this request; `None` if it can't be told.
    pub(super) fn matches(&self, stored: &Fingerprint) -> Option<bool> {
        self.config.rules.fingerprinting.matches(stored, &self.fingerprint, &self.subject)
    }

    /// What a record says to the request.
    pub(super) fn told<B>(&self, found: Found) -> Response<ResponseBody<B>> {
        let problem = match found {
            Found::Completed(response, _) => match StoredResponse::decode(response) {
                Ok(stored) if variant::suits(&stored.headers, self.subject.headers()) => {
                    return replay(stored);
                }
                Ok(_) => Problem::new(ProblemKind::RepresentationDiffers),
                Err(DecodeError::Malformed) => self.unreadable("the stored response is malformed"),
                Err(DecodeError::UnknownVersion(_)) => {
                    self.unreadable("the stored response's version is not known")
                }
            },
            Found::Other => Problem::new(ProblemKind::KeyReused),
            Found::Tombstone(reason) => Problem::new(ProblemKind::ResponseNotRetained).detail(reason),
            Found::Unknown => Problem::new(ProblemKind::OutcomeUnknown),
            Found::Unreadable(why) => self.unreadable(why),
            _ => self.unreadable("the record's state is not known"),
        };
        self.config.refuse(&problem)
    }

    /// The answer for an execution that has lost its claim: what the record says now, never its own result, which doesn't count.
    pub(super) async fn successor<B>(&self) -> Response<ResponseBody<B>> {
        match self.config.records.look_up(&self.key).await {
            Ok(Some(record)) => match Found::of(record, |stored| self.matches(stored)) {
                ControlFlow::Break(found) => self.told(found),
                ControlFlow::Continue(_) => self.config.in_flight(),
            },
            Ok(None) => self.config.refuse(&Problem::new(ProblemKind::Superseded)),
            Err(error) => {
                tracing::error!(%error, "the response that counts can not be read");
                telemetry::idempotent_store_error("replay");
                self.config.refuse(&Problem::new(ProblemKind::Superseded))
            }
        }
    }

    /// A record that can't be read means "was executed": it is no miss.
    fn unreadable(&self, why: &'static str) -> Problem {
        tracing::error!(why, "an idempotency record can not be read");
        Problem::new(ProblemKind::RecordUnreadable).retry_after(self.config.rules.retry_after)
    }
}

fn replay<B>(stored: StoredResponse) -> Response<ResponseBody<B>> {
    let original = OriginalTrace::read(&stored.headers);
    let trace = original.as_ref().map(OriginalTrace::as_str);
    tracing::debug!(status = stored.status.as_u16(), original = trace, "response replayed");
    telemetry::idempotent_request("replayed");
    let headers = fidelity::replayed(&stored);
    let mut response =
        Response::new(ResponseBody::replayed(stored.body, stored.trailers, stored.knew_length));
    if let Some(original) = original {
        response.extensions_mut().insert(original);
    }
    *response.status_mut() = stored.status;
    *response.headers_mut() = headers;
    response
}
