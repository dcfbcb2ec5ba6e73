//! Waist: attempts.

use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use super::tools::{Client, eventually, fresh_key, in_time, ms, request, ttl};
use crate::backend::{AcquireRequest, Attempt, Capability, Released};
use crate::key::LockKey;

/// The first owner gets the lock; another is told who has it and for how long, and leaves nothing behind.
pub async fn first_owner_is_granted_and_the_next_is_told_who_holds(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("first");
    let grant = one.granted(&request(&key)).await;
    assert!(grant.tokens >= 1);
    let holder = two.busy(&request(&key)).await.holder.expect("a store knows its holders");
    assert_eq!(holder.label.as_deref(), Some("one"));
    let remaining = holder.remaining.expect("a lease ends");
    assert!(remaining > ms(15_000) && remaining <= ms(30_000), "{remaining:?}");
    assert_eq!(two.waiters(&key).await, 0);
}

/// A repeat by the same owner is granted again, with the lease at its full length and a token that isn't smaller.
pub async fn a_repeated_attempt_is_granted_again(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("repeat");
    let first = AcquireRequest { ttl: ttl(2_000), ..request(&key) };
    let grant = client.granted(&first).await;
    eventually("a part of the lease to pass", async || {
        let left = client.inspect(&key).await.unwrap().holder?.remaining?;
        (left < ms(1_700)).then_some(())
    })
    .await;
    let again = client.granted(&first).await;
    assert!(again.token >= grant.token && again.sent >= grant.sent);
    let left = client.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
    assert!(left > ms(1_700), "the repeat must bring the full length, {left:?} left");
    assert_eq!(client.release(&first.lease(), None).await.unwrap(), Released::Confirmed);
    assert!(client.is_free(&key).await, "one release ends it, however often it was asked for");
}

/// A lock that was released can be had again, by the same client and by others.
pub async fn a_released_lock_can_be_had_again(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("again");
    for client in [&one, &two, &two, &one] {
        let request = request(&key);
        client.granted(&request).await;
        assert_eq!(client.release(&request.lease(), None).await.unwrap(), Released::Confirmed);
        assert!(one.is_free(&key).await);
    }
}

/// A lease that isn't renewed lapses, and never early.
pub async fn a_lease_lapses_after_its_ttl_and_never_early(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    for length in [100, 150, 400] {
        let key = fresh_key("lapse");
        let start = Instant::now();
        one.granted(&AcquireRequest { ttl: ttl(length), ..request(&key) }).await;
        let rival = request(&key);
        in_time("the lease to lapse", async {
            while !matches!(two.try_acquire(&rival).await.unwrap(), Attempt::Granted(_)) {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        })
        .await;
        let after = start.elapsed();
        assert!(after >= ms(length), "a lease of {length} ms was over after {after:?}");
    }
}

/// Of many that ask at once, one is granted; where votes are counted they may be split, and none is.
pub async fn of_many_at_once_one_is_granted(store: &impl Store) {
    let clients = [Client::open(store, "one").await, Client::open(store, "two").await];
    for _ in 0..10 {
        let key = fresh_key("race");
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..40 {
            let (backend, request) = (clients[n % 2].shared(), request(&key));
            tasks.spawn(async move { backend.try_acquire(&request).await.unwrap() });
        }
        let outcomes = tasks.join_all().await;
        let granted = outcomes.iter().filter(|outcome| matches!(outcome, Attempt::Granted(_))).count();
        let split = granted == 0 && !clients[0].guarantees().can(Capability::Queue);
        assert!(granted == 1 || split, "{outcomes:?}");
    }
}

/// Locks of different names have nothing to do with each other, however alike the names are.
pub async fn locks_of_different_names_are_independent(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let stem = format!("name-{:016x}", fastrand::u64(..));
    let endings =
        ["", ":", ":x", "*", "?", "[a]", "{", "}", "{}", "{a}", "\u{e9}", "e\u{301}", "\\", " ", "%", "~"];
    for ending in endings {
        let key = LockKey::new(format!("{stem}{ending}")).unwrap();
        client.granted(&request(&key)).await;
    }
    for ending in endings {
        let key = LockKey::new(format!("{stem}{ending}")).unwrap();
        client.busy(&request(&key)).await;
        assert!(client.force_release(&key).await.unwrap().is_some());
        client.granted(&request(&key)).await;
    }
}

/// An undone attempt is gone, and undoing what never was, or twice, is no error.
pub async fn a_cancelled_attempt_leaves_nothing(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("cancel");
    let request = request(&key);
    one.granted(&request).await;
    one.cancel(&request).await.unwrap();
    assert!(one.is_free(&key).await);
    one.cancel(&request).await.unwrap();
    let next = super::tools::request(&key);
    two.granted(&next).await;
    one.cancel(&request).await.unwrap();
    one.cancel(&super::tools::request(&key)).await.unwrap();
    let holder = two.inspect(&key).await.unwrap().holder.unwrap();
    assert_eq!(holder.owner, Some(next.owner), "a cancel never touches another's lock");
}

/// The first attempt, stuck on a dying connection, may arrive after its cancel: it must not take the lock then.
pub async fn an_attempt_that_arrives_after_its_cancel_is_harmless(store: &impl Store) {
    if !store.calls_outlive_their_futures() {
        return;
    }
    let client = Client::open(store, "one").await;
    for queue in [false, true] {
        let key = fresh_key("ghost");
        let request = AcquireRequest { queue, ..request(&key) };
        client.cancel(&request).await.unwrap();
        for _ in 0..3 {
            let late = client.try_acquire(&request).await;
            match late {
                Ok(Attempt::Granted(_) | Attempt::Queued(_)) => panic!("a ghost: {late:?}"),
                Ok(Attempt::Busy(_)) => {}
                // A task that was overtaken asks for the key anew.
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
        }
        let state = client.inspect(&key).await.unwrap();
        assert!(state.holder.is_none() && state.waiters == 0, "a ghost: {state:?}");
    }
}

/// What isn't a lock under a lock's name is reported and left alone.
pub async fn a_foreign_value_is_reported_and_left_alone(store: &impl Store) {
    use crate::backend::BackendErrorKind::KeyConflict;
    let client = Client::open(store, "one").await;
    let key = fresh_key("foreign");
    if !store.put_foreign_value(&key).await {
        return;
    }
    let before = store.foreign_value(&key).await;
    let attempt = request(&key);
    assert_eq!(client.try_acquire(&attempt).await.unwrap_err().kind(), KeyConflict);
    let queued = super::tools::queued_request(&key);
    assert_eq!(client.try_acquire(&queued).await.unwrap_err().kind(), KeyConflict);
    assert_eq!(client.force_release(&key).await.unwrap_err().kind(), KeyConflict);
    let _ = client.renew(&[attempt.lease()]).await;
    let _ = client.release(&attempt.lease(), None).await;
    let _ = client.cancel(&attempt).await;
    assert_eq!(store.foreign_value(&key).await, before);
}
