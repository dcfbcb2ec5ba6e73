//! A steady machine: server and clients on a CPU each, both kept from halting, which costs up to 50 µs a wake-up.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use distlock_tests::procs::Worker;

/// Where server and clients run.
#[derive(Debug)]
pub(crate) enum Machine {
    Steady { server: String, clients: String, spinners: Vec<Worker>, first: Option<First> },
    Loose { why: &'static str },
}

/// The scheduler's share of this session, raised until this is dropped, so that other work on the machine disturbs less.
#[derive(Debug)]
pub(crate) struct First;

impl First {
    /// Only root may.
    fn come() -> Option<Self> {
        fs::write(SHARE, "-20").ok().map(|()| Self)
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // As it is by default; it can't fail where raising it didn't.
        let _ = fs::write(SHARE, "0");
    }
}

/// Linux gives each session its share, whatever the priorities of its processes.
const SHARE: &str = "/proc/self/autogroup";

impl Machine {
    /// Pins the server and starts the spinners, where the machine can do that.
    pub(crate) fn prepare(server: u32) -> anyhow::Result<Self> {
        let cpus = allowed_cpus()?;
        let [first, second, ..] = cpus.as_slice() else { return Ok(Self::Loose { why: "there is one CPU" }) };
        if !runs("taskset", &["--version"]) || !runs("chrt", &["--idle", "0", "true"]) {
            return Ok(Self::Loose { why: "`taskset` and `chrt` (util-linux) are not there" });
        }
        if !runs("taskset", &["-a", "-c", "-p", first, &server.to_string()]) {
            return Ok(Self::Loose { why: "`taskset` may not pin the server" });
        }
        // What this process starts later inherits its CPU: the servers of other stores. Clients are told theirs.
        runs("taskset", &["-a", "-c", "-p", first, &std::process::id().to_string()]);
        let itself = own_program()?;
        // In a session of their own: in ours they would use up our share.
        let spinner = |cpu: &String| {
            let spin = ["chrt", "--idle", "0", "taskset", "-c", cpu.as_str(), itself.as_str(), "spin"];
            Worker::spawn("setsid", spin)
        };
        let spinners = [first, second].map(spinner).into_iter().collect::<Result<_, _>>()?;
        Ok(Self::Steady { server: first.clone(), clients: second.clone(), spinners, first: First::come() })
    }

    /// A child of this program, on the clients' CPU.
    pub(crate) fn client(&self, order: &str) -> anyhow::Result<Worker> {
        let itself = own_program()?;
        match self {
            Self::Steady { clients, .. } => {
                Worker::spawn("taskset", ["-c", clients.as_str(), itself.as_str(), "work", order])
            }
            Self::Loose { .. } => Worker::spawn(itself, ["work", order]),
        }
    }

    /// Puts the processes below this one first too that have a session of their own by now, as each of Postgres' has.
    pub(crate) fn raise_servers(&self) {
        let Self::Steady { spinners, first: Some(_), .. } = self else { return };
        let parents: BTreeMap<u32, u32> = processes().collect();
        let is_spinner = |pid: u32| spinners.iter().any(|spinner| spinner.pid() == pid);
        for pid in parents.keys() {
            let line = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
            let line: Vec<u32> = line.take(16).collect();
            if line.contains(&std::process::id()) && !line.iter().any(|pid| is_spinner(*pid)) {
                // One that has ended meanwhile needs nothing.
                let _ = fs::write(format!("/proc/{pid}/autogroup"), "-20");
            }
        }
    }

    pub(crate) fn describe(&self) -> Vec<String> {
        let set_up = match self {
            Self::Steady { server, clients, spinners, first } => format!(
                "servers on CPU {server}, clients on CPU {clients}{}, {} idle-priority spinners keep both awake",
                if first.is_some() { ", before all other processes" } else { "" },
                spinners.len()
            ),
            Self::Loose { why } => format!("nothing is pinned ({why}): these figures are less stable"),
        };
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let before = load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        let busy = (before > 0.7).then(|| {
            format!("the machine is busy with other work (load {before:.1}): only ratios mean something")
        });
        std::iter::once(set_up).chain(busy).collect()
    }
}

/// Every process, and its parent.
fn processes() -> impl Iterator<Item = (u32, u32)> {
    let folders = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    folders.filter_map(|folder| {
        let pid = folder.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(folder.path().join("stat")).ok()?;
        // The name in parentheses may hold anything.
        Some((pid, stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?))
    })
}

/// Keeps a CPU awake; everything else goes before it.
pub(crate) fn spin() -> ! {
    // Also behind the rest of the machine. Where it isn't possible, they only keep their CPU busier.
    let _ = fs::write(SHARE, "19");
    loop {
        std::hint::spin_loop();
    }
}

/// Bytes of memory that this process has.
pub(crate) fn resident_memory() -> anyhow::Result<u64> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let resident = pages.split(' ').nth(1).context("statm has a second field")?;
    Ok(resident.parse::<u64>()? * rustix::param::page_size() as u64)
}

/// The CPUs that this process may use, by number.
fn allowed_cpus() -> anyhow::Result<Vec<String>> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default();
    let mut cpus = Vec::new();
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend((first.parse::<u32>()?..=last.parse()?).map(|cpu| cpu.to_string()));
    }
    Ok(cpus)
}

fn runs(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn own_program() -> anyhow::Result<String> {
    let path = std::env::current_exe().context("find this program")?;
    path.into_os_string().into_string().ok().context("the path of this program is UTF-8")
}
