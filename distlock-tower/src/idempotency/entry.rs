//! The record that a request is about, and what it says to the request.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{Fingerprint, Record, RecordKey, RecordState, telemetry};
use http::Response;

use super::body::ResponseBody;
use super::codec::{DecodeError, StoredResponse};
use super::config::Config;
use super::{fidelity, fingerprint};

/// What a client is told to wait before it asks again.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Where a request's record is, and what the request looks like.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) config: Arc<Config>,
    pub(super) key: RecordKey,
    pub(super) fingerprint: Fingerprint,
}

impl Entry {
    /// What a record says: the answer, or to go on waiting, with how long the executor's lease still runs. A record of another
    /// request is refused, in flight too.
    pub(super) fn read<B>(&self, record: Record) -> ControlFlow<Response<ResponseBody<B>>, Duration> {
        let problem = match fingerprint::matches(&record.fingerprint, &self.fingerprint) {
            None => unreadable("the fingerprint's version is not known"),
            Some(false) => Problem::new(ProblemKind::KeyReused),
            Some(true) => match record.state {
                RecordState::InFlight { remaining } => return ControlFlow::Continue(remaining),
                RecordState::Completed { response } => match StoredResponse::decode(response) {
                    Ok(stored) => return ControlFlow::Break(replay(stored)),
                    Err(DecodeError::Malformed) => unreadable("the stored response is malformed"),
                    Err(DecodeError::UnknownVersion(_)) => {
                        unreadable("the stored response's version is not known")
                    }
                },
                RecordState::Tombstone { reason } => {
                    Problem::new(ProblemKind::ResponseNotRetained).detail(reason)
                }
                RecordState::Unknown => Problem::new(ProblemKind::OutcomeUnknown),
                _ => unreadable("the record's state is not known"),
            },
        };
        ControlFlow::Break(self.config.refuse(&problem))
    }

    /// The answer for an execution that has lost its claim: what the record says now, never its own result, which doesn't count.
    pub(super) async fn successor<B>(&self) -> Response<ResponseBody<B>> {
        match self.config.records.look_up(&self.key).await {
            Ok(Some(record)) => match self.read(record) {
                ControlFlow::Break(response) => response,
                ControlFlow::Continue(_) => self.in_flight(),
            },
            Ok(None) | Err(_) => self.config.refuse(&Problem::new(ProblemKind::Superseded)),
        }
    }

    pub(super) fn in_flight<B>(&self) -> Response<ResponseBody<B>> {
        self.config.refuse(&Problem::new(ProblemKind::InFlight).retry_after(RETRY_AFTER))
    }
}

fn replay<B>(stored: StoredResponse) -> Response<ResponseBody<B>> {
    tracing::debug!(status = stored.status.as_u16(), "response replayed");
    telemetry::idempotent_request("replayed");
    let headers = fidelity::replayed(&stored);
    let mut response = Response::new(ResponseBody::stored(stored.body, stored.trailers));
    *response.status_mut() = stored.status;
    *response.headers_mut() = headers;
    response
}

/// A record that can't be read means "was executed": it is no miss.
fn unreadable(why: &'static str) -> Problem {
    tracing::error!(why, "an idempotency record can not be read");
    Problem::new(ProblemKind::RecordUnreadable).retry_after(RETRY_AFTER)
}
