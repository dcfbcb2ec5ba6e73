//! Count-down latches.

use std::time::{Duration, Instant};

use distlock_tests::{proxy::Mode, wait};

use crate::{LIMIT, Stage, ms};

/// Those who have waited for long ask once a second: who is woken sooner was told.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "measures how long it takes to be told")]
async fn those_who_wait_are_told() {
    let stage = Stage::start();
    let (one, two) = (stage.locks().await, stage.locks().await);
    let mut took = Vec::new();
    for round in 0..5 {
        let key = format!("told:{round}");
        let latch = one.latch(&key, 2).within(LIMIT);
        let waiting = tokio::spawn(async move {
            latch.wait().await.unwrap();
            Instant::now()
        });
        // Past the first pauses, which grow to a second.
        tokio::time::sleep(ms(900)).await;
        let before = stage.proxy.log().count("EVALSHA");
        two.latch(&key, 2).count_down().await.unwrap();
        let counted = Instant::now();
        two.latch(&key, 2).count_down().await.unwrap();
        took.push(waiting.await.unwrap().duration_since(counted));
        assert!(stage.proxy.log().count("EVALSHA") - before <= 6, "asked too often");
    }
    took.sort();
    assert!(took[2] < ms(100), "{took:?}");
}

/// Applied and its reply lost: it is sent again under the same token.
#[tokio::test]
async fn a_count_whose_reply_is_lost_counts_once() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let latch = locks.latch("lost", 5).within(LIMIT);
    latch.count_down().await.unwrap();
    stage.proxy.set_mode(Mode::LoseReplies).unwrap();
    let counting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.count_down_by(2).await }
    });
    let mut admin = stage.server.admin().await.unwrap();
    let left = async || {
        let left: u32 =
            redis::cmd("HGET").arg("distlock:lost").arg("c").query_async(&mut admin).await.unwrap();
        (left == 2).then_some(())
    };
    wait::until("the count to be applied", LIMIT, left).await.unwrap();
    stage.proxy.set_mode(Mode::Pass).unwrap();
    assert_eq!(counting.await.unwrap().unwrap(), 2);
    assert_eq!(latch.count().await.unwrap(), 2);
}

#[tokio::test]
async fn every_key_has_a_ttl_at_all_times() {
    let stage = Stage::start();
    let (one, two) = (stage.locks().await, stage.locks().await);
    let work = async {
        for round in 0..10 {
            let key = format!("round:{round}");
            let latch = one.latch(&key, 8).retain(Duration::from_secs(2)).within(LIMIT);
            let counts = (0..8).map(|number: usize| {
                let latch = if number.is_multiple_of(2) { &one } else { &two }.latch(&key, 8);
                let latch = latch.retain(Duration::from_secs(2));
                async move { latch.count_down().await.unwrap() }
            });
            tokio::join!(latch.wait(), futures_util::future::join_all(counts)).0.unwrap();
        }
    };
    tokio::select! {
        () = work => {}
        () = stage.sampled() => {}
    }
    stage.nothing_stays().await;
}

#[tokio::test]
async fn a_count_costs_a_script() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let warm = locks.latch("warm", 1);
    warm.count_down().await.unwrap();
    warm.wait().await.unwrap();
    let latch = locks.latch("cost", 3);
    assert_eq!(stage.commands(latch.count()).await.0, 1);
    assert_eq!(stage.commands(latch.count_down()).await.0, 1);
    assert_eq!(stage.commands(latch.count_down_by(2)).await.0, 1);
    let (commands, outcome) = stage.commands(latch.wait()).await;
    outcome.unwrap();
    assert_eq!(commands, 1);
}

/// A server that stands still holds a count up for the time that it was given, and no longer.
#[tokio::test]
async fn fault_a_count_keeps_its_budget_on_a_server_that_stands_still() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let latch = locks.latch("still", 2).within(ms(700));
    latch.count_down().await.unwrap();
    stage.server.pause().unwrap();
    for counts in [true, false] {
        let start = tokio::time::Instant::now();
        let outcome = if counts { latch.count_down().await } else { latch.count().await };
        let took = start.elapsed();
        assert_eq!(outcome.unwrap_err().code(), "CONNECTION");
        assert!(took < ms(1_500), "{took:?}");
    }
    stage.server.resume().unwrap();
}
