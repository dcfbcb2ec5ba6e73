//! Life of a request with a key: its body is read in the client's future, everything after that happens in a task of its own.

use std::sync::Arc;

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{RecordNote, RecordScope};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tower_service::Service;
use tracing::Instrument;

use super::body::ResponseBody;
use super::claim::{self, Verdict};
use super::config::Config;
use super::entry::Entry;
use super::execute;
use super::future::Answer;
use super::key::IdempotencyKey;
use super::reply::{self, Reply};
use super::request_body::RequestBody;
use super::scope::NoScope;
use super::stale::StaleKeys;
use super::subject::{Subject, original_uri};
use super::trace::OriginalTrace;
use super::{expect, fidelity, stale};
use crate::BoxError;
use crate::caller::{Called, Caller};
use crate::grpc::{self, NotSingle, SingleMessage};

/// A request with a key, read to its end.
pub(super) struct Keyed<S> {
    pub(super) entry: Entry,
    pub(super) caller: Caller<S>,
    pub(super) key: IdempotencyKey,
    pub(super) request: Whole,
}

/// A request without its body's type.
pub(super) struct Whole {
    pub(super) parts: Parts,
    pub(super) data: Bytes,
    pub(super) trailers: Option<HeaderMap>,
}

impl Whole {
    pub(super) fn into_request<B>(self) -> Request<RequestBody<B>> {
        Request::from_parts(self.parts, RequestBody::buffered(self.data, self.trailers))
    }
}

/// Reads the request and starts its task.
pub(super) async fn buffered<S, ReqBody, ResBody>(
    config: Arc<Config>,
    caller: Caller<S>,
    key: IdempotencyKey,
    request: Request<ReqBody>,
) -> Answer<ResBody, S::Error>
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    ReqBody: Body<Data = Bytes> + Send + 'static,
    ReqBody::Error: Into<BoxError>,
    ResBody: Body<Data = Bytes> + Send + 'static,
    ResBody::Error: Into<BoxError>,
{
    let keyed = match prepare(&config, caller, key, request).await {
        Ok(keyed) => keyed,
        Err(refusal) => return Ok(refusal),
    };
    let (reply, answer) = reply::channel();
    let running = config.executions.enter();
    let task = async move {
        let _running = running;
        serve::<S, ReqBody, ResBody>(keyed, reply).await;
    };
    tokio::spawn(config.locks.inherit(task).in_current_span());
    match answer.await {
        Some(answer) => answer,
        // The task died without an answer: its runtime is going away, or a layer's own code panicked.
        None => Ok(config.refuse(&Problem::new(ProblemKind::HandlerPanicked))),
    }
}

/// Reads the request, or refuses it. Until its end nothing is claimed, so a client that goes away early leaves no trace.
pub(super) async fn prepare<S, ReqBody, ResBody>(
    config: &Arc<Config>,
    mut caller: Caller<S>,
    key: IdempotencyKey,
    request: Request<ReqBody>,
) -> Result<Keyed<S>, Response<ResponseBody<ResBody>>>
where
    S: Clone,
    ReqBody: Body<Data = Bytes>,
    ReqBody::Error: Into<BoxError>,
{
    let (parts, body) = request.into_parts();
    let refused = |problem| config.refuse(&problem);
    let record = config.scoping.record_key(&parts, &key, config.rules.key_per_route);
    let (record, scope) = record.map_err(|error| refused(no_scope(error)))?;
    let is_stale = is_stale(config, &parts, &key).map_err(refused)?;
    if expect::is_asking(&parts.headers)
        && let Some(refusal) = expect::refusal(config, record, &parts, || caller.park()).await
    {
        return Err(refusal);
    }
    let request = read(parts, body, config.rules.request_limit).await.map_err(refused)?;
    let subject = Subject::new(&request.parts, request.data.clone());
    let fingerprint = config.rules.fingerprinting.current(&subject);
    let note = note(config, &request.parts, scope);
    let config = Arc::clone(config);
    let entry = Entry { config, key: record, fingerprint, subject, is_stale, is_attached: false, note };
    Ok(Keyed { entry, caller, key, request })
}

pub(super) async fn serve<S, ReqBody, ResBody>(mut keyed: Keyed<S>, mut reply: Reply<ResBody, S::Error>)
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>> + Clone,
    S::Error: 'static,
    ResBody: Body<Data = Bytes>,
    ResBody::Error: Into<BoxError>,
{
    match claim::obtain(&mut keyed, &mut reply).await {
        Verdict::Execute(guard) => execute::execute(keyed, guard, reply).await,
        Verdict::Answer(response) => reply.send(Ok(response)),
        Verdict::Unprotected => reply.send(unprotected(keyed).await),
        Verdict::Gone => {}
    }
}

async fn unprotected<S, ReqBody, ResBody>(keyed: Keyed<S>) -> Answer<ResBody, S::Error>
where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>>,
{
    match keyed.caller.call(keyed.request.into_request()).await {
        Called::Answered(response) => {
            let mut response = response.map(ResponseBody::passing);
            response.headers_mut().insert(fidelity::STATUS, HeaderValue::from_static("unprotected"));
            Ok(response)
        }
        Called::NotReady(error) | Called::Failed(error) => Err(error),
    }
}

/// Whether the request says that it was first sent so long ago that its record may have gone.
fn is_stale(config: &Config, parts: &Parts, key: &IdempotencyKey) -> Result<bool, Problem> {
    let rules = &config.rules;
    let now = stale::now();
    let mut ages = Vec::new();
    if rules.stale_keys == StaleKeys::Refuse {
        ages.extend(stale::age(key, now));
    }
    if let Some(value) = rules.first_sent.as_ref().and_then(|name| parts.headers.get(name)) {
        let sent = value.to_str().ok().and_then(|text| httpdate::parse_http_date(text).ok());
        let sent = sent.ok_or_else(|| {
            Problem::new(ProblemKind::KeyInvalid)
                .detail("the time when the request was first sent is no HTTP date")
        })?;
        ages.extend(now.duration_since(sent).ok());
    }
    Ok(ages.into_iter().any(|age| stale::is_stale(age, rules.retention)))
}

/// What the record says to people.
fn note(config: &Config, parts: &Parts, scope: Option<RecordScope>) -> RecordNote {
    let trace = OriginalTrace::of_request(&parts.headers);
    let trace = trace.as_ref().and_then(|trace| trace.to_str().ok()).unwrap_or_default();
    let note = RecordNote::new().with_trace(trace);
    let note = scope.into_iter().fold(note, RecordNote::with_scope);
    if config.records.is_sealed() {
        return note;
    }
    note.with_label(&format!("{} {}", parts.method, original_uri(parts).path()))
}

fn no_scope(error: NoScope) -> Problem {
    match error {
        NoScope::Missing => Problem::new(ProblemKind::ScopeMissing),
        NoScope::Failed(error) => {
            tracing::error!(%error, "the scope of an idempotency key could not be determined");
            Problem::new(ProblemKind::ScopeFailed)
        }
    }
}

async fn read<B>(parts: Parts, body: B, limit: usize) -> Result<Whole, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let too_large = || Problem::new(ProblemKind::BodyTooLarge).detail(format!("the limit is {limit} bytes"));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let collected = if grpc::is_grpc(&parts.headers) {
        Limited::new(SingleMessage::new(body), limit).collect().await
    } else {
        Limited::new(body, limit).collect().await
    };
    match collected {
        Ok(collected) => {
            let trailers = collected.trailers().cloned();
            Ok(Whole { parts, data: collected.to_bytes(), trailers })
        }
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) if error.is::<NotSingle>() => {
            Err(Problem::new(ProblemKind::BodyUnreadable).detail(error.to_string()))
        }
        Err(error) => {
            tracing::debug!(%error, "a request body could not be read");
            Err(Problem::new(ProblemKind::BodyUnreadable))
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;
    use crate::testing::Frames;

    async fn read_of<B>(body: B) -> Result<Bytes, ProblemKind>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<BoxError>,
    {
        let parts = Request::new(()).into_parts().0;
        read(parts, body, 4).await.map(|whole| whole.data).map_err(|problem| problem.kind())
    }

    #[tokio::test]
    async fn the_limit_is_exact() {
        assert_eq!(read_of(Full::from("four")).await.unwrap(), "four");
        assert_eq!(read_of(Full::from("five!")).await, Err(ProblemKind::BodyTooLarge));
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_stopped_at_the_limit() {
        let body = Frames::new(["ab", "cd", "e"]);
        assert_eq!(read_of(body).await, Err(ProblemKind::BodyTooLarge));
    }

    #[tokio::test]
    async fn a_broken_body_is_no_request() {
        assert_eq!(read_of(Frames::new(["ab"]).then_fail()).await, Err(ProblemKind::BodyUnreadable));
    }
}
