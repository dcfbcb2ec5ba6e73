//! Requests through the layers on `memory:`: as calls of the service, and over HTTP.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::routing::post;
use distlock::LockManager;
use distlock::tower::{IdempotencyLayer, LockLayer};
use distlock::{KeyWriter, LockError, LockKey};
use http::request::Parts;
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use redis::aio::MultiplexedConnection;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use super::alone::rate;
use super::step;
use crate::contender::Kind;
use crate::job::{Figures, Job, Work};
use crate::stats::now;

const ORDER: &str = r#"{"order": 42, "amount": 5, "currency": "EUR"}"#;
const RECEIPT: &str = r#"{"order": 42, "paid": 5, "receipt": "4c2a1f"}"#;

pub(super) async fn run(job: &Job) -> anyhow::Result<Figures> {
    let app = app(job).await?;
    match job.work {
        Work::Layer => calls(job, app).await,
        _ => over_http(job, app).await,
    }
}

async fn app(job: &Job) -> anyhow::Result<Router> {
    let locks = LockManager::connect("memory:").await?;
    let store = redis::Client::open(job.url.as_str())?.get_multiplexed_async_connection().await?;
    let asks = job.contender == Kind::Working;
    let router =
        Router::new().route("/pay", post(move |body: String| pay(body, asks.then(|| store.clone()))));
    Ok(match job.contender {
        Kind::Bare | Kind::Working => router,
        Kind::Keyed | Kind::Keyless | Kind::Replayed => {
            // Records that are over are swept: the store's size stays the same however long this runs.
            let layer = IdempotencyLayer::builder(&locks).anonymous().retention(Duration::from_secs(1));
            router.layer(layer.build()?)
        }
        Kind::Locked => router.layer(LockLayer::builder(&locks, lock_key).build()?),
        other => bail!("{other:?} isn't about requests"),
    })
}

async fn pay(order: String, store: Option<MultiplexedConnection>) -> Result<&'static str, StatusCode> {
    if let Some(mut store) = store {
        let asked: redis::RedisResult<()> =
            redis::cmd("INCR").arg("bench:paid").query_async(&mut store).await;
        asked.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    }
    if order.len() == ORDER.len() { Ok(RECEIPT) } else { Err(StatusCode::BAD_REQUEST) }
}

fn lock_key(parts: &Parts) -> Result<Option<LockKey>, LockError> {
    let order = parts.headers.get("x-order").and_then(|order| order.to_str().ok()).unwrap_or("none");
    KeyWriter::new().literal("order:").value(order).finish().map(Some)
}

/// The request number `number` of all.
fn request(kind: Kind, number: u64) -> anyhow::Result<Request<Body>> {
    let request = Request::post("/pay").header("host", "localhost").header("x-order", number);
    let request = match kind {
        Kind::Keyed => request.header("idempotency-key", format!("key-{number:016x}")),
        Kind::Replayed => request.header("idempotency-key", "key-one"),
        _ => request,
    };
    Ok(request.body(Body::from(ORDER))?)
}

/// One task that calls the service.
async fn calls(job: &Job, app: Router) -> anyhow::Result<Figures> {
    let kind = job.contender;
    one_call(&app, request(kind, 0)?).await?;
    step("ready").await?;
    let length = (job.seconds * 1e9) as u64;
    tokio::spawn(async move {
        let start = now();
        let mut count = 0;
        let end = loop {
            for _ in 0..64 {
                count += 1;
                one_call(&app, request(kind, count)?).await?;
            }
            let end = now();
            if end - start >= length {
                break end;
            }
        };
        Ok(Figures::from([
            ("rate".to_owned(), rate(count, end - start)),
            ("request_us".to_owned(), (end - start) as f64 / 1e3 / count as f64),
        ]))
    })
    .await?
}

async fn one_call(app: &Router, request: Request<Body>) -> anyhow::Result<()> {
    let response = app.clone().oneshot(request).await?;
    check(response.status(), response.into_body()).await
}

async fn check<B>(status: StatusCode, body: B) -> anyhow::Result<()>
where
    B: HttpBody,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    ensure!(status == StatusCode::OK, "the answer is {status}");
    ensure!(body.collect().await?.to_bytes() == RECEIPT, "another receipt");
    Ok(())
}

/// Some connections that are kept alive, a request at a time on each.
async fn over_http(job: &Job, app: Router) -> anyhow::Result<Figures> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    let (count, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for _ in 0..job.tasks {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let (kind, count, over) = (job.contender, Arc::clone(&count), Arc::clone(&over));
        clients.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let number = count.fetch_add(1, Ordering::Relaxed);
                sender.ready().await?;
                let response = sender.send_request(request(kind, number)?).await?;
                check(response.status(), response.into_body()).await?;
            }
            anyhow::Ok(())
        });
    }
    step("ready").await?;
    let (start, before) = (now(), count.load(Ordering::Relaxed));
    tokio::time::sleep(Duration::from_secs_f64(job.seconds)).await;
    let served = count.load(Ordering::Relaxed) - before;
    let figures = Figures::from([("rate".to_owned(), rate(served, now() - start))]);
    over.store(true, Ordering::Relaxed);
    while let Some(outcome) = clients.join_next().await {
        outcome??;
    }
    Ok(figures)
}
