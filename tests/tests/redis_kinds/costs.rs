//! What each kind costs in commands, as the guide says.

use std::{collections::BTreeMap, path::Path};

use distlock::LockManager;

use crate::Stage;

/// Commands to take a free lock, and to give it back.
type Cost = (usize, usize);

/// One acquire and release of every kind, by the name of what the guide links to.
async fn measured(stage: &Stage, locks: &LockManager) -> BTreeMap<&'static str, Cost> {
    let mut costs = BTreeMap::new();
    macro_rules! cost {
        ($name:literal, $take:expr, $guard:ident => $give:expr) => {
            let (take, $guard) = stage.commands($take).await;
            let $guard = $guard.unwrap();
            let (give, outcome) = stage.commands($give).await;
            outcome.unwrap();
            costs.insert($name, (take, give));
        };
    }
    cost!("LockManager::mutex", locks.mutex("k1").lock(), guard => guard.release());
    cost!("Mutex::fair", locks.mutex("k2").fair().lock(), guard => guard.release());
    cost!("Mutex::owner", locks.mutex("k3").owner("saga").lock(), guard => guard.release());
    cost!("LockManager::rw_lock", locks.rw_lock("k4").read(), guard => guard.release());
    let readers = costs["LockManager::rw_lock"];
    cost!("LockManager::rw_lock", locks.rw_lock("k5").write(), guard => guard.release());
    assert_eq!(costs["LockManager::rw_lock"], readers, "a writer costs what a reader does");
    cost!("LockManager::semaphore", locks.semaphore("k6", 3).acquire_many(2), guard => guard.release());
    cost!("LockManager::mutex_all", locks.mutex_all(["k7", "k8", "k9"]).lock(), guard => guard.release());
    let mut candidate = locks.election("k10").stand();
    let (take, lead) = stage.commands(candidate.elected()).await;
    lead.unwrap();
    let (give, ()) = stage.commands(candidate.resign()).await;
    costs.insert("LockManager::election", (take, give));
    costs
}

/// The guide's table: the last link of the second column, and `take + give back` in the third.
fn told() -> BTreeMap<String, Cost> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../distlock/src/guide/kinds.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, _, take, commands, _, _] = cells[..] else { return None };
        let name = take.rsplit("crate::").next()?.strip_suffix(')')?;
        let (take, give) = commands.split_once(" + ")?;
        Some((name.to_owned(), (take.parse().ok()?, give.parse().ok()?)))
    });
    rows.collect()
}

#[tokio::test]
async fn every_kind_costs_the_commands_that_the_guide_tells() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    // The first time, the server learns the scripts, and where the counters of fencing tokens begin.
    measured(&stage, &locks).await;
    let measured = measured(&stage, &locks).await;
    let told = told();
    let told: BTreeMap<&str, Cost> = told.iter().map(|(name, cost)| (name.as_str(), *cost)).collect();
    assert_eq!(told, measured);
    stage.nothing_stays().await;
}

/// "Entering again costs nothing", whichever kind.
#[tokio::test]
async fn entering_again_costs_no_command() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let guard = locks.mutex("k").lock().await.unwrap();
    let (commands, inner) = stage.commands(guard.run(locks.mutex("k").reentrant().lock())).await;
    let inner = inner.unwrap().unwrap();
    assert_eq!((commands, inner.fencing_token()), (0, guard.fencing_token()));
    let (commands, outcome) = stage.commands(inner.release()).await;
    outcome.unwrap();
    assert_eq!(commands, 0);
    let writer = locks.rw_lock("rw").write().await.unwrap();
    let (commands, reader) = stage.commands(writer.run(locks.rw_lock("rw").reentrant().read())).await;
    assert_eq!((commands, reader.unwrap().unwrap().fencing_token()), (0, writer.fencing_token()));
}

/// "Waiting costs two commands": one to enter the queue, and one to ask when told. A second of waiting costs one more.
#[tokio::test]
async fn a_short_wait_costs_two_commands() {
    let stage = Stage::start();
    let (holder, locks) = (stage.locks().await, stage.locks().await);
    for round in 0..6 {
        let kind = round % 3;
        let hold = match kind {
            0 => holder.mutex("k0").fair().lock().await.unwrap(),
            1 => holder.semaphore("k1", 1).acquire().await.unwrap(),
            _ => holder.mutex("k2").owner("one").lock().await.unwrap(),
        };
        let waits = async {
            match kind {
                0 => locks.mutex("k0").fair().lock().await.unwrap(),
                1 => locks.semaphore("k1", 1).acquire().await.unwrap(),
                _ => locks.mutex("k2").owner("other").lock().await.unwrap(),
            }
        };
        let gives = async {
            stage.waiters(&format!("k{kind}"), 1).await;
            hold.release().await.unwrap();
        };
        let (commands, (guard, ())) = stage.commands(async { tokio::join!(waits, gives) }).await;
        drop(guard);
        // The holder's release is among them. The first round may load scripts and not listen yet.
        assert!(commands == 2 + 1 || round < 3, "round {round}: {commands} commands");
    }
}
