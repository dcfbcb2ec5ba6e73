//! Real networks that can be parted: each host is a network namespace, and bridges in one more of them join the hosts.
//!
//! Nothing of it is in the machine's own network, and nobody there has a way in. A namespace lives as long as the processes in it: it
//! is kept by one that the kernel ends with the test, so none is ever left behind, and none has a name that another could take.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, BufRead, BufReader, Write},
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use anyhow::{Context, bail};
use rustix::process::geteuid;
use tokio::{
    runtime::{self, Runtime},
    task::JoinHandle,
};

use super::child;

/// Hosts that all reach each other, until the network is parted.
#[derive(Debug)]
pub struct Network {
    hub: Space,
    hosts: Vec<Host>,
}

impl Network {
    /// So many hosts.
    ///
    /// # Errors
    /// Without the rights of root, and when a program is missing or the kernel refuses.
    pub fn new(hosts: u8) -> anyhow::Result<Self> {
        if !geteuid().is_root() {
            bail!("this makes network namespaces, which takes the rights of root: run the test as root");
        }
        let hub = Space::new()?;
        let hosts = (1..=hosts).map(Host::new).collect::<anyhow::Result<Vec<_>>>()?;
        let mut plan = String::new();
        for bridge in ["whole", "apart"] {
            plan += &format!("link add name {bridge} type bridge\nlink set {bridge} up\n");
        }
        for host in &hosts {
            let (port, keeper) = (host.port(), host.0.space.keeper_pid()?);
            plan += &format!("link add name {port} type veth peer name uplink netns {keeper}\n");
            plan += &format!("link set {port} master whole up\n");
        }
        hub.ip(&plan)?;
        for host in &hosts {
            let address = host.address();
            host.0
                .space
                .ip(&format!("link set lo up\naddr add {address}/24 dev uplink\nlink set uplink up\n"))?;
        }
        Ok(Self { hub, hosts })
    }

    /// All hosts, in the order of their addresses.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// From here on these reach each other only, and so do the rest. What is sent over the border is lost without a word, as on a cable
    /// that is cut far away: no interface goes down.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn part<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>) -> anyhow::Result<()> {
        self.plug(hosts, "apart")
    }

    /// All reach all again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn heal(&self) -> anyhow::Result<()> {
        self.plug(&self.hosts, "whole")
    }

    fn plug<'a>(&self, hosts: impl IntoIterator<Item = &'a Host>, bridge: &str) -> anyhow::Result<()> {
        let lines = hosts.into_iter().map(|host| format!("link set {} master {bridge}\n", host.port()));
        self.hub.ip(&lines.collect::<String>())
    }
}

/// One host of a [`Network`].
#[derive(Clone, Debug)]
pub struct Host(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    number: u8,
    space: Space,
    runtime: OnceLock<Runtime>,
}

impl Host {
    fn new(number: u8) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(Inner { number, space: Space::new()?, runtime: OnceLock::new() })))
    }

    /// Where the others reach it.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 83, 0, self.0.number)
    }

    /// Runs a part of the test as a process of this host would: all that it connects, or starts threads for, is in this host's network.
    ///
    /// # Panics
    /// When the kernel doesn't give threads.
    pub fn run<F, T>(&self, part: impl FnOnce() -> F + Send + 'static) -> JoinHandle<T>
    where
        F: Future<Output = T>,
        T: Send + 'static,
    {
        let handle = self.runtime().handle().clone();
        let entered = handle.clone();
        handle.spawn_blocking(move || entered.block_on(part()))
    }

    /// A command whose process is on this host, and ends with the test.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> anyhow::Result<Command> {
        let mut command = child::mortal_command(child::find_program("nsenter", "util-linux")?);
        command.arg(format!("--net={}", self.0.space.path()?)).arg(program);
        Ok(command)
    }

    /// The other end of its cable.
    fn port(&self) -> String {
        format!("port{}", self.0.number)
    }

    fn runtime(&self) -> &Runtime {
        self.0.runtime.get_or_init(|| {
            let space = self.0.space.namespace.try_clone().expect("a descriptor can be had twice");
            // Threads that the runtime starts late inherit the network of whoever needed them: so each goes there itself.
            let enter = move || enter(&space).expect("root enters its own namespaces");
            let mut builder = runtime::Builder::new_multi_thread();
            builder.worker_threads(2).enable_all().on_thread_start(enter).build().expect("threads can be had")
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Within another runtime nothing may be waited for.
            runtime.shutdown_background();
        }
    }
}

/// Takes the calling thread into a network.
#[cfg(target_os = "linux")]
fn enter(namespace: &File) -> io::Result<()> {
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use std::os::fd::AsFd as _;

    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}

#[cfg(not(target_os = "linux"))]
fn enter(_: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A network namespace, and the process that keeps it.
#[derive(Debug)]
struct Space {
    keeper: Mutex<Child>,
    namespace: File,
}

impl Space {
    fn new() -> anyhow::Result<Self> {
        let mut command = child::mortal_command(child::find_program("unshare", "util-linux")?);
        command.args(["--net", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = child::spawn(command).context("start unshare")?;
        // Its echo says that it is in there.
        let mut echo = String::new();
        keeper.stdin.as_mut().context("its input is piped")?.write_all(b"there?\n").context("ask unshare")?;
        BufReader::new(keeper.stdout.as_mut().context("its output is piped")?).read_line(&mut echo)?;
        if echo.is_empty() {
            bail!("`unshare --net` can't make a network namespace; what it said is above");
        }
        let namespace = File::open(format!("/proc/{}/ns/net", keeper.id())).context("open a namespace")?;
        Ok(Self { keeper: Mutex::new(keeper), namespace })
    }

    fn keeper_pid(&self) -> anyhow::Result<u32> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(status) = keeper.try_wait()? {
            bail!("the process that keeps a namespace ended with {status}");
        }
        Ok(keeper.id())
    }

    fn path(&self) -> anyhow::Result<String> {
        Ok(format!("/proc/{}/ns/net", self.keeper_pid()?))
    }

    /// Runs commands of `ip` in here, one a line.
    fn ip(&self, lines: &str) -> anyhow::Result<()> {
        let mut command = Command::new(child::find_program("nsenter", "util-linux")?);
        command.arg(format!("--net={}", self.path()?)).arg(child::find_program("ip", "iproute2")?);
        command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ip = command.spawn().context("start ip")?;
        ip.stdin.take().context("its input is piped")?.write_all(lines.as_bytes()).context("tell ip")?;
        let output = ip.wait_with_output().context("wait for ip")?;
        if !output.status.success() {
            bail!("ip failed on\n{lines}{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // Nobody is left to tell; the kernel kills it with us at the latest.
        let _ = child::kill_and_wait(self.keeper.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpStream, time::Duration};

    /// Whether somebody at this address refuses: then there is a way to it. Nobody listens there.
    fn reaches(address: Ipv4Addr) -> bool {
        let outcome = TcpStream::connect_timeout(&(address, 9).into(), Duration::from_millis(500));
        outcome.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    #[tokio::test]
    async fn a_network_is_parted_and_healed_and_out_of_reach() {
        let network = Network::new(3).unwrap();
        let hosts = network.hosts();
        let look = async |from: usize, to: usize| {
            let address = hosts[to].address();
            hosts[from].run(move || async move { reaches(address) }).await.unwrap()
        };
        assert!(look(0, 1).await && look(0, 2).await && look(2, 1).await);
        network.part([&hosts[0], &hosts[1]]).unwrap();
        assert!(look(0, 1).await && look(1, 0).await);
        assert!(!look(0, 2).await && !look(2, 0).await && !look(2, 1).await);
        network.heal().unwrap();
        assert!(look(0, 2).await && look(2, 0).await && look(2, 1).await);
        assert!(!reaches(hosts[0].address()), "the machine's own network has no way in");
    }

    #[tokio::test]
    async fn a_command_is_on_its_host() {
        let network = Network::new(1).unwrap();
        let host = &network.hosts()[0];
        let output = host.command("ip").unwrap().args(["-o", "-4", "addr"]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(&host.address().to_string()), "{text}");
    }
}
