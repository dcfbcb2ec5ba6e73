//! The server, and the child processes that measure on it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use distlock_tests::procs::Worker;
use distlock_tests::server::{RedisOptions, RedisServer};
use redis::aio::MultiplexedConnection;

use crate::contender::Kind;
use crate::job::{Figures, Job, Store};
use crate::machine::Machine;
use crate::others::Others;
use crate::stats::now;
use crate::work::merge;

/// A child says so often at least what it is at.
const PATIENCE: Duration = Duration::from_secs(90);
/// Scripts that take longer are looked at, in microseconds.
const SLOW: u64 = 50;

#[derive(Debug)]
pub(crate) struct Fleet {
    server: RedisServer,
    others: Others,
    machine: Machine,
    folder: tempfile::TempDir,
}

impl Fleet {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let options = RedisOptions::new().config(format!("slowlog-log-slower-than {SLOW}"));
        let server = RedisServer::start(options.config("slowlog-max-len 10000"))?;
        let machine = Machine::prepare(server.pid()?)?;
        Ok(Self { server, others: Others::default(), machine, folder: tempfile::tempdir()? })
    }

    pub(crate) fn describe(&self) -> Vec<String> {
        self.machine.describe()
    }

    /// Makes one measurement, with a process or with several at once.
    pub(crate) async fn run(&self, job: &Job, processes: usize) -> anyhow::Result<Figures> {
        self.server.flush().await?;
        let url = match job.store {
            Store::Redis => self.server.url(),
            other => self.others.url(other).await?,
        };
        let order = |process| self.order(job, &url, process, processes > 1);
        let jobs: Vec<Job> = (0..processes).map(order).collect();
        let workers: Vec<Worker> = jobs
            .iter()
            .map(|job| self.machine.client(&serde_json::to_string(job)?))
            .collect::<Result<_, _>>()?;
        let mut server = Figures::new();
        let mut admin = self.server.admin().await?;
        let mut done = Vec::new();
        let mut phase = 0;
        let mut start = (now(), 0.0);
        while done.len() < workers.len() {
            let what = format!("step {phase} of {:?} with {:?}", job.work, job.contender);
            let mut said = Vec::new();
            for worker in &workers {
                let mut lines = 0;
                let nth = |line: &str| {
                    lines += 1;
                    (lines > phase).then(|| line.to_owned())
                };
                said.push(worker.wait_line(&what, PATIENCE, nth).await?);
            }
            phase += 1;
            match said[0].as_str() {
                "ready" | "held" => {
                    if job.store != Store::Redis {
                        self.machine.raise_servers();
                    }
                    self.start_counting(&mut admin).await?;
                    start = (now(), server_cpu_time(&mut admin).await?);
                }
                "end" => {
                    let busy = server_cpu_time(&mut admin).await? - start.1;
                    server = self.counted(&mut admin, job.contender).await?;
                    let window = (now() - start.0) as f64 / 1e9;
                    server.insert("server_cpu_percent".to_owned(), 100.0 * busy / window);
                }
                _ => {}
            }
            for (worker, line) in workers.iter().zip(&said) {
                match line.strip_prefix("result ") {
                    Some(result) => done.push(serde_json::from_str::<Figures>(result)?),
                    None => worker.send("go")?,
                }
            }
        }
        let mut figures = match processes {
            1 => done.pop().context("one process, one result")?,
            _ => merge::sections(&jobs, &done)?,
        };
        figures.extend(server);
        Ok(figures)
    }

    fn order(&self, job: &Job, url: &str, process: usize, logged: bool) -> Job {
        let log: Option<PathBuf> = logged.then(|| self.folder.path().join(format!("sections-{process}")));
        Job { url: url.to_owned(), process, log, ..job.clone() }
    }

    async fn start_counting(&self, admin: &mut MultiplexedConnection) -> anyhow::Result<()> {
        redis::cmd("SLOWLOG").arg("RESET").exec_async(admin).await?;
        self.server.reset_stats().await
    }

    async fn counted(&self, admin: &mut MultiplexedConnection, contender: Kind) -> anyhow::Result<Figures> {
        let calls = self.server.commandstats().await?;
        let sent = contender.commands().iter().filter_map(|name| calls.get(*name)).sum::<u64>();
        let slow: Vec<Vec<redis::Value>> =
            redis::cmd("SLOWLOG").arg("GET").arg(-1).query_async(admin).await?;
        let mut times: Vec<u64> = slow
            .iter()
            .filter(|entry| is_script(entry))
            .filter_map(|entry| match entry.get(2) {
                Some(redis::Value::Int(micros)) => Some(micros.unsigned_abs()),
                _ => None,
            })
            .collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        // Those that aren't in the log were faster than what is.
        let scripts = calls.get("evalsha").copied().unwrap_or_default();
        let hundredth = usize::try_from(scripts / 100)?;
        let time = |place: usize| times.get(place).copied().unwrap_or(SLOW) as f64;
        Ok([
            ("commands".to_owned(), sent as f64),
            ("slowest_script_us".to_owned(), time(0)),
            ("script_p99_us".to_owned(), time(hundredth)),
        ]
        .into())
    }
}

/// Seconds of CPU time that the server has used.
async fn server_cpu_time(admin: &mut MultiplexedConnection) -> anyhow::Result<f64> {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(admin).await?;
    let used = ["used_cpu_sys:", "used_cpu_user:"].map(|name| {
        info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).unwrap_or_default()
    });
    Ok(used.iter().sum())
}

fn is_script(entry: &[redis::Value]) -> bool {
    let Some(redis::Value::Array(command)) = entry.get(3) else { return false };
    matches!(command.first(), Some(redis::Value::BulkString(name)) if name.eq_ignore_ascii_case(b"EVALSHA"))
}
