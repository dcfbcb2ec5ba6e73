//! The layer among others.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::post;
use distlock_tower::{IdempotencyLayer, OriginalTrace, Scope};
use http::{HeaderValue, StatusCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tower_support::{Runs, ask, keyed};
use crate::{app, builder, memory};

#[derive(Clone)]
struct User(String);

/// Authentication outside: whoever has lost the right to call is told no replay, and no refusal of it is kept.
#[tokio::test]
async fn a_caller_who_lost_the_right_gets_no_replay() {
    async fn authenticate(
        State(allowed): State<Arc<AtomicBool>>,
        mut request: Request,
        next: Next,
    ) -> Response {
        if !allowed.load(Ordering::SeqCst) {
            return axum::response::IntoResponse::into_response(StatusCode::UNAUTHORIZED);
        }
        request.extensions_mut().insert(User("ann".to_owned()));
        next.run(request).await
    }
    let (locks, runs, allowed) = (memory().await, Runs::open(), Arc::new(AtomicBool::new(true)));
    let layer = IdempotencyLayer::builder(&locks)
        .scope(|parts| parts.extensions.get::<User>().map(|user| Scope::new(&user.0)))
        .build()
        .unwrap();
    let app = Router::new()
        .route("/pay", post(crate::pay))
        .with_state(runs.clone())
        .layer(layer)
        .layer(middleware::from_fn_with_state(allowed.clone(), authenticate));
    for right in [true, false, true] {
        allowed.store(right, Ordering::SeqCst);
        let reply = ask(&app, keyed("/pay", "k", "")).await;
        if right {
            assert_eq!(reply.text(), "run 1");
        } else {
            assert_eq!(reply.status, StatusCode::UNAUTHORIZED);
        }
    }
    assert_eq!(runs.total(), 1);
}

/// A tracing layer outside finds out where the work was done.
#[tokio::test]
async fn a_replay_names_the_trace_in_which_the_work_was_done() {
    const FIRST: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    async fn link(request: Request, next: Next) -> Response {
        let mut response = next.run(request).await;
        if let Some(original) = response.extensions().get::<OriginalTrace>() {
            let original = HeaderValue::from_str(original.as_str()).unwrap();
            response.headers_mut().insert("x-linked-to", original);
        }
        response
    }
    let (locks, runs) = (memory().await, Runs::open());
    let app = app(&runs, builder(&locks)).layer(middleware::from_fn(link));
    let sent = async |trace: &'static str| {
        let mut request = keyed("/pay", "k", "");
        request.headers_mut().insert("traceparent", HeaderValue::from_static(trace));
        ask(&app, request).await
    };
    assert!(!sent(FIRST).await.headers.contains_key("x-linked-to"));
    let replay = sent("00-11111111111111111111111111111111-2222222222222222-01").await;
    assert!(replay.is_replay());
    assert_eq!(replay.headers["x-linked-to"], FIRST);
    assert!(!replay.headers.contains_key("distlock-trace"));
}
