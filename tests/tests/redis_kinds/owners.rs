//! Locks of explicit owners.

use std::time::Duration;

use distlock_tests::wait;

use crate::{LIMIT, Stage, ms};

#[tokio::test]
async fn a_hold_costs_a_script_and_its_end_another() {
    let stage = Stage::start();
    let (one, two) = (stage.locks().await, stage.locks().await);
    one.mutex("warm").owner("up").lock().await.unwrap().release().await.unwrap();
    for locks in [&one, &two] {
        locks.ping().await.unwrap();
    }
    let (commands, first) = stage.commands(one.mutex("order").owner("saga").lock()).await;
    assert_eq!(commands, 1);
    let (commands, second) = stage.commands(two.mutex("order").owner("saga").lock()).await;
    assert_eq!(commands, 1);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.fencing_token(), second.fencing_token());
    let (commands, inner) = stage.commands(first.run(one.mutex("order").owner("saga").lock())).await;
    assert_eq!(commands, 0, "below its own hold it asks nobody");
    drop(inner.unwrap().unwrap());
    for guard in [first, second] {
        let (commands, outcome) = stage.commands(guard.release()).await;
        outcome.unwrap();
        assert_eq!(commands, 1);
    }
    stage.nothing_stays().await;
}

/// The id stays in the process, as owner tokens stay out of logs.
#[tokio::test]
async fn the_id_is_neither_in_the_store_nor_in_what_is_sent() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let lock = locks.mutex("order").owner("customer 4711");
    let shown = format!("{lock:?}");
    assert!(!shown.contains("4711"), "{shown}");
    let guard = lock.lock().await.unwrap();
    let waiting = tokio::spawn(locks.mutex("order").owner("customer 0815").wait(ms(300)).lock());
    let error = waiting.await.unwrap().unwrap_err();
    assert!(!format!("{error:?} {error}").contains("0815"), "{error:?}");
    for entry in stage.proxy.log().entries() {
        assert!(!entry.command.mentions("4711") && !entry.command.mentions("0815"), "{:?}", entry.command);
    }
    drop(guard);
    stage.nothing_stays().await;
}

/// Sampled all the while: whatever belongs to the lock has a ttl.
#[tokio::test]
async fn every_key_has_a_ttl_at_all_times() {
    let stage = Stage::start();
    let managers = [stage.locks().await, stage.locks().await];
    let work = async {
        let tasks = (0..24).map(|number: usize| {
            let locks = managers[number % 2].clone();
            async move {
                let owner = format!("saga {}", number % 3);
                let lock = locks.mutex("order").owner(owner).ttl(ms(1_000)).wait(Duration::from_secs(20));
                let guard = lock.lock().await.unwrap();
                tokio::time::sleep(ms(number as u64 * 7 % 40)).await;
                drop(guard);
            }
        });
        futures_util::future::join_all(tasks).await;
    };
    tokio::select! {
        () = work => {}
        () = stage.sampled() => {}
    }
    stage.nothing_stays().await;
}

/// A release that is lost on its way, and one that arrives twice, leave the other hold alone.
#[tokio::test]
async fn a_process_that_is_cut_off_takes_its_own_hold_along() {
    let stage = Stage::start();
    let (one, two) =
        (stage.locks().await, distlock::LockManager::connect(&stage.server.url()).await.unwrap());
    let lost = one.mutex("order").owner("saga").ttl(ms(900)).lock().await.unwrap();
    let kept = two.mutex("order").owner("saga").ttl(ms(900)).lock().await.unwrap();
    stage.proxy.set_mode(distlock_tests::proxy::Mode::BlackHole).unwrap();
    let holds = async || two.inspect("order").await.unwrap().holder.and_then(|holder| holder.hold_count);
    wait::until("one hold to lapse", LIMIT, async || (holds().await == Some(1)).then_some(())).await.unwrap();
    assert!(!lost.is_valid() && kept.is_valid());
    assert!(two.mutex("order").owner("other").try_lock().await.unwrap_err().is_busy());
    kept.release().await.unwrap();
    drop(two.mutex("order").owner("other").try_lock().await.unwrap());
}

/// An acquisition that arrives when its caller has gone is no hold, beside the other holds of its owner and without them.
#[tokio::test]
async fn a_hold_that_arrives_late_is_none() {
    let stage = Stage::start();
    let (locks, other) =
        (stage.locks().await, distlock::LockManager::connect(&stage.server.url()).await.unwrap());
    locks.mutex("order").owner("saga").lock().await.unwrap().release().await.unwrap();
    for round in 0..20 {
        let kept = match round % 2 {
            0 => Some(other.mutex("order").owner("saga").lock().await.unwrap()),
            _ => None,
        };
        stage.dropped_on_the_way(locks.mutex("order").owner("saga").lock()).await;
        if let Some(kept) = kept {
            let alone = async || {
                let holder = other.inspect("order").await.unwrap().holder?;
                (holder.hold_count == Some(1)).then_some(())
            };
            wait::until("the other hold alone", LIMIT, alone).await.unwrap();
            kept.release().await.unwrap();
        }
        stage.nothing_stays().await;
    }
}
