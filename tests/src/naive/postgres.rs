//! Naive locks over Postgres: a row of a table, or an advisory lock of a session.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::Mutex, time::sleep};
use tokio_postgres::Client;

use crate::{
    contend::{Contender, Held},
    server::postgres_client,
};

/// What is wrong with a naive lock over Postgres. None of them renews anything, or looks at what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostgresFlaw {
    /// `pg_try_advisory_lock` on a session of which nobody asks whether it is still there.
    Advisory,
    /// A row with an expiry by the client's clock, which is `ahead`; its holder deletes it by key, whosever it is.
    ClientClock {
        /// How far the client's clock is ahead of the others'.
        ahead: Duration,
    },
    /// Looks whether there is a row, and inserts one in the next statement.
    LooksFirst,
    /// A row without an expiry.
    NoExpiry,
}

/// A naive lock over Postgres.
#[derive(Clone)]
pub struct NaivePostgres {
    url: String,
    client: Arc<Mutex<Option<Arc<Client>>>>,
    flaw: PostgresFlaw,
}

/// What it gives.
pub struct NaiveRow {
    locks: NaivePostgres,
    key: String,
}

impl NaivePostgres {
    /// Makes its tables where they aren't there yet.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn connect(url: &str, flaw: PostgresFlaw) -> anyhow::Result<Self> {
        let locks = Self { url: url.to_owned(), client: Arc::default(), flaw };
        // Two that make them at once would get in each other's way.
        let tables = "select pg_advisory_xact_lock(4711); create schema if not exists naive; \
                      create table if not exists naive.lock (name text primary key, expires_at timestamptz not null); \
                      create table if not exists naive.line (name text not null)";
        locks.client().await?.batch_execute(tables).await?;
        Ok(locks)
    }

    /// The connection, or a new one where that has ended.
    async fn client(&self) -> anyhow::Result<Arc<Client>> {
        let mut client = self.client.lock().await;
        match &*client {
            Some(client) if !client.is_closed() => Ok(client.clone()),
            _ => Ok(client.insert(Arc::new(postgres_client(&self.url).await?)).clone()),
        }
    }

    async fn attempt(&self, key: &str, ttl: Duration) -> anyhow::Result<bool> {
        let client = self.client().await?;
        match self.flaw {
            PostgresFlaw::Advisory => {
                let lock = "select pg_try_advisory_lock(hashtextextended($1, 0))";
                Ok(client.query_one(lock, &[&key]).await?.get(0))
            }
            PostgresFlaw::ClientClock { ahead } => {
                #[allow(clippy::disallowed_methods, reason = "this is the mistake")]
                let now = SystemTime::now() + ahead;
                let take = "insert into naive.lock values ($1, $2) on conflict (name) \
                            do update set expires_at = excluded.expires_at where lock.expires_at <= $3";
                Ok(client.execute(take, &[&key, &(now + ttl), &now]).await? == 1)
            }
            PostgresFlaw::LooksFirst => {
                if client
                    .query_opt("select from naive.line where name = $1 limit 1", &[&key])
                    .await?
                    .is_some()
                {
                    return Ok(false);
                }
                client.execute("insert into naive.line values ($1)", &[&key]).await?;
                Ok(true)
            }
            PostgresFlaw::NoExpiry => {
                let take = "insert into naive.lock values ($1, 'infinity') on conflict (name) do nothing";
                Ok(client.execute(take, &[&key]).await? == 1)
            }
        }
    }
}

impl Contender for NaivePostgres {
    type Hold = NaiveRow;

    /// Asks every 5 ms until it is granted.
    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<NaiveRow> {
        while !self.attempt(key, ttl).await? {
            sleep(Duration::from_millis(5)).await;
        }
        Ok(NaiveRow { locks: self.clone(), key: key.to_owned() })
    }
}

impl Held for NaiveRow {
    fn token(&self) -> Option<u64> {
        None
    }

    fn is_valid(&self) -> bool {
        true
    }

    async fn release(self) -> anyhow::Result<()> {
        let delete = match self.locks.flaw {
            PostgresFlaw::Advisory => "select pg_advisory_unlock(hashtextextended($1, 0))",
            PostgresFlaw::LooksFirst => "delete from naive.line where name = $1",
            PostgresFlaw::ClientClock { .. } | PostgresFlaw::NoExpiry => {
                "delete from naive.lock where name = $1"
            }
        };
        self.locks.client().await?.execute(delete, &[&self.key]).await?;
        Ok(())
    }
}
