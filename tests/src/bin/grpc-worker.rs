//! Serves gRPC calls under idempotency keys: the process that tests stop and kill.
//!
//! Arguments: the store's URL, what comes after a crash (`reject` or `takeover`), the lease in ms. It says `listening <address>`, then
//! `running <fence>` when a handler runs, which goes on when it gets a line, and `lost` when it learns that its claim is.

use std::time::Duration;

use anyhow::Context;
use distlock::LockManager;
use distlock::records::CrashPolicy;
use distlock_tests::shop::{Order, Orders, OrdersServer, Receipt};
use distlock_tower::{Execution, IdempotencyLayer};
use futures_util::stream::{BoxStream, StreamExt, iter, once};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, policy, lease] = &args[..] else { anyhow::bail!("url, policy and lease") };
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
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?);
    let server = Server::builder().layer(layer).add_service(OrdersServer::new(Shop));
    server.serve_with_incoming(TcpListenerStream::new(listener)).await.context("the server")
}

struct Shop;

/// Says that it runs, and waits to be told to go on.
async fn run<T>(request: &Request<T>) -> Receipt {
    let execution = Execution::of(request.extensions()).expect("the call has a key").clone();
    println!("running {}", execution.fence());
    let receipt = Receipt { text: format!("by process {} under {}", std::process::id(), execution.fence()) };
    tokio::spawn(async move {
        execution.lost().await;
        println!("lost");
    });
    receipt
}

async fn told_to_go_on() {
    let mut line = String::new();
    // The end of the input lets it go too: its test has gone.
    let _ = BufReader::new(tokio::io::stdin()).read_line(&mut line).await;
}

#[tonic::async_trait]
impl Orders for Shop {
    async fn place(&self, request: Request<Order>) -> Result<Response<Receipt>, Status> {
        let receipt = run(&request).await;
        told_to_go_on().await;
        Ok(Response::new(receipt))
    }

    type WatchStream = BoxStream<'static, Result<Receipt, Status>>;

    /// The first receipt at once, the second when told.
    async fn watch(&self, request: Request<Order>) -> Result<Response<Self::WatchStream>, Status> {
        let receipt = run(&request).await;
        let second = receipt.clone();
        let second = once(async move {
            told_to_go_on().await;
            Ok(second)
        });
        Ok(Response::new(iter([Ok(receipt)]).chain(second).boxed()))
    }

    async fn upload(&self, _: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
        Err(Status::unimplemented("streams have no key"))
    }

    type TalkStream = BoxStream<'static, Result<Receipt, Status>>;

    async fn talk(&self, _: Request<Streaming<Order>>) -> Result<Response<Self::TalkStream>, Status> {
        Err(Status::unimplemented("streams have no key"))
    }
}
