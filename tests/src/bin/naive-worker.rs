//! Contends for keys with a lock that is wrong on purpose: the control of tests with many processes.
//!
//! Arguments as of `contend::Plan`, and the flaw: `blind-release` or `endless-validity` over Redis, `by-path` over ZooKeeper. Without
//! `--url` it starts a Redis server of its own and says `server <pid>`.

use distlock_tests::{
    contend::{Plan, contend},
    naive::{Flaw, NaiveLocks, NaiveZooKeeper, ZooKeeperFlaw},
    server::{RedisOptions, RedisServer},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut plan = Plan::parse(std::env::args().skip(1))?;
    let flaw = match plan.rest.first().map(String::as_str) {
        Some("blind-release") => Flaw::BlindRelease,
        Some("endless-validity") => Flaw::EndlessValidity,
        Some("by-path") => {
            let url = plan.url.as_deref().unwrap_or_default().trim_start_matches("zookeeper://");
            let places = url.split_once('?').map_or(url, |(places, _)| places);
            let locks = NaiveZooKeeper::connect(places, plan.ttl, ZooKeeperFlaw::ByPath).await?;
            contend(locks, &plan).await;
            return Ok(());
        }
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
