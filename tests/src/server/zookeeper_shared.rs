//! One ZooKeeper for all tests of one run that only use it: a virtual machine for Java costs more than most of them.

use std::{
    env, fs,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;

use super::{child, port::PortLease, zookeeper};
use crate::wait;

/// Ends the server when the run has ended, and takes its folder along.
const KEEPER: &str = r#"
"$@" >"$FOLDER/server.log" 2>&1 </dev/null &
server=$!
while kill -0 "$RUN" 2>/dev/null && kill -0 "$server" 2>/dev/null; do sleep 0.5; done
kill -9 "$server" 2>/dev/null
rm -rf "$FOLDER"
"#;

/// Where the server of this run is; the first that asks starts it. It ends with the process that runs the tests.
///
/// # Errors
/// As [`ZooKeeperServer::start`](super::ZooKeeperServer::start).
pub fn shared_zookeeper() -> anyhow::Result<SocketAddr> {
    let run = rustix::process::getppid().context("a test has a parent")?.as_raw_nonzero();
    let name = env::var("NEXTEST_RUN_ID").unwrap_or_else(|_| format!("parent-{run}"));
    let folder = env::temp_dir().join(format!("distlock-zookeeper-of-{name}"));
    fs::create_dir_all(&folder).context("make a folder")?;
    let gate = fs::File::create(folder.join("gate")).context("open the gate")?;
    gate.lock().context("wait for the others that start it")?;
    let place = folder.join("port");
    let known = fs::read_to_string(&place).ok().and_then(|text| text.trim().parse::<u16>().ok());
    if let Some(port) = known {
        return Ok(([127, 0, 0, 1], port).into());
    }
    let port = PortLease::any()?;
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    start(&folder, port.number(), &run.to_string())?;
    wait::until_blocking("the shared ZooKeeper", Duration::from_secs(60), || {
        zookeeper::serves(address).then_some(())
    })
    .with_context(|| fs::read_to_string(folder.join("server.log")).unwrap_or_default())?;
    fs::write(place, port.number().to_string()).context("say where it is")?;
    Ok(address)
}

fn start(folder: &Path, port: u16, run: &str) -> anyhow::Result<()> {
    let config: PathBuf = folder.join("zoo.cfg");
    fs::write(&config, zookeeper::settings(([127, 0, 0, 1], port).into(), &folder.join("data")))
        .context("write zoo.cfg")?;
    let mut keeper = Command::new(child::find_program("sh", "dash")?);
    keeper.args(["-c", KEEPER, "keeper"]).arg(zookeeper::java()?);
    zookeeper::arguments(&mut keeper, &config)?;
    keeper.env("FOLDER", folder).env("RUN", run).current_dir(folder);
    // Out of the test's group, which is ended with the test.
    keeper.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    keeper.spawn().context("start the shared ZooKeeper")?;
    Ok(())
}
