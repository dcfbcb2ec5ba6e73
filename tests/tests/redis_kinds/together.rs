//! Several locks at once.

use distlock::{ErrorKind, LockKey};

use crate::Stage;

fn keys(count: usize) -> Vec<LockKey> {
    (0..count).map(|number| LockKey::new(format!("account:{number}")).unwrap()).collect()
}

#[tokio::test]
async fn several_free_locks_cost_one_command() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    locks.mutex_all(["warm", "up"]).lock().await.unwrap().release().await.unwrap();
    let keys = keys(100);
    let (commands, all) = stage.commands(locks.mutex_all(&keys).lock()).await;
    assert_eq!(commands, 1);
    let all = all.unwrap();
    assert!(all.is_valid() && all.guards().len() == 100);
    let (commands, outcome) = stage.commands(all.release()).await;
    outcome.unwrap();
    assert_eq!(commands, 100, "released each, in one batch");
    stage.nothing_stays().await;
}

#[tokio::test]
async fn a_single_try_for_several_costs_one_command_and_takes_nothing() {
    let stage = Stage::start();
    let (locks, other) = (stage.locks().await, stage.locks().await);
    locks.mutex_all(["warm", "up"]).lock().await.unwrap().release().await.unwrap();
    let keys = keys(5);
    let held = other.mutex(&keys[3]).lock().await.unwrap();
    let (commands, outcome) = stage.commands(locks.mutex_all(&keys).try_lock()).await;
    assert_eq!(commands, 1);
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::Busy, Some(&keys[3])));
    held.release().await.unwrap();
    stage.nothing_stays().await;
}

/// Those up to the one that is held are taken singly, the rest in one command again.
#[tokio::test]
async fn the_rest_behind_a_held_lock_costs_one_command() {
    let stage = Stage::start();
    let (locks, other) = (stage.locks().await, stage.locks().await);
    locks.mutex_all(["warm", "up"]).lock().await.unwrap().release().await.unwrap();
    let keys = keys(10);
    let held = other.mutex(&keys[1]).lock().await.unwrap();
    let release = async {
        stage.waiters(keys[1].as_str(), 1).await;
        drop(held);
    };
    let before = stage.proxy.log().count("EVALSHA");
    let (all, ()) = tokio::join!(locks.mutex_all(&keys).lock(), release);
    let scripts = stage.proxy.log().count("EVALSHA") - before;
    // All at once, entering the queue, the holder's release, the turn, the rest; fallbacks may ask some times more.
    assert!((5..=8).contains(&scripts), "{scripts}");
    all.unwrap().release().await.unwrap();
    stage.nothing_stays().await;
}

#[tokio::test]
async fn another_kind_of_lock_among_them_is_named_and_nothing_is_taken() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let keys = keys(3);
    let reader = locks.rw_lock(&keys[2]).read().await.unwrap();
    for single in [true, false] {
        let all = locks.mutex_all(&keys);
        let outcome = if single { all.try_lock().await } else { all.lock().await };
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::KeyConflict, Some(&keys[2])));
    }
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    stage.nothing_stays().await;
}

/// The step that arrives when its caller has gone takes nothing, in whatever order the commands get there.
#[tokio::test]
async fn a_step_that_arrives_late_takes_nothing() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    locks.mutex_all(["warm", "up"]).lock().await.unwrap().release().await.unwrap();
    for round in 0..20 {
        let keys = keys(3 + round % 2);
        stage.dropped_on_the_way(locks.mutex_all(&keys).lock()).await;
        stage.nothing_stays().await;
    }
    locks.mutex_all(keys(4)).try_lock().await.unwrap().release().await.unwrap();
}
