//! Executes one request under an idempotency key: the process that tests stop and kill.
//!
//! Arguments: the store's URL, what comes after a crash (`reject` or `takeover`), the lease in ms, the key. It says `running <fence>` when
//! the handler runs, goes on when it gets a line, says `lost` when it learns that its claim is, and at the end
//! `answer <status> <replayed> <body>`.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use distlock::LockManager;
use distlock::records::CrashPolicy;
use distlock_tower::idempotency::RequestBody;
use distlock_tower::{Execution, IdempotencyLayer};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncBufReadExt, BufReader};
use tower::{Layer, ServiceExt, service_fn};

type Whole = Full<Bytes>;

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, policy, lease, key] = &args[..] else { anyhow::bail!("url, policy, lease and key") };
    let policy = match policy.as_str() {
        "reject" => CrashPolicy::Reject,
        "takeover" => CrashPolicy::Takeover,
        other => anyhow::bail!("which policy? {other}"),
    };
    let locks = LockManager::connect(url).await?;
    let layer = IdempotencyLayer::builder(&locks)
        .anonymous()
        .lease(Duration::from_millis(lease.parse().context("the lease")?))
        .after_crash(policy)
        .build()?;
    let service = layer.layer(service_fn(handle));
    let request = Request::post("/").header("idempotency-key", key).body(Whole::default())?;
    let response = service.oneshot(request).await.context("the service is infallible")?;
    let (head, body) = response.into_parts();
    let body = body.collect().await.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
    let replayed = head.headers.contains_key("idempotent-replayed");
    println!("answer {} {replayed} {}", head.status.as_u16(), String::from_utf8_lossy(&body));
    Ok(())
}

async fn handle(request: Request<RequestBody<Whole>>) -> Result<Response<Whole>, Infallible> {
    let execution = request.extensions().get::<Execution>().expect("the request has a key").clone();
    println!("running {}", execution.fence());
    tokio::spawn({
        let execution = execution.clone();
        async move {
            execution.lost().await;
            println!("lost");
        }
    });
    let mut line = String::new();
    // The end of the input lets it go too: its test has gone.
    let _ = BufReader::new(tokio::io::stdin()).read_line(&mut line).await;
    Ok(Response::new(Full::from(format!("by process {} under {}", std::process::id(), execution.fence()))))
}
