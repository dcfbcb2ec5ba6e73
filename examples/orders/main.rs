//! A service that takes payments, on two replicas, played against itself with real HTTP clients: duplicates, dropped
//! connections, another amount under a used key, replicas that race for one order.
//!
//! The last line sums up; the exit status is 1 if any key ran twice or two payments were in one order at once. The service
//! measures that itself, see `ledger.rs`; `--naive` takes lock and layer away, and the verdict must change.
//!
//! | file | |
//! |---|---|
//! | `service.rs` | what you would write: routes, handler, `#[distributed_lock]` |
//! | `replica.rs` | a server with the idempotency layer, from its start to its orderly end |
//! | `ledger.rs` | the independent judge |
//! | `play.rs`, `client.rs`, `account.rs` | the scenes, who plays them, what came of it |

#![forbid(unsafe_code)]

mod account;
mod client;
mod ledger;
mod options;
mod play;
mod replica;
mod service;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use account::{Account, number_of};
use anyhow::Context;
use client::Client;
use ledger::Ledger;
use options::Options;
use play::Stage;
use replica::Replica;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("orders: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all promises were kept.
async fn run() -> anyhow::Result<bool> {
    let Some(options) = Options::read()? else {
        println!("{}", options::USAGE);
        return Ok(true);
    };
    let ledger = Arc::new(Ledger::beside(&options.url)?);
    let a = Replica::start("a", &options, &ledger, Duration::from_secs(10)).await?;
    let b = Replica::start("b", &options, &ledger, Duration::ZERO).await?;
    println!(
        "orders: replica a on http://{}, replica b on http://{}, locks in {}",
        a.address,
        b.address,
        options.store()
    );
    let broken = if options.serve {
        serve(&a, &b).await?;
        stop(a, b).await?;
        let seen = ledger.seen();
        println!(
            "executed: {}, seen: {}",
            number_of(seen.executions, "payment"),
            number_of(seen.overlaps.len(), "overlap")
        );
        seen.broken()
    } else {
        let account = play(&options, &ledger, &a, &b).await?;
        stop(a, b).await?;
        let broken = account.verdict();
        for promise in &broken {
            println!("BROKEN: {promise}");
        }
        println!("summary {}", account.totals());
        broken
    };
    Ok(broken.is_empty())
}

async fn play(
    options: &Options,
    ledger: &Arc<Ledger>,
    a: &Replica,
    b: &Replica,
) -> anyhow::Result<Arc<Account>> {
    println!();
    let account = Arc::new(Account::new(ledger.clone()));
    let stage = Stage {
        a: a.address,
        b: b.address,
        client: Client::new(&account),
        account: account.clone(),
        ledger: ledger.clone(),
        run: format!("{:08x}", fastrand::u32(..)),
        period: options.period.clone(),
    };
    stage.play().await?;
    Ok(account)
}

async fn stop(a: Replica, b: Replica) -> anyhow::Result<()> {
    tokio::try_join!(a.stop(), b.stop())?;
    Ok(())
}

/// Stays up until it is told to end.
async fn serve(a: &Replica, b: &Replica) -> anyhow::Result<()> {
    let key = format!("try-{:08x}", fastrand::u32(..));
    let curl = |replica: &Replica, key: &str, amount: u32| {
        format!(
            "curl -i http://{}/orders/42/pay -H 'content-type: application/json' -H 'idempotency-key: {key}' \
             -d '{{\"amount\": {amount}}}'",
            replica.address
        )
    };
    println!("\n# a payment; again, it is a replay with `idempotent-replayed: true` and the same payment");
    println!("{}", curl(a, &key, 5));
    println!("\n# the same key on the other replica: a replay too");
    println!("{}", curl(b, &key, 5));
    println!("\n# another amount under the same key is refused with 422");
    println!("{}", curl(a, &key, 500));
    println!(
        "\n# the lock: two payments of one order at once, one on each replica, each with a key of its own; both are"
    );
    println!(
        "# executed, one after the other, the later one with the larger fencing token (new keys for another time)"
    );
    println!("{} & {}; wait", curl(a, &format!("{key}-a"), 5), curl(b, &format!("{key}-b"), 5));
    println!("\nCtrl-C ends it");
    tokio::signal::ctrl_c().await.context("listen for Ctrl-C")?;
    println!("finishing what is under way");
    Ok(())
}
