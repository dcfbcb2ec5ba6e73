//! A real etcd cluster of one test: one member, or several.

use std::{
    fs::OpenOptions,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, bail};
use etcd_client::{Certificate, Client, ConnectOptions, Identity, PermissionType, TlsOptions};
use tempfile::TempDir;

use super::{
    child::{self, Process},
    network::Host,
    port::PortLease,
    tls::TlsFiles,
};
use crate::wait;

/// How long a start may take on a machine that is busy with other tests.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The password of `root` where there are users.
const ROOT: &str = "harness-root";

/// What a cluster is started with.
#[derive(Clone, Copy, Debug)]
pub struct EtcdSetup {
    members: usize,
    tls: bool,
    auth: bool,
    heartbeat: u64,
    quota: u64,
}

impl Default for EtcdSetup {
    fn default() -> Self {
        Self::new(1)
    }
}

impl EtcdSetup {
    /// So many members, that elect quickly: leases may be as short as 1 s then.
    pub fn new(members: usize) -> Self {
        // Several members on a busy machine need some patience with each other.
        Self { members, tls: false, auth: false, heartbeat: if members > 1 { 50 } else { 10 }, quota: 0 }
    }

    /// TLS with client certificates for those who ask.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// With authentication: `root`, and those made by [`EtcdCluster::add_user`].
    #[must_use]
    pub fn auth(mut self) -> Self {
        self.auth = true;
        self
    }

    /// How much data it takes, in bytes.
    #[must_use]
    pub fn quota(mut self, bytes: u64) -> Self {
        self.quota = bytes;
        self
    }
}

/// One member.
#[derive(Debug)]
struct Member {
    /// First, so that it has ended before what it uses is given back.
    process: Process,
    client: PortLease,
    peer: PortLease,
    host: Option<Host>,
}

impl Member {
    fn ip(&self) -> Ipv4Addr {
        self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address)
    }
}

/// A real etcd on free loopback ports. Dropping it kills the processes and removes their data.
#[derive(Debug)]
pub struct EtcdCluster {
    setup: EtcdSetup,
    members: Vec<Member>,
    tls: Option<TlsFiles>,
    folder: TempDir,
}

impl EtcdCluster {
    /// Starts it and waits until each member has answered with a leader.
    ///
    /// # Errors
    /// When `etcd` isn't installed, or when it isn't up within 30 s.
    pub async fn start(setup: EtcdSetup) -> anyhow::Result<Self> {
        Self::start_members(setup, &vec![None; setup.members]).await
    }

    /// The same with one member on each of these hosts. Runs, as all that asks a member, [on one of them](Host::run).
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on(hosts: &[Host]) -> anyhow::Result<Self> {
        let places: Vec<_> = hosts.iter().cloned().map(Some).collect();
        // As etcd does unless told: who leads changes by what the network does, not by the load of the machine.
        let setup = EtcdSetup { heartbeat: 100, ..EtcdSetup::new(hosts.len()) };
        Self::start_members(setup, &places).await
    }

    async fn start_members(setup: EtcdSetup, places: &[Option<Host>]) -> anyhow::Result<Self> {
        // It syncs each write: in memory that costs nothing.
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("distlock-etcd-").tempdir_in(place)?;
        let tls = setup.tls.then(|| TlsFiles::create(folder.path())).transpose()?;
        let member = |host: &Option<Host>| {
            let (client, peer) = (PortLease::any()?, PortLease::any()?);
            anyhow::Ok(Member { process: Process::default(), client, peer, host: host.clone() })
        };
        let members = places.iter().map(member).collect::<Result<_, _>>()?;
        let cluster = Self { setup, members, tls, folder };
        for index in 0..cluster.members.len() {
            cluster.launch(index)?;
        }
        cluster.wait_ready().await?;
        if setup.auth {
            let mut client = cluster.connect(None, None).await?;
            client.user_add("root", ROOT, None).await?;
            client.user_grant_role("root", "root").await?;
            client.auth_enable().await?;
        }
        Ok(cluster)
    }

    /// All members, without a user.
    pub fn url(&self) -> String {
        self.url_of(0..self.members.len())
    }

    /// These members, without a user.
    pub fn url_of(&self, members: impl IntoIterator<Item = usize>) -> String {
        let places: Vec<String> = members.into_iter().map(|index| self.address(index).to_string()).collect();
        let scheme = if self.tls.is_some() { "etcd+https" } else { "etcd" };
        format!("{scheme}://{}", places.join(","))
    }

    /// All members, as this user.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        self.url().replacen("://", &format!("://{user}:{password}@"), 1)
    }

    /// Where clients reach a member.
    pub fn address(&self, index: usize) -> std::net::SocketAddr {
        let member = &self.members[index];
        (member.ip(), member.client.number()).into()
    }

    /// PEM files for clients; `None` on plain TCP.
    pub fn tls(&self) -> Option<&TlsFiles> {
        self.tls.as_ref()
    }

    /// A client of the library itself, as root where there are users.
    ///
    /// # Errors
    /// When no member can be reached.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let user = self.setup.auth.then_some(("root", ROOT));
        self.connect(None, user).await
    }

    /// A client of one member.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub async fn client_of(&self, index: usize) -> anyhow::Result<Client> {
        let user = self.setup.auth.then_some(("root", ROOT));
        self.connect(Some(index), user).await
    }

    /// A user who may do everything with names that start so, and nothing else.
    ///
    /// # Errors
    /// When the cluster refuses.
    pub async fn add_user(&self, name: &str, password: &str, prefix: &str) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        client.role_add(name).await?;
        let permission = etcd_client::Permission::new(PermissionType::Readwrite, prefix).with_prefix();
        client.role_grant_permission(name, permission).await?;
        client.user_add(name, password, None).await?;
        client.user_grant_role(name, name).await?;
        Ok(())
    }

    /// Which member leads.
    ///
    /// # Errors
    /// When no leader is known within 20 s.
    pub async fn leader(&self) -> anyhow::Result<usize> {
        wait::until("a leader", Duration::from_secs(20), async || {
            for index in (0..self.members.len()).filter(|index| self.is_running(*index)) {
                let asked = async {
                    let mut client = self.client_of(index).await.ok()?;
                    let status = client.status().await.ok()?;
                    let own = status.header()?.member_id();
                    (status.leader() == own && own != 0).then_some(index)
                };
                if let Ok(Some(leader)) = tokio::time::timeout(Duration::from_secs(1), asked).await {
                    return Some(leader);
                }
            }
            None
        })
        .await
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// When the member has been killed.
    pub fn pause(&self, index: usize) -> anyhow::Result<()> {
        self.members[index].process.pause()
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When the member has been killed.
    pub fn resume(&self, index: usize) -> anyhow::Result<()> {
        self.members[index].process.resume()
    }

    /// SIGKILL, and waits until the process is gone. No error if it is gone already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self, index: usize) -> anyhow::Result<()> {
        self.members[index].process.kill()
    }

    /// Starts a member again on the same ports and data, after a SIGKILL if it still runs, and waits until all that run answer.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn restart(&self, index: usize) -> anyhow::Result<()> {
        self.kill(index)?;
        self.launch(index)?;
        self.wait_ready().await
    }

    fn is_running(&self, index: usize) -> bool {
        self.members[index].process.is_running()
    }

    async fn connect(&self, only: Option<usize>, user: Option<(&str, &str)>) -> anyhow::Result<Client> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let running = (0..self.members.len()).filter(|index| self.is_running(*index));
        let chosen = running.filter(|index| only.is_none_or(|only| only == *index));
        let places: Vec<String> = chosen.map(|index| format!("{scheme}://{}", self.address(index))).collect();
        let mut options = ConnectOptions::new();
        if let Some((user, password)) = user {
            options = options.with_user(user, password);
        }
        if let Some(files) = &self.tls {
            let identity =
                Identity::from_pem(std::fs::read(&files.client_cert)?, std::fs::read(&files.client_key)?);
            let authority = Certificate::from_pem(std::fs::read(&files.ca)?);
            options = options.with_tls(TlsOptions::new().ca_certificate(authority).identity(identity));
        }
        Client::connect(places, Some(options)).await.context("connect to etcd")
    }

    fn launch(&self, index: usize) -> anyhow::Result<()> {
        let program = child::find_program("etcd", "etcd-server")?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let member = &self.members[index];
        let at = |member: &Member| format!("http://{}:{}", member.ip(), member.peer.number());
        let client = format!("{scheme}://{}", self.address(index));
        let all: Vec<String> = self
            .members
            .iter()
            .enumerate()
            .map(|(number, member)| format!("m{number}={}", at(member)))
            .collect();
        let log = OpenOptions::new().create(true).append(true).open(self.log_path(index))?;
        let mut command = match &member.host {
            Some(host) => host.command(program)?,
            None => child::mortal_command(program),
        };
        command
            .args(["--name", &format!("m{index}")])
            .arg("--data-dir")
            .arg(self.folder.path().join(format!("m{index}")))
            .args(["--heartbeat-interval", &self.setup.heartbeat.to_string()])
            .args(["--election-timeout", &(self.setup.heartbeat * 10).to_string()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &at(member), "--initial-advertise-peer-urls", &at(member)])
            .args(["--initial-cluster", &all.join(",")])
            .args(["--initial-cluster-token", &format!("{}", self.members[0].client.number())])
            .args(["--logger", "zap", "--log-level", "error"]);
        if self.setup.quota > 0 {
            command.args(["--quota-backend-bytes", &self.setup.quota.to_string()]);
        }
        if let Some(files) = &self.tls {
            command.arg("--cert-file").arg(&files.server_cert).arg("--key-file").arg(&files.server_key);
            command.arg("--trusted-ca-file").arg(&files.ca).arg("--client-cert-auth");
        }
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        member.process.start(command).context("start etcd")
    }

    /// Until each member that runs has answered a read that needs a majority.
    async fn wait_ready(&self) -> anyhow::Result<()> {
        for index in (0..self.members.len()).filter(|index| self.is_running(*index)) {
            let answer = wait::until("an answer from etcd", START_LIMIT, async || {
                if let Some(status) = self.members[index].process.ended() {
                    return Some(Err(status));
                }
                let asked = async {
                    // Whether there are users already or not yet.
                    let mut client = self.connect(Some(index), None).await?;
                    match client.get("ready", None).await {
                        Err(etcd_client::Error::GRpcStatus(status))
                            if status.message().contains("user name") =>
                        {
                            anyhow::Ok(())
                        }
                        outcome => Ok(outcome.map(drop)?),
                    }
                };
                tokio::time::timeout(Duration::from_secs(1), asked).await.ok()?.ok().map(Ok)
            });
            match answer.await {
                Ok(Ok(())) => {}
                Ok(Err(status)) => bail!("etcd ended with {status}:\n{}", self.log_tail(index)),
                Err(late) => return Err(late.context(self.log_tail(index))),
            }
        }
        Ok(())
    }

    fn log_path(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("m{index}.log"))
    }

    fn log_tail(&self, index: usize) -> String {
        let log = std::fs::read_to_string(self.log_path(index)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
