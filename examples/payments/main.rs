//! A payments service and its client, over a line that loses answers: each payment is charged once, whatever happens.
//!
//! ```sh
//! cargo run --example payments                 # plays its scenes and judges them
//! cargo run --example payments -- --serve      # stays up, with curl lines to try
//! cargo run --example payments -- --naive      # the counter-example: without the layer, which the judge must notice
//! ```
//! `DISTLOCK_URL=redis://127.0.0.1:6379` keeps the records in Redis. The exit status is 0 if every promise was kept.
//!
//! | file | |
//! |---|---|
//! | `service.rs` | what you would write on the server: layers in their order, the handler, its errors |
//! | `client.rs` | what you would write on the client: keys and retries, here over a line that breaks |
//! | `bank.rs` | where the money moves; it refuses a fence that is older than one it has seen, and it is the judge |
//! | `play.rs` | the scenes |

#![forbid(unsafe_code)]

mod bank;
mod client;
mod play;
mod service;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bank::Bank;
use distlock::LockManager;
use distlock::tower::Executions;
use play::Stage;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_env_filter("warn").with_writer(std::io::stderr).init();
    match run().await {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("payments: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The promises that were broken.
async fn run() -> anyhow::Result<Vec<String>> {
    let (mut serves, mut is_naive) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--serve" => serves = true,
            "--naive" => is_naive = true,
            other => bail!("unknown argument {other}; there are --serve and --naive"),
        }
    }
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await.context("DISTLOCK_URL")?;
    let bank = Arc::new(Bank::default());
    let idempotency = if is_naive { None } else { Some(service::idempotency(&locks)?) };
    let executions = idempotency.as_ref().map(|layer| layer.executions());
    let routes = service::routes(bank.clone(), idempotency);

    let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async { drop(stopped.await) });
    let server = tokio::spawn(server.into_future());
    println!("payments: http://{address}");

    let broken = if serves {
        serve(address).await?;
        bank.broken()
    } else {
        Stage::new(address, bank.clone()).play().await?
    };
    // No new requests, then no executions without a client, then no more renewals.
    drop(stop);
    server.await??;
    finish(executions).await;
    locks.shutdown(Duration::from_secs(5)).await;
    for promise in &broken {
        println!("BROKEN: {promise}");
    }
    println!("summary {}", bank.totals());
    Ok(broken)
}

async fn finish(executions: Option<Executions>) {
    if let Some(executions) = executions {
        executions.drain(Duration::from_secs(5)).await;
    }
}

async fn serve(address: std::net::SocketAddr) -> anyhow::Result<()> {
    let key = format!("{:016x}", fastrand::u64(..));
    let curl = |user: &str, amount: u32| {
        format!(
            "curl -i http://{address}/payments -H 'authorization: Bearer {user}' -H 'content-type: application/json' \
             -H 'idempotency-key: \"{key}\"' -d '{{\"amount\": {amount}}}'"
        )
    };
    println!("\n# a payment; again, it is a replay and nothing is charged");
    println!("{}", curl("ann", 5));
    println!("\n# another amount under the same key: 422");
    println!("{}", curl("ann", 500));
    println!("\n# the same key of another user is another key");
    println!("{}", curl("bob", 5));
    println!("\nCtrl-C ends it");
    tokio::signal::ctrl_c().await.context("listen for Ctrl-C")
}
