//! One execution under its claim: the handler runs, its outcome decides what becomes of the record.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use distlock_runtime::problem::{Problem, ProblemKind};
use distlock_runtime::{ClaimGuard, Settlement};
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::config::OnDisconnect;
use super::disposition::{Disposition, OnPanic};
use super::execution::Execution;
use super::held::HeldClaim;
use super::reply::Reply;
use super::request_body::RequestBody;
use super::serve::Keyed;
use super::{record, recovery};
use crate::BoxError;
use crate::caller::{Called, Panicked, caught};

pub(super) async fn execute<S, ReqBody, ResBody>(
    keyed: Keyed<S>,
    guard: ClaimGuard,
    mut reply: Reply<ResBody, S::Error>,
) where
    S: Service<Request<RequestBody<ReqBody>>, Response = Response<ResBody>>,
    S::Error: 'static,
    ResBody: Body<Data = Bytes>,
    ResBody::Error: Into<BoxError>,
{
    let Keyed { entry, caller, key, request } = keyed;
    let config = Arc::clone(&entry.config);
    let rules = &config.rules;
    let execution = Execution::new(key, guard.view(), guard.taken_over());
    let mut claim = match recovery::recover(HeldClaim::new(entry, guard), &execution).await {
        ControlFlow::Continue(claim) => claim,
        ControlFlow::Break(response) => return reply.send(Ok(response)),
    };
    claim.entry.subject.forget_body();
    if claim.entry.is_attached {
        claim.if_dropped(match rules.on_disconnect {
            OnDisconnect::CancelThenRelease => Settlement::Release,
            _ => unknown(rules.retention),
        });
    }
    let mut request = request.into_request();
    request.extensions_mut().insert(execution);

    let call = caught(caller.call(request));
    let called = if rules.on_disconnect == OnDisconnect::Finish {
        call.await
    } else {
        // The handler is dropped here, before its record is settled.
        tokio::select! {
            biased;
            () = reply.closed() => {
                return match rules.on_disconnect {
                    OnDisconnect::CancelThenRelease => drop(claim.settle(Settlement::Release).await),
                    _ => drop(claim.settle(unknown(rules.retention)).await),
                };
            }
            called = call => called,
        }
    };
    match called {
        Ok(Called::Answered(response)) => answered(claim, response, reply).await,
        Ok(Called::NotReady(error)) => {
            claim.settle(Settlement::Release).await;
            reply.send(Err(error));
        }
        Ok(Called::Failed(error)) => {
            let settlement = match rules.classifier.classify_error(&error) {
                Disposition::Release => Settlement::Release,
                Disposition::Tombstone => record::tombstone("failed", rules.retention),
                _ => unknown(rules.retention),
            };
            claim.settle(settlement).await;
            reply.send(Err(error));
        }
        Err(Panicked) => reply.send(Ok(panicked(claim).await)),
    }
}

async fn panicked<B>(claim: HeldClaim) -> Response<ResponseBody<B>> {
    let config = Arc::clone(&claim.entry.config);
    let problem = Problem::new(ProblemKind::HandlerPanicked);
    if config.rules.on_panic == OnPanic::Store {
        let response = config.rules.responder.respond(&problem);
        return record::keep(claim, response, config.rules.retention).await;
    }
    claim.settle(unknown(config.rules.retention)).await;
    config.refuse(&problem)
}

/// A response that isn't kept is settled before its client sees it, so that the next try meets the settled record.
async fn answered<B, E>(mut claim: HeldClaim, response: Response<B>, reply: Reply<B, E>)
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    let (head, body) = response.into_parts();
    let config = Arc::clone(&claim.entry.config);
    let rules = &config.rules;
    if claim.entry.is_attached {
        // It has had its effect, whatever becomes of its body.
        claim.if_dropped(unknown(rules.retention));
    }
    let lost = match rules.classifier.classify(&head) {
        Disposition::Store => return record::record(claim, head, body, rules.retention, reply).await,
        Disposition::StoreFor(retain) => return record::record(claim, head, body, retain, reply).await,
        Disposition::Tombstone => claim.settle(record::tombstone("not-storable", rules.retention)).await,
        // What says "nothing happened" or "who knows" is true of this execution whoever owns the record now.
        Disposition::Release => {
            claim.settle(Settlement::Release).await;
            None
        }
        Disposition::Unknown => {
            claim.settle(unknown(rules.retention)).await;
            None
        }
    };
    let response = match lost {
        None => Response::from_parts(head, ResponseBody::passing(body)),
        Some(entry) => entry.successor().await,
    };
    reply.send(Ok(response));
}

fn unknown(retain: Duration) -> Settlement {
    Settlement::Unknown { retain }
}
