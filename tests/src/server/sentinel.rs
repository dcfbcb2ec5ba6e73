//! A primary, its replicas, and Sentinels that watch them.

use std::{collections::HashMap, net::SocketAddr, time::Duration};

use anyhow::Context;

use super::{PortLease, RedisOptions, RedisServer};
use crate::wait;

/// What the group is called.
pub const GROUP: &str = "orders";
/// How often a Sentinel looks and tells, in milliseconds, and for how long it distrusts its clock after a hiccup of the machine.
#[rustfmt::skip]
const BRISK: &[&str] = &[
    "info-period", "500", "ping-period", "200", "ask-period", "200", "publish-period", "500",
    "min-link-reconnect-period", "1000", "tilt-period", "2000",
];
/// How long the group may take to get into the state that is waited for. A failover takes 1 to 3 s.
const LIMIT: Duration = Duration::from_secs(30);

/// Servers under the watch of Sentinels, which replace a primary that is silent for a second.
#[derive(Debug)]
pub struct SentinelGroup {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
}

impl SentinelGroup {
    /// One primary, two replicas, three Sentinels. As with the others, all are in step and know each other when it returns.
    ///
    /// # Panics
    /// When one of them doesn't start; see [`RedisServer::start`].
    pub fn start() -> Self {
        Self::start_with(2, 3, RedisOptions::new(), RedisOptions::new())
    }

    /// So many replicas and Sentinels, started with these options. Replicas know the primary's password if it has one.
    ///
    /// # Panics
    /// When one of them doesn't start; see [`RedisServer::start`].
    pub fn start_with(
        replicas: usize,
        sentinels: usize,
        server: RedisOptions,
        sentinel: RedisOptions,
    ) -> Self {
        Self::try_start(replicas, sentinels, server, sentinel).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn try_start(
        replicas: usize,
        sentinels: usize,
        server: RedisOptions,
        sentinel: RedisOptions,
    ) -> anyhow::Result<Self> {
        let secret = server.password.clone();
        // Where only one side speaks TLS a Sentinel doesn't reach its servers.
        let reachable = server.tls.is_some() == sentinel.tls.is_some();
        let server = server.in_a_group()?;
        let mut sentinel = sentinel.in_a_group()?;
        sentinel.authority = server.authority.clone().or(sentinel.authority);
        let server =
            secret.iter().fold(server, |server, secret| server.config(format!("masterauth {secret}")));
        let primary = RedisServer::start(server.clone())?;
        let follow = server.config(format!("replicaof 127.0.0.1 {}", primary.port()));
        let mut servers = vec![primary];
        for _ in 0..replicas {
            servers.push(RedisServer::start(follow.clone())?);
        }
        // Each is told of the others at the start; they would find each other after some seconds.
        let leases = (0..sentinels).map(|_| PortLease::any()).collect::<anyhow::Result<Vec<_>>>()?;
        let known: Vec<(u16, String)> =
            leases.iter().map(|lease| (lease.number(), format!("{:040x}", fastrand::u128(..)))).collect();
        drop(leases);
        let mut group = Self { servers, sentinels: Vec::new() };
        for index in 0..sentinels {
            let options = group.sentinel_options(sentinel.clone(), index, &known, secret.as_deref());
            let sentinel = RedisServer::start(options)?;
            set_pace(&sentinel, BRISK);
            group.sentinels.push(sentinel);
        }
        if reachable {
            group.wait_ready()?;
        }
        Ok(group)
    }

    fn sentinel_options(
        &self,
        options: RedisOptions,
        index: usize,
        known: &[(u16, String)],
        secret: Option<&str>,
    ) -> RedisOptions {
        let (port, id) = &known[index];
        let quorum = known.len() / 2 + 1;
        let mut lines = vec![
            format!("sentinel myid {id}"),
            format!("sentinel monitor {GROUP} 127.0.0.1 {} {quorum}", self.servers[0].port()),
            format!("sentinel down-after-milliseconds {GROUP} 1000"),
            format!("sentinel failover-timeout {GROUP} 3000"),
            format!("sentinel parallel-syncs {GROUP} 2"),
        ];
        lines.extend(secret.map(|secret| format!("sentinel auth-pass {GROUP} {secret}")));
        lines.extend(
            self.servers[1..]
                .iter()
                .map(|replica| format!("sentinel known-replica {GROUP} 127.0.0.1 {}", replica.port())),
        );
        let others = known.iter().filter(|(other, _)| other != port);
        lines.extend(
            others.map(|(port, id)| format!("sentinel known-sentinel {GROUP} 127.0.0.1 {port} {id}")),
        );
        lines.into_iter().fold(options.sentinel().port(*port), RedisOptions::config)
    }

    /// The servers; the first was the primary at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The URL of the group, with these parameters.
    pub fn url(&self, parameters: &str) -> String {
        let secret = self.servers[0].password().map(|secret| format!(":{secret}@")).unwrap_or_default();
        let places: Vec<String> =
            self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis+sentinel://{secret}{}/{GROUP}?{parameters}", places.join(","))
    }

    /// From now on the primary has to be silent for a minute before it is replaced: for those who want no failover.
    ///
    /// # Errors
    /// When a Sentinel doesn't answer.
    pub fn be_patient(&self) -> anyhow::Result<()> {
        let mut set = redis::cmd("SENTINEL");
        set.arg("SET").arg(GROUP).arg("down-after-milliseconds").arg(60_000);
        self.sentinels.iter().try_for_each(|sentinel| ask_one::<String>(sentinel, &set).map(drop))
    }

    /// From now on a primary that was replaced as planned, or comes back, goes on as one for 8 s, as it does by default.
    pub fn leave_old_primaries(&self) {
        self.sentinels.iter().for_each(|sentinel| set_pace(sentinel, &["publish-period", "2000"]));
    }

    /// What the Sentinel with this index takes for the primary.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn primary_by(&self, index: usize) -> anyhow::Result<SocketAddr> {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(GROUP);
        let (host, port): (String, u16) = ask.query_async(&mut self.sentinels[index].admin().await?).await?;
        format!("{host}:{port}").parse().context("an address of the harness")
    }

    /// Until all replicas are in step and every Sentinel could replace the primary.
    fn wait_ready(&self) -> anyhow::Result<()> {
        let replicas = self.servers.len() - 1;
        let mut info = redis::cmd("INFO");
        info.arg("replication");
        wait::until_blocking("the replicas follow", LIMIT, || {
            let info: String = ask_one(&self.servers[0], &info).ok()?;
            (online(&info) == replicas).then_some(())
        })?;
        // One that has just been loaded says so a second before it confirms anything.
        let (mut touch, mut confirm) = (redis::cmd("SET"), redis::cmd("WAIT"));
        touch.arg("ready").arg(1).arg("PX").arg(1);
        confirm.arg(replicas).arg(1000);
        wait::until_blocking("the replicas confirm writes", LIMIT, || {
            let confirmed: (String, usize) = ask(&self.servers[0], &[&touch, &confirm]).ok()?;
            (confirmed.1 >= replicas).then_some(())
        })?;
        let mut state = redis::cmd("SENTINEL");
        state.arg("MASTER").arg(GROUP);
        for sentinel in &self.sentinels {
            wait::until_blocking("a Sentinel knows all others", LIMIT, || {
                let state: HashMap<String, String> = ask_one(sentinel, &state).ok()?;
                let count = |name: &str| state.get(name)?.parse::<usize>().ok();
                let ready = count("num-slaves")? == replicas
                    && count("num-other-sentinels")? == self.sentinels.len() - 1
                    && state.get("flags")? == "master";
                ready.then_some(())
            })?;
        }
        Ok(())
    }

    /// How many replicas the first server has.
    async fn following(&self) -> anyhow::Result<usize> {
        let mut connection = self.servers[0].admin().await?;
        let info: String = redis::cmd("INFO").arg("replication").query_async(&mut connection).await?;
        Ok(online(&info))
    }

    /// Waits until another server than the first is the primary, for all Sentinels and for itself. Gives its index.
    ///
    /// # Panics
    /// When that isn't so within 30 s.
    pub async fn failed_over(&self) -> usize {
        let first = self.servers[0].address();
        wait::until("another primary", LIMIT, async || {
            let mut named = Vec::new();
            for index in 0..self.sentinels.len() {
                named.push(self.primary_by(index).await.ok()?);
            }
            let named = named.iter().all(|other| *other == named[0]).then_some(named[0])?;
            let index = self.servers.iter().position(|server| server.address() == named && named != first)?;
            (role(&self.servers[index]).await.ok()? == "master").then_some(index)
        })
        .await
        .unwrap()
    }

    /// Cuts the stream of writes from the first server to its replicas, which stay where they are. Clients notice nothing.
    ///
    /// # Panics
    /// When the servers don't answer.
    pub async fn cut_replication(&self) {
        let mut primary = self.servers[0].admin().await.unwrap();
        let mut refuse = redis::cmd("ACL");
        refuse.arg("SETUSER").arg("default").arg("-psync").arg("-sync");
        refuse.exec_async(&mut primary).await.unwrap();
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("replica").exec_async(&mut primary).await.unwrap();
        until("the replicas are cut off", async || self.following().await.unwrap() == 0).await;
    }

    /// Lets the replicas follow again.
    ///
    /// # Panics
    /// When they don't within 30 s.
    pub async fn heal_replication(&self) {
        let mut allow = redis::cmd("ACL");
        // Not `SYNC`, to which a replica falls back: one that follows that way never confirms anything.
        allow.arg("SETUSER").arg("default").arg("+psync");
        allow.exec_async(&mut self.servers[0].admin().await.unwrap()).await.unwrap();
        let replicas = self.servers.len() - 1;
        until("the replicas follow again", async || self.following().await.unwrap() == replicas).await;
    }

    /// Waits until every replica has this key.
    ///
    /// # Panics
    /// When one hasn't within 30 s.
    pub async fn replicated(&self, key: &str) {
        for replica in &self.servers[1..] {
            until("the replicas have the key", async || replica.has(key).await.unwrap()).await;
        }
    }
}

async fn role(server: &RedisServer) -> anyhow::Result<String> {
    let role: redis::Value = redis::cmd("ROLE").query_async(&mut server.admin().await?).await?;
    let redis::Value::Array(parts) = role else { anyhow::bail!("ROLE gave {role:?}") };
    Ok(redis::from_redis_value(parts.into_iter().next().context("ROLE gave nothing")?)?)
}

/// How many replicas a server names that are in step.
fn online(info: &str) -> usize {
    info.matches("state=online").count()
}

fn set_pace(sentinel: &RedisServer, periods: &[&str]) {
    let mut set = redis::cmd("SENTINEL");
    set.arg("DEBUG").arg(periods);
    // Before 7.0 it hasn't the command: with the periods that it has, all takes longer and is no less right.
    let _: Result<redis::Value, _> = ask_one(sentinel, &set);
}

/// The answer to one question.
pub(super) fn ask_one<T: redis::FromRedisValue>(
    server: &RedisServer,
    question: &redis::Cmd,
) -> anyhow::Result<T> {
    let (answer,) = ask(server, &[question])?;
    Ok(answer)
}

/// The answers to some questions on one connection.
pub(super) fn ask<T: redis::FromRedisValue>(
    server: &RedisServer,
    questions: &[&redis::Cmd],
) -> anyhow::Result<T> {
    let limit = Duration::from_secs(2);
    let mut connection = server.admin_client()?.get_connection_with_timeout(limit)?;
    connection.set_read_timeout(Some(limit))?;
    let mut pipeline = redis::Pipeline::new();
    for question in questions {
        pipeline.add_command((*question).clone());
    }
    Ok(pipeline.query(&mut connection)?)
}

async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    wait::until(what, LIMIT, async || so().await.then_some(())).await.unwrap();
}
