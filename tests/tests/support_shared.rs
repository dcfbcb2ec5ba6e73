//! Servers that the tests of a run share: asked for twice they are the same, and they end with the run, however it ends.

use std::{
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use distlock_tests::{procs::Worker, server::shared_etcd, wait};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn who_asks_again_is_given_the_same() {
    assert_eq!(shared_etcd().unwrap(), shared_etcd().unwrap());
}

/// The servers of a run that consists of one process.
struct Kept {
    keeper: Worker,
    servers: Vec<SocketAddr>,
}

impl Kept {
    fn start(runner: u32, folder: &Path) -> Self {
        let kind = r#"{"Redis":{"group":"Redlock","user":"tests on nopass ~* +@all"}}"#;
        let folder_name = folder.to_str().unwrap().to_owned();
        let args = [kind.to_owned(), folder_name, runner.to_string()];
        let keeper = Worker::spawn(env!("CARGO_BIN_EXE_shared-servers"), args).unwrap();
        let text =
            wait::until_blocking("servers", LIMIT, || std::fs::read_to_string(folder.join("place")).ok());
        let place: serde_json::Value = serde_json::from_str(&text.unwrap()).unwrap();
        let hosts = place["url"].as_str().unwrap().trim_start_matches("redlock://").trim_end_matches('?');
        let servers: Vec<SocketAddr> = hosts.split(',').map(|host| host.parse().unwrap()).collect();
        assert_eq!(servers.len(), 3);
        assert!(servers.iter().all(listens), "{servers:?}");
        Self { keeper, servers }
    }

    fn assert_gone(&self) {
        let gone = || (!self.servers.iter().any(listens)).then_some(());
        wait::until_blocking("the servers' end", LIMIT, gone).unwrap();
    }
}

fn listens(server: &SocketAddr) -> bool {
    TcpStream::connect(server).is_ok()
}

#[tokio::test]
async fn procs_servers_end_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let kept = Kept::start(run.id(), folder.path());
    // Its input ends, and with it the process.
    drop(run.stdin.take());
    run.wait().unwrap();
    kept.assert_gone();
    assert!(kept.keeper.wait_exit(LIMIT).await.unwrap().success());
    assert!(!folder.path().exists(), "nothing is left behind");
}

#[test]
fn procs_servers_end_with_their_keeper() {
    let folder = tempfile::tempdir().unwrap();
    let kept = Kept::start(std::process::id(), folder.path());
    kept.keeper.kill().unwrap();
    kept.assert_gone();
}
