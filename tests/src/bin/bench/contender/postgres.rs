//! The least that a lock in Postgres can be, in two ways.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use distlock_tests::server::postgres_client;
use tokio_postgres::{Client, Statement};

use super::Contender;
use crate::job::Job;

const RETRY: Duration = Duration::from_millis(100);

/// A row with a deadline and a number that grows: one statement takes it, another gives it back.
pub(crate) struct RawRow {
    client: Client,
    acquire: Statement,
    release: Statement,
    ttl: f64,
}

impl Contender for RawRow {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        let client = postgres_client(bare(&job.url)).await?;
        client
            .batch_execute(
                "CREATE TABLE IF NOT EXISTS raw_lock (key text PRIMARY KEY, owner text, fence bigint, expires timestamptz)",
            )
            .await?;
        let acquire = "INSERT INTO raw_lock (key, owner, fence, expires) \
                       VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 second') \
                       ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, fence = raw_lock.fence + 1, expires = excluded.expires \
                       WHERE raw_lock.expires < clock_timestamp() RETURNING fence";
        let release = "UPDATE raw_lock SET owner = NULL, expires = '-infinity' WHERE key = $1 AND owner = $2";
        let (acquire, release) = (client.prepare(acquire).await?, client.prepare(release).await?);
        Ok(Self { client, acquire, release, ttl: job.ttl.as_secs_f64() })
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let owner = format!("{:032x}", fastrand::u128(..));
        while self.client.query_opt(&self.acquire, &[&key, &owner, &self.ttl]).await?.is_none() {
            tokio::time::sleep(RETRY).await;
        }
        let output = body();
        let rows = self.client.execute(&self.release, &[&key, &owner]).await?;
        ensure!(rows == 1, "the lock was another's");
        Ok(output)
    }
}

/// A lock of the session's: it knows no tasks, tokens or leases.
pub(crate) struct RawAdvisory {
    client: Client,
    acquire: Statement,
    release: Statement,
}

impl Contender for RawAdvisory {
    async fn connect(job: &Job) -> anyhow::Result<Self> {
        let client = postgres_client(bare(&job.url)).await?;
        let acquire = client.prepare("SELECT pg_try_advisory_lock(hashtextextended($1, 0))").await?;
        let release = client.prepare("SELECT pg_advisory_unlock(hashtextextended($1, 0))").await?;
        Ok(Self { client, acquire, release })
    }

    async fn section<T: Send>(&self, key: &str, body: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        while !said(&self.client, &self.acquire, key).await? {
            tokio::time::sleep(RETRY).await;
        }
        let output = body();
        ensure!(said(&self.client, &self.release, key).await?, "the lock was another's");
        Ok(output)
    }
}

/// What the server answers to a question about a key.
async fn said(client: &Client, statement: &Statement, key: &str) -> anyhow::Result<bool> {
    client.query_one(statement, &[&key]).await?.try_get(0).context("a truth value")
}

/// Without the parameters that are distlock's.
fn bare(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}
