//! Services that can't leave their thread: their executions go with their clients.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use distlock_tower::OnDisconnect;
use distlock_tower::idempotency::{Attached, AttachedLayer, RequestBody};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::sync::Notify;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::builder;
use crate::tower_support::{FrameSender, Frames, Store, frames, keyed};

crate::on_every_store!(
    a_service_that_is_not_send_executes_once_and_is_replayed,
    an_attached_body_that_is_dropped_half_way_is_an_unknown_outcome,
    an_attached_execution_that_is_dropped_is_unknown_or_forgotten_by_choice,
);

/// What a handler shares with its test, on one thread.
#[derive(Clone, Default)]
struct Local {
    runs: Rc<Cell<usize>>,
    go: Rc<Notify>,
    is_gated: bool,
}

type Whole = Full<Bytes>;

type Handler = Pin<Box<dyn Future<Output = Result<Response<Whole>, Infallible>>>>;

#[derive(Clone)]
struct Handle(Local);

impl Service<Request<RequestBody<Whole>>> for Handle {
    type Response = Response<Whole>;
    type Error = Infallible;
    type Future = Handler;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody<Whole>>) -> Handler {
        let local = self.0.clone();
        Box::pin(async move {
            local.runs.set(local.runs.get() + 1);
            if local.is_gated {
                local.go.notified().await;
            }
            Ok(Response::new(Full::from(format!("run {}", local.runs.get()))))
        })
    }
}

fn service(layer: AttachedLayer, local: &Local) -> Attached<Handle> {
    layer.layer(Handle(local.clone()))
}

async fn text<B: Body<Data = Bytes, Error: std::fmt::Debug>>(response: Response<B>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

async fn a_service_that_is_not_send_executes_once_and_is_replayed(store: Store) {
    let locks = store.manager().await;
    let local = Local::default();
    let service = service(builder(&locks).build().unwrap().attached(), &local);
    for is_replay in [false, true] {
        let response = service.clone().oneshot(keyed("/", "k", "")).await.unwrap();
        assert_eq!(response.headers().contains_key("idempotent-replayed"), is_replay);
        assert_eq!(text(response).await, "run 1");
    }
    let plain = Request::post("/").body(Whole::default()).unwrap();
    assert_eq!(text(service.clone().oneshot(plain).await.unwrap()).await, "run 2");
    let other = service.oneshot(keyed("/?other", "k", "")).await.unwrap();
    assert_eq!(other.status(), 422);
    assert_eq!(local.runs.get(), 2);
}

/// Polls until the handler has begun.
async fn begun<F: Future>(mut request: Pin<&mut F>, local: &Local) {
    std::future::poll_fn(|cx| {
        assert!(request.as_mut().poll(cx).is_pending(), "the gate is closed");
        if local.runs.get() > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn an_attached_execution_that_is_dropped_is_unknown_or_forgotten_by_choice(store: Store) {
    let locks = store.manager().await;
    for mode in [OnDisconnect::Finish, OnDisconnect::CancelThenUnknown, OnDisconnect::CancelThenRelease] {
        let local = Local { is_gated: true, ..Local::default() };
        let layer = builder(&locks).on_disconnect(mode).build().unwrap();
        let executions = layer.executions();
        let service = service(layer.attached(), &local);
        let key = format!("{mode:?}");
        {
            let mut request = pin!(service.clone().oneshot(keyed("/", &key, "")));
            begun(request.as_mut(), &local).await;
            assert_eq!(executions.running(), 1);
        }
        assert_eq!(executions.running(), 0);
        local.go.notify_one();
        let retry = service.oneshot(keyed("/", &key, "")).await.unwrap();
        if mode == OnDisconnect::CancelThenRelease {
            assert_eq!(text(retry).await, "run 2");
        } else {
            assert_eq!(retry.status(), 409);
            assert!(text(retry).await.contains("outcome-unknown"));
            assert_eq!(local.runs.get(), 1);
        }
    }
}

/// A body that isn't `Send`.
struct LocalFrames(Frames, #[allow(dead_code, reason = "it makes the type what it is")] Rc<()>);

impl Body for LocalFrames {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, String>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }
}

async fn an_attached_body_that_is_dropped_half_way_is_an_unknown_outcome(store: Store) {
    let locks = store.manager().await;
    for is_read in [true, false] {
        let sender: Rc<Cell<Option<FrameSender>>> = Rc::default();
        let handler = {
            let sender = sender.clone();
            service_fn(move |_: Request<RequestBody<Whole>>| {
                let (send, body) = frames();
                send.data("one");
                sender.set(Some(send));
                async move { Ok::<_, Infallible>(Response::new(LocalFrames(body, Rc::new(())))) }
            })
        };
        // Even where the record would be forgotten: the handler has had its effect.
        let layer = builder(&locks).on_disconnect(OnDisconnect::CancelThenRelease).build().unwrap();
        let service = layer.attached().layer(handler);
        let key = format!("read {is_read}").replace(' ', "-");
        let response = service.clone().oneshot(keyed("/", &key, "")).await.unwrap();
        let mut body = response.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        let send = sender.take().expect("the handler ran");
        if is_read {
            send.data("two");
            send.trailers(HeaderMap::from_iter([(
                HeaderName::from_static("x-end"),
                HeaderValue::from_static("1"),
            )]));
            drop(send);
            assert_eq!(body.collect().await.unwrap().to_bytes(), "two");
            let replay = service.oneshot(keyed("/", &key, "")).await.unwrap();
            let whole = replay.into_body().collect().await.unwrap();
            assert_eq!(whole.trailers().unwrap()["x-end"], "1");
            assert_eq!(whole.to_bytes(), "onetwo");
        } else {
            drop(body);
            assert_eq!(service.oneshot(keyed("/", &key, "")).await.unwrap().status(), 409);
            assert!(sender.take().is_none(), "nothing ran again");
        }
    }
}

/// A client that goes away while the store is asked: the claim is given back, nothing ran.
#[tokio::test]
async fn an_attached_request_that_is_dropped_before_it_executes_leaves_no_trace() {
    let (locks, store) = crate::store::faulty().await;
    let local = Local::default();
    let service = service(builder(&locks).build().unwrap().attached(), &local);
    store.next(distlock_runtime::testkit::Call::Claim, distlock_runtime::testkit::Fault::HangApplied);
    {
        let mut request = pin!(service.clone().oneshot(keyed("/", "k", "")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(request.as_mut().poll(&mut cx).is_pending());
    }
    let next = service.oneshot(keyed("/", "k", "")).await.unwrap();
    assert_eq!(text(next).await, "run 1");
}
