//! Real ZooKeeper servers: one, or three that vote.

use std::{
    env, fs,
    fs::OpenOptions,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::{
    child::{self, Process},
    link::Link,
    network::Host,
    port::PortLease,
    tls::TlsFiles,
    zookeeper_setup::{Doors, ZooKeeperSetup},
};
use crate::wait;

/// How long a start may take: a virtual machine for Java on a busy machine, and an election.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Where Debian puts the programs.
const JARS: &str = "/usr/share/java";
/// The last two are missing in what the first one names, and TLS needs them.
const DEBIAN: [&str; 4] = ["zookeeper", "slf4j-nop", "netty-codec", "netty-resolver"];
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// In ticks: how long they wait for each other at the start, and for a sign of life.
const PATIENCE: &str = "initLimit=50\nsyncLimit=20\n";

/// The length of a tick of all servers here: sessions may be as short as two of them.
pub const TICK: Duration = Duration::from_millis(100);

/// A real ZooKeeper server on a free loopback port. Dropping it kills the process and removes its folder.
#[derive(Debug)]
pub struct ZooKeeperServer {
    /// First, so that it has ended before what it uses is given back.
    process: Process,
    port: PortLease,
    host: Option<Host>,
    peers: String,
    doors: Doors,
    id: usize,
    folder: TempDir,
}

impl ZooKeeperServer {
    /// Starts one server and waits until it answers.
    ///
    /// # Errors
    /// When ZooKeeper or Java isn't installed (the message says how to get them), or when it isn't up within a minute (the
    /// message has the end of its log).
    pub fn start() -> anyhow::Result<Self> {
        Self::start_with(&ZooKeeperSetup::default())
    }

    /// The same for one that asks something of its clients.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(setup: &ZooKeeperSetup) -> anyhow::Result<Self> {
        let mut server = Self::prepare(1, String::new(), PortLease::any()?, None)?;
        server.doors = setup.write(server.folder.path())?;
        server.restart()?;
        Ok(server)
    }

    fn prepare(id: usize, peers: String, port: PortLease, host: Option<Host>) -> anyhow::Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("distlock-zookeeper-").tempdir().context("make a folder")?;
        Ok(Self { port, host, peers, doors: Doors::default(), id, process: Process::default(), folder })
    }

    /// `zookeeper://127.0.0.1:…`
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.address())
    }

    /// Where it serves TLS, and the files for that, if it does.
    pub fn tls(&self) -> Option<(SocketAddr, &TlsFiles)> {
        let (port, files) = self.doors.tls.as_ref()?;
        Some(((Ipv4Addr::LOCALHOST, port.number()).into(), files))
    }

    /// Host and port, as a proxy in front of the server wants it.
    pub fn address(&self) -> SocketAddr {
        (self.host.as_ref().map_or(Ipv4Addr::LOCALHOST, Host::address), self.port.number()).into()
    }

    /// The process id.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn pid(&self) -> anyhow::Result<u32> {
        self.process.pid()
    }

    /// SIGSTOP.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn pause(&self) -> anyhow::Result<()> {
        self.process.pause()
    }

    /// SIGCONT.
    ///
    /// # Errors
    /// When the server has been killed.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.process.resume()
    }

    /// SIGKILL, and waits until the process is gone. No error if it is gone already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill(&self) -> anyhow::Result<()> {
        self.process.kill()
    }

    /// Starts again on the same port and data, after a SIGKILL if it still runs, and waits until it serves.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn restart(&self) -> anyhow::Result<()> {
        self.launch()?;
        self.wait_ready()
    }

    /// The answer to a four-letter word, such as `mntr`.
    ///
    /// # Errors
    /// When there is none within two seconds.
    pub fn ask(&self, word: &str) -> anyhow::Result<String> {
        ask(self.address(), word)
    }

    /// One number of what `mntr` tells.
    ///
    /// # Errors
    /// When the server doesn't tell it.
    pub fn number(&self, name: &str) -> anyhow::Result<u64> {
        let text = self.ask("mntr")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.with_context(|| format!("no {name} in: {text}"))
    }

    fn launch(&self) -> anyhow::Result<()> {
        self.kill()?;
        let folder = self.folder.path();
        let config = folder.join("zoo.cfg");
        fs::create_dir_all(folder.join("data")).context("make the data folder")?;
        fs::write(folder.join("data/myid"), self.id.to_string()).context("write myid")?;
        fs::write(&config, settings(self.address(), &folder.join("data")) + &self.peers + &self.doors.config)
            .context("write zoo.cfg")?;
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let mut command = match &self.host {
            Some(host) => host.command(java()?)?,
            None => child::mortal_command(java()?),
        };
        command.args(&self.doors.java);
        arguments(&mut command, &config)?;
        command.current_dir(folder);
        command.stdin(std::process::Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.process.start(command).context("start zookeeper")?;
        Ok(())
    }

    fn wait_ready(&self) -> anyhow::Result<()> {
        let what = format!("an answer of ZooKeeper on port {}", self.port.number());
        let answer = wait::until_blocking(&what, START_LIMIT, || {
            if let Some(status) = self.process.ended() {
                return Some(Err(status));
            }
            // Without a majority it says that it doesn't serve.
            serves(self.address()).then_some(Ok(()))
        });
        let log = || fs::read_to_string(self.log()).unwrap_or_default();
        match answer {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("zookeeper ended with {status}:\n{}", log()),
            Err(late) => Err(late.context(log())),
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

/// Three servers that vote.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    /// The servers, in no order.
    pub servers: [ZooKeeperServer; 3],
    /// Between which two of them, and the way there.
    links: Vec<(usize, usize, Link)>,
    /// Their ports among themselves.
    _ports: Vec<PortLease>,
}

impl ZooKeeperEnsemble {
    /// Starts three and waits until all of them serve.
    ///
    /// # Errors
    /// As [`ZooKeeperServer::start`].
    pub fn start() -> anyhow::Result<Self> {
        let ports = (0..6).map(|_| PortLease::any()).collect::<anyhow::Result<Vec<_>>>()?;
        let mut links = Vec::new();
        let mut servers = Vec::new();
        for from in 0..3 {
            // Each reaches the others by ways of its own, which can be cut.
            let mut peers = String::from(PATIENCE);
            for (to, pair) in ports.chunks(2).enumerate() {
                let mut ways = Vec::new();
                for port in pair {
                    if from == to {
                        ways.push(port.number());
                    } else {
                        let link = Link::to(port.number())?;
                        ways.push(link.port());
                        links.push((from, to, link));
                    }
                }
                peers += &format!("server.{}=127.0.0.1:{}:{}\n", to + 1, ways[0], ways[1]);
            }
            servers.push(ZooKeeperServer::prepare(from + 1, peers, PortLease::any()?, None)?);
        }
        Self::launch(servers, links, ports)
    }

    /// The same with one on each of these hosts. Runs, as all that asks a server, [on one of them](Host::run).
    ///
    /// # Errors
    /// As [`ZooKeeperServer::start`].
    pub fn start_on(hosts: &[Host; 3]) -> anyhow::Result<Self> {
        let ports = (0..2).map(|_| PortLease::any()).collect::<anyhow::Result<Vec<_>>>()?;
        let (peer, election) = (ports[0].number(), ports[1].number());
        let mut peers = String::from(PATIENCE);
        for (number, host) in hosts.iter().enumerate() {
            peers += &format!("server.{}={}:{peer}:{election}\n", number + 1, host.address());
        }
        let prepare = |(number, host): (usize, &Host)| {
            ZooKeeperServer::prepare(number + 1, peers.clone(), PortLease::any()?, Some(host.clone()))
        };
        let servers = hosts.iter().enumerate().map(prepare).collect::<anyhow::Result<Vec<_>>>()?;
        Self::launch(servers, Vec::new(), ports)
    }

    fn launch(
        servers: Vec<ZooKeeperServer>,
        links: Vec<(usize, usize, Link)>,
        ports: Vec<PortLease>,
    ) -> anyhow::Result<Self> {
        servers.iter().try_for_each(ZooKeeperServer::launch)?;
        servers.iter().try_for_each(ZooKeeperServer::wait_ready)?;
        let Ok(servers) = servers.try_into() else { bail!("three servers were made") };
        Ok(Self { servers, links, _ports: ports })
    }

    /// Cuts one of them off from the two others; its clients still reach it.
    pub fn isolate(&self, alone: usize) {
        self.links_of(alone).for_each(Link::cut);
    }

    /// The way to the others is there again; waits until all serve.
    ///
    /// # Errors
    /// When one of them doesn't within a minute.
    pub fn rejoin(&self, alone: usize) -> anyhow::Result<()> {
        self.links_of(alone).for_each(Link::mend);
        self.servers.iter().try_for_each(ZooKeeperServer::wait_ready)
    }

    fn links_of(&self, alone: usize) -> impl Iterator<Item = &Link> {
        self.links.iter().filter(move |(from, to, _)| *from == alone || *to == alone).map(|(_, _, link)| link)
    }

    /// `zookeeper://…` with all three.
    pub fn url(&self) -> String {
        let places: Vec<_> = self.servers.iter().map(|server| server.address().to_string()).collect();
        format!("zookeeper://{}", places.join(","))
    }

    /// Which of them leads.
    ///
    /// # Errors
    /// When none does within half a minute.
    pub fn leader(&self) -> anyhow::Result<usize> {
        wait::until_blocking("a leader", Duration::from_secs(30), || {
            self.servers.iter().position(|server| {
                server.ask("mntr").is_ok_and(|text| text.contains("zk_server_state\tleader"))
            })
        })
    }
}

/// Whether a server at this address serves clients.
fn serves(address: SocketAddr) -> bool {
    ask(address, "mntr").is_ok_and(|text| text.contains("zk_server_state"))
}

fn ask(address: SocketAddr, word: &str) -> anyhow::Result<String> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(word.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn settings(clients: SocketAddr, data: &Path) -> String {
    format!(
        "tickTime={}\ndataDir={}\nclientPort={}\nclientPortAddress={}\nmaxClientCnxns=0\nminSessionTimeout=200\n\
         maxSessionTimeout=100000000\nadmin.enableServer=false\n4lw.commands.whitelist=*\n",
        TICK.as_millis(),
        data.display(),
        clients.port(),
        clients.ip(),
    )
}

/// Small and soon up; nothing is forced to disk, for no test cuts the power.
fn arguments(command: &mut Command, config: &Path) -> anyhow::Result<()> {
    let jars = env::var("DISTLOCK_ZOOKEEPER_CLASSPATH")
        .unwrap_or_else(|_| DEBIAN.map(|jar| format!("{JARS}/{jar}.jar")).join(":"));
    if env::var_os("DISTLOCK_ZOOKEEPER_CLASSPATH").is_none()
        && !Path::new(JARS).join("zookeeper.jar").is_file()
    {
        bail!(
            "ZooKeeper isn't installed; run `apt-get install -y zookeeper` (or ./scripts/test, which does)"
        );
    }
    command.args(["-Xmx128m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args([
        "-Dzookeeper.forceSync=no",
        "-Dzookeeper.preAllocSize=1024",
        "-Dznode.container.checkIntervalMs=1000",
    ]);
    // Elections on a busy machine: nobody waits long before it asks again.
    command.args(["-Dzookeeper.cnxTimeout=1000", "-Dzookeeper.fastleader.maxNotificationInterval=500"]);
    command.args(["-cp", &jars, MAIN]).arg(config);
    Ok(())
}

fn java() -> anyhow::Result<PathBuf> {
    child::find_program("java", "default-jre-headless")
}
