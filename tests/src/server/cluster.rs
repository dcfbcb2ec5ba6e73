//! A Cluster: primaries that share the slots, and their replicas.

use std::time::Duration;

use anyhow::Context;
use redis::Value;

use super::{RedisOptions, RedisServer, sentinel::ask, sentinel::ask_one};
use crate::wait;

/// How many slots there are.
const SLOTS: usize = 16_384;
/// How long a Cluster may take to get into the state that is waited for. A failover takes 1 to 3 s.
const LIMIT: Duration = Duration::from_secs(30);

/// Servers of a Cluster, which replaces a primary that is silent for a second.
#[derive(Debug)]
pub struct ClusterGroup {
    servers: Vec<RedisServer>,
    primaries: usize,
}

impl ClusterGroup {
    /// Three primaries, one replica each. As with the others, all agree on their state and replicas are in step when it returns.
    ///
    /// # Panics
    /// When one of them doesn't start; see [`RedisServer::start`].
    pub fn start() -> Self {
        Self::start_with(3, 1, RedisOptions::new())
    }

    /// So many primaries with so many replicas each, started with these options. Servers know each other's password.
    ///
    /// # Panics
    /// When one of them doesn't start; see [`RedisServer::start`].
    pub fn start_with(primaries: usize, replicas: usize, options: RedisOptions) -> Self {
        Self::try_start(primaries, replicas, options).unwrap_or_else(|error| panic!("{error:#}"))
    }

    fn try_start(primaries: usize, replicas: usize, options: RedisOptions) -> anyhow::Result<Self> {
        let secret = options.password.clone();
        let options =
            secret.iter().fold(options, |options, secret| options.config(format!("masterauth {secret}")));
        let options =
            ["cluster-enabled yes", "cluster-node-timeout 1000", "cluster-replica-validity-factor 0"]
                .into_iter()
                .fold(options, RedisOptions::config);
        let options = if options.tls.is_some() { options.config("tls-cluster yes") } else { options };
        let options = options.in_a_group()?;
        let servers = (0..primaries * (1 + replicas)).map(|_| RedisServer::start(options.clone()));
        let servers: Vec<RedisServer> = servers.collect::<anyhow::Result<_>>()?;
        let group = Self { servers, primaries };
        let all = &group.servers;
        for (index, server) in all.iter().enumerate() {
            // Else they would have to find out whose word counts.
            let mut epoch = cluster("SET-CONFIG-EPOCH");
            ask_one::<String>(server, epoch.arg(index + 1)).context("give a server its epoch")?;
            if index < primaries {
                let mut take = cluster("ADDSLOTSRANGE");
                take.arg(SLOTS * index / primaries).arg(SLOTS * (index + 1) / primaries - 1);
                ask_one::<String>(server, &take).context("give a server its slots")?;
            }
            for other in &all[..index] {
                let mut meet = cluster("MEET");
                ask_one::<String>(server, meet.arg("127.0.0.1").arg(other.port()))
                    .context("introduce a server")?;
            }
        }
        for server in all {
            wait::until_blocking("the servers know each other", LIMIT, || {
                let nodes: String = ask_one(server, &cluster("NODES")).ok()?;
                let known = nodes.lines().filter(|line| !line.contains("handshake")).count();
                (known == all.len()).then_some(())
            })?;
        }
        for (index, replica) in all[primaries..].iter().enumerate() {
            let id: String = ask_one(&all[index % primaries], &cluster("MYID"))?;
            let mut follow = cluster("REPLICATE");
            ask_one::<String>(replica, follow.arg(&id)).context("make a server a replica")?;
        }
        for (index, server) in all[..primaries].iter().enumerate() {
            // One that has just been loaded says so a second before it confirms anything, and until then nobody names it.
            let key = group.name_at(index);
            let (mut touch, mut confirm) = (redis::cmd("SET"), redis::cmd("WAIT"));
            touch.arg(&key).arg(1).arg("PX").arg(1);
            confirm.arg(replicas).arg(1000);
            wait::until_blocking("the replicas confirm writes", LIMIT, || {
                let confirmed: (String, usize) = ask(server, &[&touch, &confirm]).ok()?;
                (confirmed.1 >= replicas).then_some(())
            })?;
        }
        for server in all {
            wait::until_blocking("the Cluster is well", LIMIT, || {
                let info: String = ask_one(server, &cluster("INFO")).ok()?;
                let slots: Value = ask_one(server, &cluster("SLOTS")).ok()?;
                let full = placed(&slots).iter().all(|(_, _, places)| places.len() == 1 + replicas);
                (full && info.contains("cluster_state:ok")).then_some(())
            })?;
        }
        Ok(group)
    }

    /// From now on a server has to be silent for a minute before another takes its place: for those who want no failover.
    ///
    /// # Errors
    /// When a server doesn't answer.
    pub fn be_patient(&self) -> anyhow::Result<()> {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("cluster-node-timeout").arg(60_000);
        self.servers.iter().try_for_each(|server| ask_one::<String>(server, &set).map(drop))
    }

    /// The servers: primaries first, as it was at the start.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The URL of the Cluster, with these parameters.
    pub fn url(&self, parameters: &str) -> String {
        let secret = self.servers[0].password().map(|secret| format!(":{secret}@")).unwrap_or_default();
        self.url_as(&secret, parameters)
    }

    /// The same with these credentials, `user:password@`.
    pub fn url_as(&self, credentials: &str, parameters: &str) -> String {
        let places: Vec<String> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("redis+cluster://{credentials}{}?{parameters}", places.join(","))
    }

    /// The index of the server that serves this key, as another server than `not` sees it.
    ///
    /// # Errors
    /// When it doesn't answer, or knows none.
    pub fn server_of(&self, key: &str, not: Option<usize>) -> anyhow::Result<usize> {
        let asked = if not == Some(0) { 1 } else { 0 };
        let slot = self.slot_of(asked, key)?;
        self.server_of_slot(asked, slot)
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// When the server with this index doesn't answer.
    pub fn slot_of(&self, asked: usize, key: &str) -> anyhow::Result<u16> {
        ask_one(&self.servers[asked], cluster("KEYSLOT").arg(key))
    }

    /// The index of the server that serves this slot, as the server with index `asked` sees it.
    ///
    /// # Errors
    /// When it doesn't answer, or knows none.
    pub fn server_of_slot(&self, asked: usize, slot: u16) -> anyhow::Result<usize> {
        let slots: Value = ask_one(&self.servers[asked], &cluster("SLOTS"))?;
        let ranges = placed(&slots);
        let range = ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&i64::from(slot)));
        let port = range.context("a slot that nobody serves")?.2[0];
        self.servers.iter().position(|server| server.port() == port).context("a server of another Cluster")
    }

    /// A name whose lock is served by the server with this index at the start, as are all locks whose names begin with it.
    ///
    /// # Panics
    /// When the first server doesn't answer.
    pub fn name_at(&self, server: usize) -> String {
        let range = SLOTS * server / self.primaries..SLOTS * (server + 1) / self.primaries;
        (0..)
            .map(|number| format!("{{order-{number}}}"))
            .find(|name| range.contains(&usize::from(self.slot_of(0, name).expect("a server that answers"))))
            .expect("endless")
    }

    /// Waits until another server serves what this one did at the start, for all that live and in good state. Gives its index.
    ///
    /// # Panics
    /// When that isn't so within 30 s.
    pub async fn failed_over(&self, server: usize) -> usize {
        let slot = u16::try_from(SLOTS * server / self.primaries).expect("a slot");
        let others: Vec<usize> = (0..self.servers.len()).filter(|other| *other != server).collect();
        wait::until("another primary", LIMIT, async || {
            let mut named = Vec::new();
            for asked in &others {
                let state: String = ask_one(&self.servers[*asked], &cluster("INFO")).ok()?;
                if !state.contains("cluster_state:ok") {
                    return None;
                }
                named.push(self.server_of_slot(*asked, slot).ok()?);
            }
            named.iter().all(|other| *other == named[0] && named[0] != server).then_some(named[0])
        })
        .await
        .unwrap()
    }

    /// Makes all servers tell clients that this one is to be found at another port: that of a proxy in front of it. Servers among themselves
    /// go on as before.
    ///
    /// # Errors
    /// When the server doesn't answer, or the others don't know within 30 s.
    pub async fn announce(&self, server: usize, port: u16) -> anyhow::Result<()> {
        let mut admin = self.servers[server].admin().await?;
        let own = self.servers[server].port();
        for (name, port) in [("cluster-announce-bus-port", own + 10_000), ("cluster-announce-port", port)] {
            redis::cmd("CONFIG").arg("SET").arg(name).arg(port).exec_async(&mut admin).await?;
        }
        for other in &self.servers {
            wait::until("the servers know the new port", LIMIT, async || {
                let slots: Value = ask_one(other, &cluster("SLOTS")).ok()?;
                let told = |port| placed(&slots).iter().any(|(_, _, ports)| ports.contains(&port));
                (told(port) && !told(own)).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    /// Moves a slot from one server to another as an operator would: key by key, while clients are at work.
    ///
    /// # Errors
    /// When a server doesn't answer or refuses.
    pub async fn migrate(&self, slot: u16, from: usize, to: usize) -> anyhow::Result<()> {
        self.begin_migration(slot, from, to).await?;
        self.finish_migration(slot, from, to).await
    }

    /// Says that the slot is on its way; the keys are where they were.
    ///
    /// # Errors
    /// When a server doesn't answer or refuses.
    pub async fn begin_migration(&self, slot: u16, from: usize, to: usize) -> anyhow::Result<()> {
        let (mut source, mut target) = (self.servers[from].admin().await?, self.servers[to].admin().await?);
        let source_id: String = cluster("MYID").query_async(&mut source).await?;
        let target_id: String = cluster("MYID").query_async(&mut target).await?;
        setslot(slot, "IMPORTING", &source_id).exec_async(&mut target).await?;
        setslot(slot, "MIGRATING", &target_id).exec_async(&mut source).await?;
        Ok(())
    }

    /// Moves some keys of a slot that is on its way; gives how many.
    ///
    /// # Errors
    /// When a server doesn't answer or refuses.
    pub async fn migrate_keys(
        &self,
        slot: u16,
        from: usize,
        to: usize,
        most: usize,
    ) -> anyhow::Result<usize> {
        let mut source = self.servers[from].admin().await?;
        let mut list = cluster("GETKEYSINSLOT");
        let keys: Vec<String> = list.arg(slot).arg(most).query_async(&mut source).await?;
        if keys.is_empty() {
            return Ok(0);
        }
        let mut migrate = redis::cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(self.servers[to].port()).arg("").arg(0).arg(5000);
        if let Some(secret) = self.servers[to].password() {
            migrate.arg("AUTH").arg(secret);
        }
        migrate.arg("KEYS").arg(&keys).exec_async(&mut source).await?;
        Ok(keys.len())
    }

    /// Moves what is left, and says that the slot is the other's.
    ///
    /// # Errors
    /// When a server doesn't answer or refuses.
    pub async fn finish_migration(&self, slot: u16, from: usize, to: usize) -> anyhow::Result<()> {
        let target_id: String = cluster("MYID").query_async(&mut self.servers[to].admin().await?).await?;
        loop {
            while self.migrate_keys(slot, from, to, 10).await? > 0 {}
            // The target first: else a client that is sent to it would be sent back.
            let set = setslot(slot, "NODE", &target_id);
            set.exec_async(&mut self.servers[to].admin().await?).await?;
            // Refused if a key has come meanwhile.
            if set.exec_async(&mut self.servers[from].admin().await?).await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Cuts the stream of writes from this primary to its replicas, which stay where they are. Clients notice nothing.
    ///
    /// # Panics
    /// When the servers don't answer.
    pub async fn cut_replication(&self, primary: usize) {
        let mut admin = self.servers[primary].admin().await.unwrap();
        let mut refuse = redis::cmd("ACL");
        refuse.arg("SETUSER").arg("default").arg("-psync").arg("-sync");
        refuse.exec_async(&mut admin).await.unwrap();
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("replica").exec_async(&mut admin).await.unwrap();
        wait::until("the replicas are cut off", LIMIT, async || {
            let info: String =
                ask_one(&self.servers[primary], redis::cmd("INFO").arg("replication")).unwrap();
            info.contains("connected_slaves:0").then_some(())
        })
        .await
        .unwrap();
    }

    /// Waits until every replica that follows this primary has all that it has written so far.
    ///
    /// # Panics
    /// When one hasn't within 30 s.
    pub async fn replicated(&self, primary: usize) {
        let replicas = self.servers.len() / self.primaries - 1;
        wait::until("the replicas are in step", LIMIT, async || {
            let info: String = ask_one(&self.servers[primary], redis::cmd("INFO").arg("replication")).ok()?;
            let field = |name: &str| info.lines().find_map(|line| line.trim().strip_prefix(name));
            let offset = field("master_repl_offset:")?;
            let behind = info.matches(&format!("offset={offset},")).count();
            (behind == replicas).then_some(())
        })
        .await
        .unwrap();
    }
}

fn cluster(subcommand: &str) -> redis::Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg(subcommand);
    command
}

fn setslot(slot: u16, state: &str, id: &str) -> redis::Cmd {
    let mut command = cluster("SETSLOT");
    command.arg(slot).arg(state).arg(id);
    command
}

/// First and last slot, and the ports of primary and replicas, of each range.
fn placed(slots: &Value) -> Vec<(i64, i64, Vec<u16>)> {
    let ranges = redis::from_redis_value::<Vec<Vec<Value>>>(slots.clone()).unwrap_or_default();
    let port = |server: &Value| {
        let Value::Array(parts) = server else { return None };
        redis::from_redis_value::<u16>(parts.get(1)?.clone()).ok()
    };
    let range = |parts: Vec<Value>| match parts.as_slice() {
        [Value::Int(first), Value::Int(last), servers @ ..] => {
            Some((*first, *last, servers.iter().filter_map(port).collect()))
        }
        _ => None,
    };
    ranges.into_iter().filter_map(range).collect()
}
