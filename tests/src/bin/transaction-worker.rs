//! Books one effect for each of some keys in Postgres, exactly once: the process that tests kill half-way.
//!
//! Arguments: the URL of a database with the tables `effect (key, worker)` and `naive (key)`, `transactional` or `naive`, how many
//! keys, and where to stop for ever: a key and one of `claimed`, `written`, `settled`, `committed` (or `-`). It says `<stage> <key>` when
//! it stops, `done <key> <executed or replayed>` for each key, and `end`.

use anyhow::{Context, bail};
use distlock::postgres::{Begun, TransactionalRecords};
use tokio_postgres::{Client, NoTls};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, mode, keys, stop_key, stop_stage] = &args[..] else { bail!("url, mode, keys, key, stage") };
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let stop = Stop { key: stop_key.clone(), stage: stop_stage.clone() };
    for number in 0..keys.parse().context("how many keys")? {
        let key = format!("key-{number}");
        let outcome = match mode.as_str() {
            "transactional" => transactional(&mut client, &key, &stop).await?,
            "naive" => naive(&client, &key, &stop).await?,
            other => bail!("which mode? {other}"),
        };
        println!("done {key} {outcome}");
    }
    println!("end");
    Ok(())
}

struct Stop {
    key: String,
    stage: String,
}

impl Stop {
    async fn at(&self, stage: &str, key: &str) {
        if self.key == key && self.stage == stage {
            println!("{stage} {key}");
            std::future::pending().await
        }
    }
}

async fn transactional(client: &mut Client, key: &str, stop: &Stop) -> anyhow::Result<&'static str> {
    let mut tx = client.transaction().await?;
    let claim = match TransactionalRecords::new().claim(key).begin(&mut tx).await? {
        Begun::Execute(claim) => claim,
        Begun::Completed(response) if response.bytes() == key => return Ok("replayed"),
        Begun::Completed(response) => bail!("another key's response: {response:?}"),
    };
    stop.at("claimed", key).await;
    tx.execute(WRITE, &[&key, &pid()]).await?;
    stop.at("written", key).await;
    claim.complete(&mut tx, key.to_owned()).await?;
    stop.at("settled", key).await;
    tx.commit().await?;
    stop.at("committed", key).await;
    Ok("executed")
}

/// The control: the record is kept beside the transaction instead of in it.
async fn naive(client: &Client, key: &str, stop: &Stop) -> anyhow::Result<&'static str> {
    if client.query_opt("select from naive where key = $1", &[&key]).await?.is_some() {
        return Ok("replayed");
    }
    stop.at("claimed", key).await;
    client.execute(WRITE, &[&key, &pid()]).await?;
    stop.at("written", key).await;
    client.execute("insert into naive values ($1)", &[&key]).await?;
    stop.at("settled", key).await;
    stop.at("committed", key).await;
    Ok("executed")
}

const WRITE: &str = "insert into effect (key, worker) values ($1, $2)";

fn pid() -> i64 {
    i64::from(std::process::id())
}
