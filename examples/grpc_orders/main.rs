//! A gRPC service behind the idempotency layer and clients that give up, hedge and hang up, in one program that judges itself.
//!
//! ```sh
//! cargo run --example grpc_orders
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example grpc_orders
//! cargo run --example grpc_orders -- --naive     # without the layer, which the judge must notice
//! ```
//! The exit status is 0 if every promise was kept.
//!
//! | file | |
//! |---|---|
//! | `service.rs` | what you would write on the server: the layer, the handlers, their errors |
//! | `client.rs` | what you would write on the client: keys and retries around tonic's channel |
//! | `messages.rs` | messages, and what tonic makes of the service |
//! | `play.rs` | the scenes |

#![forbid(unsafe_code)]

mod client;
mod messages;
mod play;
mod service;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use distlock::LockManager;
use messages::orders_server::OrdersServer;
use play::Stage;
use service::Shop;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    match run().await {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("grpc_orders: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The promises that were broken.
async fn run() -> anyhow::Result<Vec<String>> {
    let is_naive = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("--naive") => true,
        Some(other) => bail!("unknown argument {other}; there is --naive"),
    };
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await.context("DISTLOCK_URL")?;
    let shop = Shop::default();
    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
    let address = listener.local_addr()?;
    println!("grpc_orders: {address}");

    let (stop, stopped) = oneshot::channel::<()>();
    let (incoming, stopped) = (TcpListenerStream::new(listener), async { drop(stopped.await) });
    let orders = OrdersServer::new(shop.clone());
    let idempotency = service::idempotency(&locks)?;
    let executions = idempotency.executions();
    let server = if is_naive {
        tokio::spawn(Server::builder().add_service(orders).serve_with_incoming_shutdown(incoming, stopped))
    } else {
        let protected = Server::builder().layer(idempotency).add_service(orders);
        tokio::spawn(protected.serve_with_incoming_shutdown(incoming, stopped))
    };

    let broken = Stage::new(address, shop).play().await?;
    // No new calls, then no executions without a client, then no more renewals.
    drop(stop);
    server.await??;
    executions.drain(Duration::from_secs(5)).await;
    locks.shutdown(Duration::from_secs(5)).await;
    println!("summary {}", if broken.is_empty() { "kept" } else { "broken" });
    Ok(broken)
}
