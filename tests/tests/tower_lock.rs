//! `LockLayer` end to end: axum behind real HTTP, on every store.

mod tower_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use distlock::{GuardRef, KeyWriter, LockError, LockKey, LockManager};
use distlock_tests::wait;
use distlock_tower::{HeldLock, LockLayer};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use tower_support::{Client, FrameSender, LIMIT, Server, Store, frames};

fn by_path(parts: &Parts) -> Result<Option<LockKey>, LockError> {
    KeyWriter::new().literal("path:").value(parts.uri.path()).finish().map(Some)
}

fn layer(locks: &LockManager) -> LockLayer {
    LockLayer::builder(locks, by_path).wait(LIMIT).build().unwrap()
}

/// How many handlers run now, how many ran at most at once, and a gate that holds them.
#[derive(Clone, Debug)]
struct Room {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    tokens: Arc<Mutex<Vec<u64>>>,
    gate: Arc<Semaphore>,
}

impl Room {
    fn new(permits: usize) -> Self {
        Self {
            inside: Arc::default(),
            most: Arc::default(),
            tokens: Arc::default(),
            gate: Arc::new(Semaphore::new(permits)),
        }
    }

    async fn visit(&self, token: u64) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.tokens.lock().unwrap().push(token);
        // Leaves the count also when the handler is dropped here.
        let _leaving = Leaving(self);
        self.gate.acquire().await.expect("the gate stays").forget();
        // A handler that overlapped another would be seen by it over these turns.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    async fn has_inside(&self, count: usize) {
        let reached = async || (self.inside.load(Ordering::SeqCst) == count).then_some(());
        wait::until("handlers inside", LIMIT, reached).await.unwrap();
    }
}

struct Leaving<'a>(&'a Room);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn visit(State(room): State<Room>, lock: HeldLock, Extension(guard): Extension<GuardRef>) -> String {
    assert_eq!(guard.fencing_token(), lock.fencing_token());
    assert!(lock.is_valid());
    room.visit(lock.fencing_token().get()).await;
    lock.fencing_token().to_string()
}

fn app(room: &Room, layer: LockLayer) -> Router {
    let visit = post(visit);
    Router::new().route("/a", visit.clone()).route("/b", visit).with_state(room.clone()).layer(layer)
}

/// A route whose response body a test feeds, and the number of requests that got in.
fn streaming(layer: LockLayer) -> (Router, Arc<Mutex<Vec<FrameSender>>>) {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let bodies = bodies.clone();
        move || async move {
            let (send, body) = frames();
            send.data("head");
            bodies.lock().unwrap().push(send);
            Response::new(axum::body::Body::from(body))
        }
    };
    (Router::new().route("/", post(handler)).layer(layer), bodies)
}

async fn entered(bodies: &Mutex<Vec<FrameSender>>, count: usize) {
    let reached = async || (bodies.lock().unwrap().len() >= count).then_some(());
    wait::until("requests got in", LIMIT, reached).await.unwrap();
}

on_every_store!(
    a_body_that_is_dropped_early_releases,
    a_client_that_goes_away_releases,
    a_handler_below_can_enter_again,
    a_lock_lost_in_the_body_breaks_the_body,
    a_lock_lost_in_the_handler_stops_it,
    a_panic_releases,
    one_request_at_a_time_for_each_key,
    other_methods_and_requests_without_a_key_pass,
    the_lock_lasts_to_the_end_of_the_body,
    who_waits_in_vain_is_told_so,
);

async fn one_request_at_a_time_for_each_key(store: Store) {
    let room = Room::new(Semaphore::MAX_PERMITS);
    // Two servers with managers of their own: two replicas.
    let one = Server::start(app(&room, layer(&store.manager().await))).await;
    let two = Server::start(app(&room, layer(&store.manager().await))).await;
    let client = Client::new();
    let requests: Vec<_> = (0..60)
        .map(|n| {
            let server = if n % 2 == 0 { &one } else { &two };
            let (client, request) = (client.clone(), server.plain(Method::POST, "/a"));
            tokio::spawn(async move { client.send(request).await })
        })
        .collect();
    for request in requests {
        assert_eq!(request.await.unwrap().status, StatusCode::OK);
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 1);
    let tokens = room.tokens.lock().unwrap();
    assert_eq!(tokens.len(), 60);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "tokens grow: {tokens:?}");
}

async fn other_methods_and_requests_without_a_key_pass(store: Store) {
    let locks = store.manager().await;
    let key = |parts: &Parts| match parts.uri.path() {
        "/free" => Ok(None),
        "/broken" => LockKey::new("").map(Some),
        _ => by_path(parts),
    };
    let layer = LockLayer::builder(&locks, key).methods([Method::POST]).build().unwrap();
    let locked = |lock: Option<HeldLock>| async move { lock.is_some().to_string() };
    let route = get(locked).post(locked);
    let app = ["/free", "/broken", "/held"]
        .into_iter()
        .fold(Router::new(), |app, path| app.route(path, route.clone()))
        .layer(layer);
    let server = Server::start(app).await;
    let client = Client::new();
    assert_eq!(client.send(server.plain(Method::POST, "/held")).await.text(), "true");
    assert_eq!(client.send(server.plain(Method::GET, "/held")).await.text(), "false");
    assert_eq!(client.send(server.plain(Method::POST, "/free")).await.text(), "false");
    client.send(server.plain(Method::POST, "/broken")).await.assert_problem(400, "lock-key-invalid");
}

async fn who_waits_in_vain_is_told_so(store: Store) {
    let locks = store.manager().await;
    let room = Room::new(0);
    let builder = || LockLayer::builder(&locks, by_path).wait(Duration::from_millis(50));
    let server = Server::start(app(&room, builder().build().unwrap())).await;
    let other = Server::start(app(&room, builder().busy_status(StatusCode::LOCKED).build().unwrap())).await;
    let holder = tokio::spawn({
        let request = server.plain(Method::POST, "/a");
        async move { Client::new().send(request).await }
    });
    room.has_inside(1).await;
    let refused = Client::new().send(server.plain(Method::POST, "/a")).await;
    refused.assert_problem(409, "lock-busy");
    assert!(refused.headers.contains_key("retry-after"));
    Client::new().send(other.plain(Method::POST, "/a")).await.assert_problem(423, "lock-busy");
    // Another key isn't concerned.
    room.gate.add_permits(2);
    assert_eq!(Client::new().send(server.plain(Method::POST, "/b")).await.status, StatusCode::OK);
    assert_eq!(holder.await.unwrap().status, StatusCode::OK);
}

async fn the_lock_lasts_to_the_end_of_the_body(store: Store) {
    let locks = store.manager().await;
    let (app, bodies) = streaming(layer(&locks));
    let server = Server::start(app).await;
    let mut first = Client::new().start(server.plain(Method::POST, "/")).await.into_body();
    assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "head");
    let second = tokio::spawn({
        let request = server.plain(Method::POST, "/");
        async move { Client::new().start(request).await }
    });
    // As long as the first body is open nobody else gets the lock, whatever it sends.
    let busy = async || locks.mutex("path:%2F").try_lock().await.is_err_and(|error| error.is_busy());
    assert!(busy().await);
    bodies.lock().unwrap()[0].data("more");
    assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "more");
    assert!(busy().await);
    assert_eq!(bodies.lock().unwrap().len(), 1, "nobody got in before the end of the body");
    bodies.lock().unwrap()[0] = frames().0;
    assert!(first.frame().await.is_none());
    assert_eq!(second.await.unwrap().status(), StatusCode::OK);
    assert_eq!(bodies.lock().unwrap().len(), 2);
}

async fn a_body_that_is_dropped_early_releases(store: Store) {
    let locks = store.manager().await;
    let (app, bodies) = streaming(layer(&locks));
    let server = Server::start(app).await;
    let first = Client::new().start(server.plain(Method::POST, "/")).await;
    drop(first);
    let second = Client::new().start(server.plain(Method::POST, "/")).await;
    assert_eq!(second.status(), StatusCode::OK);
    entered(&bodies, 2).await;
    let first_body = bodies.lock().unwrap()[0].clone();
    first_body.dropped().await;
}

async fn a_client_that_goes_away_releases(store: Store) {
    let locks = store.manager().await;
    let room = Room::new(0);
    let server = Server::start(app(&room, layer(&locks))).await;
    let gone = tokio::spawn({
        let request = server.plain(Method::POST, "/a");
        async move { Client::new().send(request).await }
    });
    room.has_inside(1).await;
    gone.abort();
    room.has_inside(0).await;
    room.gate.add_permits(1);
    assert_eq!(Client::new().send(server.plain(Method::POST, "/a")).await.status, StatusCode::OK);
}

async fn a_panic_releases(store: Store) {
    let locks = store.manager().await;
    let panicked = Arc::new(AtomicBool::new(false));
    let handler = {
        let panicked = panicked.clone();
        move || async move {
            assert!(panicked.swap(true, Ordering::SeqCst), "the test's own panic");
            "fine"
        }
    };
    let server = Server::start(Router::new().route("/", post(handler)).layer(layer(&locks))).await;
    // axum lets the panic end the connection.
    assert!(Client::new().try_send(server.plain(Method::POST, "/")).await.is_err());
    assert_eq!(Client::new().send(server.plain(Method::POST, "/")).await.text(), "fine");
}

async fn a_lock_lost_in_the_handler_stops_it(store: Store) {
    let locks = store.manager().await;
    let room = Room::new(0);
    let layer =
        LockLayer::builder(&locks, by_path).ttl(Duration::from_millis(300)).wait(LIMIT).build().unwrap();
    let server = Server::start(app(&room, layer)).await;
    let request = tokio::spawn({
        let request = server.plain(Method::POST, "/a");
        async move { Client::new().send(request).await }
    });
    room.has_inside(1).await;
    locks.force_release("path:%2Fa", "test").await.unwrap();
    room.has_inside(0).await;
    let reply = request.await.unwrap();
    reply.assert_problem(503, "lock-lost");
    assert!(reply.headers.contains_key("retry-after"));
}

async fn a_lock_lost_in_the_body_breaks_the_body(store: Store) {
    let locks = store.manager().await;
    let layer =
        LockLayer::builder(&locks, by_path).ttl(Duration::from_millis(300)).wait(LIMIT).build().unwrap();
    let (app, bodies) = streaming(layer);
    let server = Server::start(app).await;
    let mut body = Client::new().start(server.plain(Method::POST, "/")).await.into_body();
    assert!(body.frame().await.unwrap().is_ok());
    let sender = bodies.lock().unwrap()[0].clone();
    locks.force_release("path:%2F", "test").await.unwrap();
    sender.dropped().await;
    assert!(body.frame().await.unwrap().is_err(), "the client sees that the body is incomplete");
}

async fn a_handler_below_can_enter_again(store: Store) {
    let locks = store.manager().await;
    let handler = {
        let locks = locks.clone();
        move |held: HeldLock| async move {
            let again = locks.mutex("path:%2F").reentrant().try_lock().await.unwrap();
            assert_eq!(again.fencing_token(), held.fencing_token());
            "entered"
        }
    };
    let server = Server::start(Router::new().route("/", post(handler)).layer(layer(&locks))).await;
    assert_eq!(Client::new().send(server.plain(Method::POST, "/")).await.text(), "entered");
}
