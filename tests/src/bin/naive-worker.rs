//! Contends for keys with a lock that is wrong on purpose: the control of tests with many processes.
//!
//! Arguments as of `contend::Plan`, and `blind-release` or `endless-validity`. Without `--url` it starts a server of its own and says
//! `server <pid>`.

use distlock_tests::{
    contend::{Plan, contend},
    naive::{Flaw, NaiveLocks},
    server::{RedisOptions, RedisServer},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut plan = Plan::parse(std::env::args().skip(1))?;
    let flaw = match plan.rest.first().map(String::as_str) {
        Some("blind-release") => Flaw::BlindRelease,
        Some("endless-validity") => Flaw::EndlessValidity,
        other => anyhow::bail!("which flaw? {other:?}"),
    };
    let mut own = None;
    let url = match plan.url.take() {
        Some(url) => url,
        None => {
            let server = own.insert(RedisServer::start(RedisOptions::new())?);
            println!("server {}", server.pid()?);
            server.url()
        }
    };
    contend(NaiveLocks::connect(&url, flaw).await?, &plan).await;
    Ok(())
}
