//! One lock over and over, on five Redlock nodes of which two are killed, paused or starting at any time.

use std::time::Duration;

use distlock::LockManager;
use distlock_tests::server::RedlockNodes;

/// What becomes of a node for a while.
#[derive(Clone, Copy)]
enum Fault {
    Killed,
    Paused,
}

/// So many grants, each with a larger token than the one before.
pub(crate) async fn grants(count: u64) {
    let nodes = RedlockNodes::start(5);
    let nodes_of = |indexes: &[(usize, Fault)]| indexes.to_vec();
    let locks = LockManager::connect(&nodes.url("node_timeout=300ms")).await.unwrap();
    let mut last = 0;
    let mut faults: Vec<(usize, Fault)> = Vec::new();
    for grant in 0..count {
        if grant % 5 == 0 {
            for (node, fault) in nodes_of(&faults) {
                match fault {
                    Fault::Killed => nodes.nodes()[node].restart().unwrap(),
                    Fault::Paused => nodes.nodes()[node].resume().unwrap(),
                }
            }
            let mut order: Vec<usize> = (0..5).collect();
            fastrand::shuffle(&mut order);
            faults = vec![(order[0], Fault::Killed), (order[1], Fault::Paused)];
            nodes.nodes()[order[0]].kill().unwrap();
            nodes.nodes()[order[1]].pause().unwrap();
        }
        let guard = locks.mutex("order:1").wait(Duration::from_secs(30)).lock().await.unwrap();
        let token = guard.fencing_token().get();
        assert!(token > last, "grant {grant}: {token} after {last}");
        last = token;
        guard.release().await.unwrap();
    }
}
