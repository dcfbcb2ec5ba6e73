//! Circles of waiting tasks over processes: what looking for them costs and leaves behind.

use std::{sync::Arc, time::Duration};

use distlock::LockManager;
use distlock_tests::wait;

use crate::{LIMIT, Stage, ms};

async fn detecting(stage: &Stage) -> LockManager {
    LockManager::builder().detect_circles().connect(&stage.proxy.url()).await.unwrap()
}

/// Keys of published waits.
async fn published(stage: &Stage) -> usize {
    stage.server.keys().await.unwrap().iter().filter(|key| key.contains("}!h:")).count()
}

/// A wait under two locks stands beside both, and is taken back when it ends, granted or dropped.
#[tokio::test]
async fn a_published_wait_has_a_ttl_and_is_taken_back() {
    let stage = Stage::start();
    let (one, two) = (detecting(&stage).await, stage.locks().await);
    let under = one.mutex_all(["a", "b"]).lock().await.unwrap();
    for granted in [true, false] {
        let held = two.mutex("c").lock().await.unwrap();
        let mut waiting = Box::pin(under.run(one.mutex("c").wait(LIMIT).lock()));
        let both = async || (published(&stage).await == 2).then_some(());
        tokio::select! {
            outcome = wait::until("the wait beside both locks", LIMIT, both) => outcome.unwrap(),
            () = stage.sampled() => {}
            _ = &mut waiting => panic!("it is held"),
        }
        if granted {
            held.release().await.unwrap();
            drop(waiting.await.unwrap().unwrap());
        } else {
            drop(waiting);
            held.release().await.unwrap();
        }
        // Sooner than it would be forgotten by itself.
        let none = async || (published(&stage).await == 0).then_some(());
        wait::until("the wait to be taken back", ms(2_000), none).await.unwrap();
    }
    drop(under);
    stage.nothing_stays().await;
}

/// Nothing for short waits and for those who hold nothing; else one command for each lock held and one for each looked at,
/// twice a second.
#[tokio::test]
async fn it_costs_those_who_hold_and_wait_for_long() {
    let stage = Stage::start();
    let (one, two, holder) = (detecting(&stage).await, stage.locks().await, stage.locks().await);
    let waits = async |locks: &LockManager, holds: bool, length: Duration| {
        let guard = locks.mutex("mine").lock().await.unwrap();
        let held = holder.mutex("theirs").lock().await.unwrap();
        let (commands, outcome) = stage
            .commands(async {
                let wait = locks.mutex("theirs").wait(length).lock();
                if holds { guard.run(wait).await.unwrap() } else { wait.await }
            })
            .await;
        assert!(outcome.unwrap_err().is_busy());
        held.release().await.unwrap();
        guard.release().await.unwrap();
        commands
    };
    let plain = waits(&two, true, ms(2_200)).await;
    let nothing_held = waits(&one, false, ms(2_200)).await;
    assert!(nothing_held <= plain + 2, "{nothing_held} instead of {plain}");
    assert!(waits(&one, true, ms(400)).await <= waits(&two, true, ms(400)).await + 2);
    let detecting = waits(&one, true, ms(2_200)).await;
    // Four ticks, and what is loaded at the first.
    assert!(detecting > plain && detecting <= plain + 2 * 4 + 6, "{detecting} instead of {plain}");
}

/// Three tasks of one manager, each with a lock that another one asks for. Timed from the
/// moment at which all have their first lock, so the way to the store counts too. The middle one of many: this machine does other things.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_in_one_process_is_found_within_100_ms() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let mut took = Vec::new();
    for round in 0..15 {
        let ready = Arc::new(tokio::sync::Barrier::new(3));
        let mut tasks = tokio::task::JoinSet::new();
        for place in 0..3 {
            let (locks, ready) = (locks.clone(), ready.clone());
            tasks.spawn(async move {
                let key = |place: usize| format!("circle-{round}-{}", place % 3);
                let first = locks.mutex(key(place)).lock().await.unwrap();
                ready.wait().await;
                let started = tokio::time::Instant::now();
                let second = first.run(locks.mutex(key(place + 1)).wait(LIMIT).lock()).await.unwrap();
                (second.map(drop).map_err(|error| error.to_string()), started.elapsed())
            });
        }
        let outcomes = tasks.join_all().await;
        let found: Vec<_> =
            outcomes.iter().filter_map(|(outcome, took)| Some((outcome.as_ref().err()?, *took))).collect();
        assert_eq!(found.len(), 1, "one gives way, the others go on: {outcomes:?}");
        let (text, time) = found[0];
        for place in 0..3 {
            assert!(text.contains(&format!("circle-{round}-{place}")), "the whole circle is named: {text}");
        }
        took.push(time);
    }
    took.sort();
    println!("{took:?}");
    assert!(took[took.len() / 2] <= ms(100), "{took:?}");
}
