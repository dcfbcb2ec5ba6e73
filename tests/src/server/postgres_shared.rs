//! One Postgres for all tests of a run: making a database cluster costs a second, and each test is a process of its own.

use std::{
    env, fs,
    fs::File,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;

use super::{
    account,
    port::PortLease,
    postgres::{answers, log_tail, make_cluster, program, settings},
};
use crate::wait;

const START_LIMIT: Duration = Duration::from_secs(60);

/// Ends the server when the process that runs the tests has gone, and leaves nothing behind.
const KEEPER: &str = r#"
runner=$1 folder=$2
shift 2
"$@" >>"$folder/server.log" 2>&1 &
server=$!
while kill -0 "$runner" 2>/dev/null && kill -0 "$server" 2>/dev/null; do sleep 1; done
kill -QUIT "$server" 2>/dev/null
wait "$server"
rm -rf "$folder"
"#;

/// The server that the tests of one run share: with databases that know nothing of durability, and nobody's settings but the
/// default ones. Tests use names of their own.
#[derive(Clone, Debug)]
pub struct SharedPostgres {
    port: u16,
}

impl SharedPostgres {
    /// Starts it, unless another test of this run has done so. It ends soon after the run.
    ///
    /// # Errors
    /// When Postgres isn't installed (the message says how to get it), or isn't up within a minute.
    pub fn attach() -> anyhow::Result<Self> {
        let folder = folder();
        fs::create_dir_all(&folder)?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("wait for another test that starts it")?;
        let note = folder.join("port");
        let known = fs::read_to_string(&note).ok().and_then(|text| text.trim().parse().ok());
        if let Some(port) = known.filter(|port| answers(*port)) {
            return Ok(Self { port });
        }
        let port = start(&folder)?;
        fs::write(&note, port.to_string())?;
        Ok(Self { port })
    }

    /// URL for the role `postgres` and its database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Who runs the tests: the parent of this process, and of all others of the run.
fn runner() -> u32 {
    rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get().unsigned_abs())
}

fn folder() -> PathBuf {
    let run = env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| "single".to_owned());
    env::temp_dir().join(format!("distlock-postgres-run-{run}-{}", runner()))
}

fn start(folder: &Path) -> anyhow::Result<u16> {
    let data = folder.join("data");
    if data.exists() {
        fs::remove_dir_all(&data)?;
    }
    make_cluster(folder)?;
    let log = folder.join("server.log");
    File::create(&log)?.set_permissions(fs::Permissions::from_mode(0o666))?;
    let port = PortLease::any()?;
    let server = account::command("postgres", program("postgres")?);
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "keeper"]).arg(runner().to_string()).arg(folder);
    keeper.arg(server.get_program()).args(server.get_args()).arg("-D").arg(&data);
    keeper.args(settings(port.number())).args(["-c", "fsync=off"]);
    // It outlives this test: nothing of ours may be waited for by the one that runs the tests, nor a signal to us be one to it.
    keeper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    keeper.spawn().context("start postgres")?;
    let number = port.number();
    wait::until_blocking("postgres to answer", START_LIMIT, || answers(number).then_some(()))
        .with_context(|| log_tail(folder))?;
    Ok(number)
}
