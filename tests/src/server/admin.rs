//! Looking into a running Redis. Every question goes over a connection of its own, as a user of its own, and straight to the
//! server, also when the test's clients go through a proxy.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use futures_util::StreamExt;
use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

use super::redis::{ADMIN, RedisServer};
use crate::wait;

/// A paused server must fail a question, not hang the test.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

impl RedisServer {
    /// A connection with all rights, past every proxy.
    ///
    /// # Errors
    /// When the server doesn't answer within 5 s.
    pub async fn admin(&self) -> anyhow::Result<MultiplexedConnection> {
        connect(&self.admin_client()?).await
    }

    /// Whether it follows another server. A server that changes its role drops its connections, this question's too.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn is_replica(&self) -> anyhow::Result<bool> {
        let role: Vec<redis::Value> = redis::cmd("ROLE").query_async(&mut self.admin().await?).await?;
        let name = role.into_iter().next().context("ROLE gave nothing")?;
        Ok(redis::from_redis_value::<String>(name)? == "slave")
    }

    /// Whether database 0 has this key.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn has(&self, key: &str) -> anyhow::Result<bool> {
        let mut exists = redis::cmd("EXISTS");
        Ok(exists.arg(key).query_async(&mut self.admin().await?).await?)
    }

    /// The names of all keys in all databases, sorted.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn keys(&self) -> anyhow::Result<Vec<String>> {
        Ok(self.keys_with_ttl().await?.into_iter().map(|(key, _)| key).collect())
    }

    /// The names of all keys that would stay for ever, sorted.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn keys_without_ttl(&self) -> anyhow::Result<Vec<String>> {
        let keys = self.keys_with_ttl().await?;
        Ok(keys.into_iter().filter(|(_, ttl)| ttl.is_none()).map(|(key, _)| key).collect())
    }

    /// All keys in all databases with what is left of their ttl, sorted by name. A name that isn't UTF-8 is shown lossily.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn keys_with_ttl(&self) -> anyhow::Result<Vec<(String, Option<Duration>)>> {
        let mut connection = self.admin().await?;
        let mut found = Vec::new();
        for database in self.used_databases().await? {
            redis::cmd("SELECT").arg(database).exec_async(&mut connection).await?;
            let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await?;
            for key in keys {
                let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut connection).await?;
                // -2: expired between the two questions.
                if ttl != -2 {
                    let ttl = u64::try_from(ttl).ok().map(Duration::from_millis);
                    found.push((String::from_utf8_lossy(&key).into_owned(), ttl));
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// How many connections the server has, those of this harness not counted.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn client_count(&self) -> anyhow::Result<usize> {
        Ok(self.clients().await?.len())
    }

    /// One line of `CLIENT LIST` for each connection but the harness's own.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn clients(&self) -> anyhow::Result<Vec<String>> {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut self.admin().await?).await?;
        let own = format!(" user={ADMIN} ");
        Ok(list.lines().filter(|line| !line.contains(&own)).map(str::to_owned).collect())
    }

    /// Calls per command (lower case, `parent|child` for subcommands) since the start or [`reset_stats`](Self::reset_stats). The
    /// harness's own questions count too: compare only commands that it doesn't send (`evalsha`, `set`, `get`, `publish` ...).
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn commandstats(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let info: String =
            redis::cmd("INFO").arg("commandstats").query_async(&mut self.admin().await?).await?;
        Ok(info.lines().filter_map(parse_commandstat).collect())
    }

    /// Sets the counts of [`commandstats`](Self::commandstats) to zero.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn reset_stats(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("CONFIG").arg("RESETSTAT").exec_async(&mut self.admin().await?).await?)
    }

    /// `FLUSHALL`.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn flush(&self) -> anyhow::Result<()> {
        Ok(redis::cmd("FLUSHALL").exec_async(&mut self.admin().await?).await?)
    }

    /// Records every command that the server runs from now on, those inside of scripts too.
    ///
    /// # Errors
    /// When the server doesn't answer.
    pub async fn monitor(&self) -> anyhow::Result<Monitor> {
        let monitor = self.admin_client()?.get_async_monitor().await.context("start MONITOR")?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let task = tokio::spawn(async move {
            let mut stream = monitor.into_on_message::<String>();
            while let Some(line) = stream.next().await {
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Monitor { lines, task })
    }

    async fn used_databases(&self) -> anyhow::Result<Vec<u32>> {
        let info: String = redis::cmd("INFO").arg("keyspace").query_async(&mut self.admin().await?).await?;
        Ok(info.lines().filter_map(|line| line.strip_prefix("db")?.split_once(':')?.0.parse().ok()).collect())
    }
}

pub(super) async fn connect(client: &redis::Client) -> anyhow::Result<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER_LIMIT))
        .set_response_timeout(Some(ANSWER_LIMIT));
    client.get_multiplexed_async_connection_with_config(&config).await.context("connect as admin")
}

/// A running `MONITOR`; ends when dropped.
#[derive(Debug)]
pub struct Monitor {
    lines: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Monitor {
    /// The lines so far, like `1700000000.1 [0 127.0.0.1:50000] "GET" "key"`; a script's calls say `lua` for the address.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until `pick` finds what it looks for in the lines so far.
    ///
    /// # Errors
    /// When the time is up.
    pub async fn wait_until<T>(
        &self,
        what: &str,
        limit: Duration,
        pick: impl Fn(&[String]) -> Option<T>,
    ) -> anyhow::Result<T> {
        wait::until(what, limit, async || pick(&self.lines())).await
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// `cmdstat_get:calls=3,usec=…` to `("get", 3)`.
fn parse_commandstat(line: &str) -> Option<(String, u64)> {
    let (name, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let calls = fields.split(',').find_map(|field| field.strip_prefix("calls="))?;
    Some((name.to_owned(), calls.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_command_counts() {
        assert_eq!(parse_commandstat("cmdstat_get:calls=3,usec=9,usec_per_call=3"), Some(("get".into(), 3)));
        assert_eq!(
            parse_commandstat("cmdstat_config|resetstat:calls=1,usec=2"),
            Some(("config|resetstat".into(), 1))
        );
        assert_eq!(parse_commandstat("# Commandstats"), None);
    }
}
