//! A release hands on, in order, and tells by push.

use std::{sync::Arc, time::Duration};

use distlock_runtime::backend::Backend;
use distlock_tests::wait;

use super::only_counters;
use super::redis_backend::*;

#[tokio::test]
async fn release_hands_on_in_order_of_arrival() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let (first, second) = (bench.other(), bench.other());
    let serving = [Serving::start(&first), Serving::start(&second)];
    listening(&bench, &first).await;
    listening(&bench, &second).await;
    let (one, two) = (waiting("k", 30_000), waiting("k", 30_000));
    queued(&first, &one).await;
    queued(&second, &two).await;
    queued(&first, &one).await;
    assert_eq!(bench.backend.inspect(&one.key).await.unwrap().waiters, 2, "a repeat keeps its one place");

    bench.backend.release(&lease, None).await.unwrap();
    let value: String = bench.ask("GET distlock:k").await;
    assert!(value.starts_with(&one.owner.to_hex()), "the lock is the first waiter's already");
    assert!(bench.ask::<i64>("PTTL distlock:k").await <= 3_000, "only for a short claim");
    // Without waiting for any pause: the message came before.
    let blocked = queued(&second, &two).await;
    assert!(blocked.holder.is_some());
    let grant = acquired(&first, &one).await;
    assert!(bench.ask::<i64>("PTTL distlock:k").await > 29_000, "the full ttl once it has answered");
    first.release(&one.lease(), None).await.unwrap();
    let next = acquired(&second, &two).await;
    assert!(next.token > grant.token);
    second.release(&two.lease(), None).await.unwrap();
    assert_eq!(only_counters(&bench).await, Vec::<String>::new());
    drop(serving);
}

#[tokio::test]
async fn a_waiter_is_woken_by_push() {
    let bench = Bench::start().await;
    let waiter = bench.other();
    let _serving = Serving::start(&waiter);
    listening(&bench, &waiter).await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
        let request = waiting("k", 30_000);
        let blocked = queued(&waiter, &request).await;
        let turn = tokio::spawn({
            let (waiter, request) = (Arc::clone(&waiter), request.clone());
            async move { waiter.turn(&request, &blocked).await }
        });
        let released = tokio::time::Instant::now();
        bench.backend.release(&lease, None).await.unwrap();
        turn.await.unwrap().unwrap();
        granted(&waiter, &request).await;
        took.push(released.elapsed());
        waiter.release(&request.lease(), None).await.unwrap();
    }
    took.sort();
    // The shortest pause without a push is 200 ms; a busy machine may hold up the odd one.
    assert!(took[took.len() / 2] < Duration::from_millis(150), "{took:?}");
}

#[tokio::test]
async fn dead_waiters_cost_no_time() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    // Alive by their window, but nobody listens to their channel any more: skipped at the release.
    for _ in 0..5 {
        let dead = bench.other();
        let serving = Serving::start(&dead);
        listening(&bench, &dead).await;
        queued(&dead, &waiting("k", 30_000)).await;
        drop(serving);
        drop(dead);
        nobody_subscribed(&bench).await;
    }
    let alive = bench.other();
    let _serving = Serving::start(&alive);
    listening(&bench, &alive).await;
    let request = waiting("k", 30_000);
    let blocked = queued(&alive, &request).await;
    bench.backend.release(&lease, None).await.unwrap();
    let started = tokio::time::Instant::now();
    alive.turn(&request, &blocked).await.unwrap();
    granted(&alive, &request).await;
    // Each of the dead would cost the time of a claim, 3 s.
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    // Past their window they are removed by whoever comes.
    let waiters = bench.ask::<Vec<String>>("KEYS distlock!*!w:distlock:k").await.remove(0);
    for owner in bench.ask::<Vec<String>>(&format!("HKEYS {waiters}")).await {
        let entry: String = bench.ask(&format!("HGET {waiters} {owner}")).await;
        let lapsed = entry.split_once(' ').unwrap().1.replace(' ', "\u{1}");
        let mut command = redis::cmd("HSET");
        command.arg(&waiters).arg(owner).arg(format!("1 {}", lapsed.replace('\u{1}', " ")));
        command.exec_async(&mut bench.admin.clone()).await.unwrap();
    }
    assert_eq!(bench.backend.inspect(&request.key).await.unwrap().waiters, 0);
    queued(&bench.other(), &waiting("k", 30_000)).await;
    assert_eq!(bench.ask::<i64>(&format!("HLEN {waiters}")).await, 1);
}

async fn nobody_subscribed(bench: &Bench) {
    wait::until("the end of the subscription", LIMIT, async || {
        bench.ask::<Vec<String>>("PUBSUB CHANNELS distlock!c:*").await.is_empty().then_some(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn without_anybody_to_tell_the_lock_is_left_free() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let request = waiting("k", 30_000);
    let polling = bench.other();
    queued(&polling, &request).await;
    bench.backend.release(&lease, None).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
    acquired(&polling, &request).await;
    assert_eq!(bench.backend.inspect(&request.key).await.unwrap().waiters, 0, "and out of the queue");
}

#[tokio::test]
async fn a_cancelled_invitation_goes_to_the_next() {
    let bench = Bench::start().await;
    let (_, lease, _) = held(&bench.backend, "k", 30_000).await;
    let (first, second) = (bench.other(), bench.other());
    let _serving = [Serving::start(&first), Serving::start(&second)];
    listening(&bench, &first).await;
    listening(&bench, &second).await;
    let (one, two) = (waiting("k", 30_000), waiting("k", 30_000));
    queued(&first, &one).await;
    queued(&second, &two).await;
    bench.backend.release(&lease, None).await.unwrap();
    first.cancel(&one).await.unwrap();
    let value: String = bench.ask("GET distlock:k").await;
    assert!(value.starts_with(&two.owner.to_hex()));
    // One that waits and cancels leaves the queue.
    let three = waiting("k", 30_000);
    queued(&first, &three).await;
    first.cancel(&three).await.unwrap();
    granted(&second, &two).await;
    second.release(&two.lease(), None).await.unwrap();
    assert_eq!(bench.ask::<i64>("EXISTS distlock:k").await, 0);
}

#[tokio::test]
async fn a_full_queue_is_busy_without_a_place() {
    let bench = Bench::start().await;
    let (_, _, _) = held(&bench.backend, "k", 30_000).await;
    let first = waiting("k", 30_000);
    queued(&bench.backend, &first).await;
    let queue = bench.ask::<Vec<String>>("KEYS distlock!*!q:distlock:k").await.remove(0);
    let mut fill = redis::cmd("ZADD");
    fill.arg(&queue);
    for number in 0..9_999 {
        fill.arg(10 + number).arg(format!("filler{number}"));
    }
    fill.exec_async(&mut bench.admin.clone()).await.unwrap();
    busy(&bench.backend, &waiting("k", 30_000)).await;
    queued(&bench.backend, &first).await;
}
