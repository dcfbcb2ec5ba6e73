//! One lock over and over, on five Redlock nodes of which two are killed, paused or starting at any time.

use std::{fmt, time::Duration};

use distlock::{ErrorKind, LockManager, backend::Clock};
use distlock_tests::server::RedlockNodes;
use redis::aio::MultiplexedConnection;

/// The nodes change their places after so many grants.
const ROUND: u64 = 8;

/// What became of all the grants.
pub(crate) struct Figures {
    pub(crate) grants: u64,
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    pub(crate) took: Duration,
    /// How often the largest token of a quorum, without the write-back, was no larger than one before it.
    pub(crate) naive_violations: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, kills, pauses, took, naive_violations } = self;
        write!(
            f,
            "{grants} grants with growing tokens, {kills} kills, {pauses} pauses, {} s; \
             without the write-back {naive_violations} tokens would not have grown",
            took.as_secs()
        )
    }
}

/// So many grants, each with a larger token than the one before. Each waits for the node that is paused: hence a short budget.
pub(crate) async fn grants(count: u64) -> Figures {
    let nodes = RedlockNodes::start(5);
    let locks = LockManager::connect(&nodes.url("node_timeout=30ms")).await.unwrap();
    let start = Clock::System.now();
    let (mut last, mut kills, mut pauses) = (0, 0, 0);
    let mut naive = Naive::default();
    let mut away: Option<(usize, usize)> = None;
    for grant in 0..count {
        if grant % ROUND == 0 {
            if let Some((killed, paused)) = away {
                nodes.nodes()[killed].restart().unwrap();
                nodes.nodes()[paused].resume().unwrap();
            }
            let mut order: Vec<usize> = (0..5).collect();
            fastrand::shuffle(&mut order);
            nodes.nodes()[order[0]].kill().unwrap();
            nodes.nodes()[order[1]].pause().unwrap();
            (kills, pauses) = (kills + 1, pauses + 1);
            away = Some((order[0], order[1]));
            naive.see(&nodes, &order[2..]).await;
        }
        let guard = locks.mutex("order:1").wait(Duration::from_secs(60)).lock().await.unwrap();
        let token = guard.fencing_token().get();
        assert!(token > last, "grant {grant}: {token} after {last}");
        last = token;
        // On a machine with other work a node may answer too late; then the background goes on with it.
        if let Err(error) = guard.release().await {
            assert!(matches!(error.kind(), ErrorKind::Quorum | ErrorKind::Connection), "{error}");
        }
        naive.draw().await;
        if (grant + 1) % 1000 == 0 {
            println!(
                "{} grants, {kills} kills, {pauses} pauses, {:?}",
                grant + 1,
                Clock::System.now() - start
            );
        }
    }
    let took = Clock::System.now() - start;
    Figures { grants: count, kills, pauses, took, naive_violations: naive.violations }
}

/// The largest of a quorum's counters, which nobody writes back.
#[derive(Default)]
struct Naive {
    quorum: Vec<MultiplexedConnection>,
    largest: u64,
    violations: u64,
}

impl Naive {
    async fn see(&mut self, nodes: &RedlockNodes, up: &[usize]) {
        self.quorum.clear();
        for node in up {
            self.quorum.push(nodes.nodes()[*node].admin().await.unwrap());
        }
    }

    async fn draw(&mut self) {
        let mut token = 0;
        for node in &mut self.quorum {
            token = token.max(redis::cmd("INCR").arg("naive").query_async(node).await.unwrap());
        }
        self.violations += u64::from(token <= self.largest);
        self.largest = self.largest.max(token);
    }
}
