//! What passes a layer costs no allocation: no future is boxed, no body wrapped, for requests that aren't its business.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use bytes::Bytes;
use distlock::LockManager;
use distlock_tower::{IdempotencyLayer, LockLayer};
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower::{Layer, Service};

/// Answers at once, and allocates nothing itself.
#[derive(Clone, Debug)]
struct Bare;

impl<B> Service<Request<B>> for Bare {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        ready(Ok(Response::new(Full::from("done"))))
    }
}

async fn memory() -> LockManager {
    LockManager::connect("memory:").await.unwrap()
}

fn request(method: Method, key: Option<&'static str>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri("/pay");
    key.into_iter()
        .fold(request, |request, key| request.header("idempotency-key", key))
        .body(Full::from("5"))
        .unwrap()
}

/// How often a call and the reading of its response allocate, when nothing has to be waited for.
fn allocations<S, B>(service: &mut S, request: Request<Full<Bytes>>) -> u64
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>,
    B: Body<Data = Bytes>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut request = Some(request);
    let counted = measure(|| {
        assert!(service.poll_ready(&mut cx).is_ready());
        let mut call = pin!(service.call(request.take().expect("measured once")));
        let Poll::Ready(Ok(response)) = call.as_mut().poll(&mut cx) else { panic!("it waits for nothing") };
        let mut body = pin!(response.into_body());
        let frame = body.as_mut().poll_frame(&mut cx);
        assert!(matches!(frame, Poll::Ready(Some(Ok(_)))));
    });
    counted.count_total
}

#[test]
fn the_count_sees_a_boxed_future() {
    let mut boxing = tower::service_fn(|_: Request<Full<Bytes>>| {
        Box::pin(async { Ok::<_, Infallible>(Response::new(Full::from("done"))) })
    });
    assert_eq!(allocations(&mut boxing, request(Method::POST, None)), 1);
    assert_eq!(allocations(&mut Bare, request(Method::POST, None)), 0);
}

#[tokio::test]
async fn a_request_without_a_key_costs_no_allocation() {
    let layer = IdempotencyLayer::builder(&memory().await).anonymous().build().unwrap();
    let mut service = layer.layer(Bare);
    assert_eq!(allocations(&mut service, request(Method::POST, None)), 0);
    // The key of a method that isn't covered is no key.
    assert_eq!(allocations(&mut service, request(Method::GET, Some("k"))), 0);
    let mut attached = layer.attached().layer(Bare);
    assert_eq!(allocations(&mut attached, request(Method::POST, None)), 0);
}

#[tokio::test]
async fn a_request_that_locks_nothing_costs_no_allocation() {
    let layer = LockLayer::builder(&memory().await, |_| Ok(None)).build().unwrap();
    assert_eq!(allocations(&mut layer.layer(Bare), request(Method::POST, None)), 0);
}
