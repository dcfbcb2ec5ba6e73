//! Waist: waiting in the store's queue.

use tokio::time::Instant;

use super::Store;
use super::tools::{Client, eventually, fresh_key, in_time, listening, ms, queued_request, request, ttl};
use crate::backend::{AcquireRequest, Attempt, Blocked, Released};

/// Waiters are served in the order of their arrival, and a repeat keeps the place.
pub async fn waiters_are_served_in_order_and_repeats_keep_their_place(store: &impl Store) {
    let holder = Client::open(store, "holder").await;
    let clients = [Client::open(store, "one").await, Client::open(store, "two").await];
    for client in &clients {
        listening(client).await;
    }
    let key = fresh_key("order");
    let first = request(&key);
    holder.granted(&first).await;
    let mut last = (&holder, first);
    let waiting: Vec<AcquireRequest> = (0..6).map(|_| queued_request(&key)).collect();
    for (n, request) in waiting.iter().enumerate() {
        let blocked = clients[n % 2].queued(request).await;
        assert_eq!(blocked.holder.unwrap().label.as_deref(), Some("holder"));
    }
    for (n, request) in waiting.iter().enumerate().rev() {
        clients[n % 2].queued(request).await;
    }
    assert_eq!(holder.waiters(&key).await, 6);
    for (n, request) in waiting.iter().enumerate() {
        assert_eq!(last.0.release(&last.1.lease(), None).await.unwrap(), Released::Confirmed);
        for (m, behind) in waiting.iter().enumerate().skip(n + 1) {
            clients[m % 2].queued(behind).await;
        }
        clients[n % 2].granted(request).await;
        last = (&clients[n % 2], request.clone());
    }
    assert_eq!(holder.waiters(&key).await, 0);
}

/// A waiter is told of its turn; it doesn't have to find out by asking now and then.
pub async fn a_release_wakes_the_waiter(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    listening(&two).await;
    let mut took = Vec::new();
    for _ in 0..15 {
        let key = fresh_key("wake");
        let (held, waiter) = (request(&key), queued_request(&key));
        one.granted(&held).await;
        let blocked = two.queued(&waiter).await;
        let turn = two.turn(&waiter, &blocked);
        let release = async {
            tokio::task::yield_now().await;
            let start = Instant::now();
            one.release(&held.lease(), None).await.unwrap();
            start
        };
        let (_, start) = in_time("the turn", async { tokio::join!(turn, release) }).await;
        took.push(start.elapsed());
        two.wait_for(&waiter).await;
    }
    took.sort();
    assert!(took[took.len() / 2] < ms(100), "half of the wake-ups took longer: {took:?}");
}

/// A release between the blocked attempt and the wait isn't missed.
pub async fn a_release_before_the_wait_is_not_missed(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let mut took = Vec::new();
    for _ in 0..9 {
        let key = fresh_key("early");
        let (held, waiter) = (request(&key), queued_request(&key));
        one.granted(&held).await;
        two.queued(&waiter).await;
        one.release(&held.lease(), None).await.unwrap();
        let start = Instant::now();
        two.wait_for(&waiter).await;
        took.push(start.elapsed());
    }
    took.sort();
    assert!(took[took.len() / 2] < ms(100), "half of the waits took longer: {took:?}");
}

/// A wait ends when the holder's lease does, though nobody tells.
pub async fn a_lapsed_holder_is_noticed(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("lapsed");
    client.granted(&AcquireRequest { ttl: ttl(500), ..request(&key) }).await;
    let waiter = queued_request(&key);
    let start = Instant::now();
    client.wait_for(&waiter).await;
    assert!(start.elapsed() < ms(500) + ms(1_500), "noticed only after {:?}", start.elapsed());
}

/// Waiting is bounded, whatever the holder's lease is and whoever is in the way.
pub async fn every_wait_is_bounded(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("bounded");
    client.granted(&AcquireRequest { ttl: ttl(3_600_000), ..request(&key) }).await;
    let waiter = queued_request(&key);
    let blocked = client.queued(&waiter).await;
    in_time("a bounded wait", client.turn(&waiter, &blocked)).await.unwrap();
    in_time("a bounded wait", client.turn(&queued_request(&key), &Blocked::default())).await.unwrap();
}

/// A waiter that has gone silent (its process died) doesn't hold up those behind it for long.
pub async fn a_dead_waiter_loses_its_place(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("dead");
    let (held, dead, live) = (request(&key), queued_request(&key), queued_request(&key));
    two.granted(&held).await;
    one.queued(&dead).await;
    drop(one);
    two.queued(&live).await;
    two.release(&held.lease(), None).await.unwrap();
    let start = Instant::now();
    two.wait_for(&live).await;
    assert!(start.elapsed() < ms(12_000), "{:?}", start.elapsed());
    // And it may come back, with a new place.
    assert!(matches!(two.try_acquire(&dead).await.unwrap(), Attempt::Queued(_)));
}

/// A cancelled waiter leaves the queue, and the next one gets what was meant for it.
pub async fn a_cancelled_waiter_makes_room(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("leave");
    let held = request(&key);
    client.granted(&held).await;
    let (first, second, third) = (queued_request(&key), queued_request(&key), queued_request(&key));
    for waiter in [&first, &second, &third] {
        client.queued(waiter).await;
    }
    client.cancel(&first).await.unwrap();
    assert_eq!(client.waiters(&key).await, 2);
    client.release(&held.lease(), None).await.unwrap();
    // The lock is on its way to the second, who goes away just then.
    client.cancel(&second).await.unwrap();
    client.wait_for(&third).await;
    client.release(&third.lease(), None).await.unwrap();
    let clean = async || {
        let state = client.inspect(&key).await.unwrap();
        (state.holder.is_none() && state.waiters == 0).then_some(())
    };
    eventually("nothing is left", clean).await;
}

/// A waiter whose turn has come finds the lock its own, for the full ttl.
pub async fn a_lock_that_was_handed_on_has_its_full_ttl(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("full");
    let (held, waiter) = (request(&key), queued_request(&key));
    let first = one.granted(&held).await;
    two.queued(&waiter).await;
    one.release(&held.lease(), None).await.unwrap();
    let second = two.wait_for(&waiter).await;
    assert!(second.token > first.token);
    let holder = one.inspect(&key).await.unwrap().holder.unwrap();
    assert_eq!((holder.label.as_deref(), holder.owner), (Some("two"), Some(waiter.owner)));
    assert!(holder.remaining.unwrap() > ms(25_000), "{:?}", holder.remaining);
}
