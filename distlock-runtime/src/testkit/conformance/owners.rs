//! Locks of explicit owners.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use super::Store;
use super::tools::{
    Client, eventually, free, fresh_key, in_time, listening, manager, ms, request, ttl, waiters,
};
use crate::backend::{AcquireRequest, Attempt, BackendErrorKind, Mode, Released, Renewal};
use crate::error::ErrorKind;
use crate::key::LockKey;
use crate::token::OwnerId;

const LONG: Duration = Duration::from_secs(15);

fn owned(key: &LockKey, owner: &str) -> AcquireRequest {
    AcquireRequest { mode: Mode::Owned { owner: OwnerId::new(owner).unwrap() }, ..request(key) }
}

fn waiting(key: &LockKey, owner: &str) -> AcquireRequest {
    AcquireRequest { queue: true, ..owned(key, owner) }
}

async fn holds(client: &Client, key: &LockKey) -> u32 {
    client.inspect(key).await.unwrap().holder.and_then(|holder| holder.hold_count).unwrap_or(0)
}

/// Waist: an owner enters again from another client, under the same token; another owner has the lock when the last hold is
/// gone, under a larger one.
pub async fn an_owner_enters_again_from_elsewhere(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("owner");
    let (first, second, rival) = (owned(&key, "x"), owned(&key, "x"), owned(&key, "y"));
    let grant = one.granted(&first).await;
    assert_eq!(two.granted(&second).await.token, grant.token, "one token for all holds");
    assert_eq!(holds(&one, &key).await, 2);
    let blocked = two.busy(&rival).await;
    assert!(blocked.holder.is_some());
    let plain = two.try_acquire(&request(&key)).await.unwrap_err();
    assert_eq!(plain.kind(), BackendErrorKind::KeyConflict);
    assert_eq!(one.release(&first.lease(), None).await.unwrap(), Released::Confirmed);
    two.busy(&rival).await;
    assert_eq!(two.release(&second.lease(), None).await.unwrap(), Released::Confirmed);
    let next = two.granted(&rival).await;
    assert!(next.token > grant.token);
    two.release(&rival.lease(), None).await.unwrap();
    let again = one.granted(&first).await;
    assert!(again.token > next.token, "what begins anew has a token of its own");
    one.release(&first.lease(), None).await.unwrap();
    assert!(one.is_free(&key).await);
    one.granted(&request(&key)).await;
}

/// Waist: the owner that has the lock doesn't wait behind those who wait for it.
pub async fn an_owner_passes_those_who_wait_and_nobody_else_does(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("pass");
    let (first, second) = (owned(&key, "x"), owned(&key, "x"));
    let (rival, third) = (waiting(&key, "y"), owned(&key, "z"));
    client.granted(&first).await;
    client.queued(&rival).await;
    client.granted(&second).await;
    client.busy(&third).await;
    client.release(&first.lease(), None).await.unwrap();
    client.release(&second.lease(), None).await.unwrap();
    client.busy(&third).await;
    client.busy(&owned(&key, "x")).await;
    let grant = client.wait_for(&rival).await;
    assert_eq!(client.granted(&owned(&key, "y")).await.token, grant.token);
}

/// Waist: commands that are sent again, or arrive late, neither add a hold nor take one away.
pub async fn repeated_commands_count_once(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("repeat");
    let (first, second) = (owned(&key, "x"), owned(&key, "x"));
    let token = client.granted(&first).await.token;
    client.granted(&second).await;
    for _ in 0..3 {
        assert_eq!(client.granted(&first).await.token, token);
        let renewed = client.renew(&[first.lease(), second.lease()]).await;
        assert!(renewed.iter().all(|renewal| matches!(renewal, Renewal::Renewed { .. })));
    }
    assert_eq!(holds(&client, &key).await, 2);
    assert_eq!(client.release(&first.lease(), None).await.unwrap(), Released::Confirmed);
    for _ in 0..3 {
        assert_eq!(client.release(&first.lease(), None).await.unwrap(), Released::NotHeld);
        client.cancel(&first).await.unwrap();
        assert!(matches!(client.renew(&[first.lease()]).await[..], [Renewal::Gone]));
    }
    assert_eq!(holds(&client, &key).await, 1, "the other hold is untouched");
    if store.calls_outlive_their_futures() {
        // An acquisition that arrives after its cancel.
        client.try_acquire(&first).await.unwrap_err();
        assert_eq!(holds(&client, &key).await, 1);
    }
    client.cancel(&second).await.unwrap();
    assert!(client.is_free(&key).await);
}

/// A process that dies takes its own holds along, in its own time, and no others.
pub async fn a_hold_of_an_owner_lapses_alone(store: &impl Store) {
    let (client, locks) = (Client::open(store, "dead").await, manager(store, "one").await);
    let key = fresh_key("lapse");
    client.granted(&AcquireRequest { ttl: ttl(500), ..owned(&key, "x") }).await;
    let alive = locks.mutex(&key).owner("x").ttl(ms(700)).lock().await.unwrap();
    let waiter = tokio::spawn(locks.mutex(&key).owner("y").wait(LONG).lock());
    waiters(&locks, &key, 1).await;
    eventually("the dead hold to lapse", async || (holds(&client, &key).await == 1).then_some(())).await;
    // The other is renewed beyond its ttl.
    tokio::time::sleep(ms(1_000)).await;
    assert!(alive.is_valid() && !waiter.is_finished());
    alive.release().await.unwrap();
    drop(in_time("the next owner", waiter).await.unwrap().unwrap());
    free(&locks, &key).await;
}

/// When the turn comes to an owner, all who wait under it come in, also those behind others.
pub async fn waiters_of_one_owner_come_in_together(store: &impl Store) {
    let managers = [manager(store, "one").await, manager(store, "two").await];
    let (client, key) = (Client::open(store, "listen").await, fresh_key("together"));
    listening(&client).await;
    let first = managers[0].mutex(&key).owner("z").lock().await.unwrap();
    let mut waiting = Vec::new();
    for (number, owner) in ["x", "y", "x"].into_iter().enumerate() {
        let lock = managers[number % 2].mutex(&key).owner(owner).wait(LONG);
        waiting.push(tokio::spawn(lock.lock()));
        waiters(&managers[0], &key, number as u64 + 1).await;
    }
    first.release().await.unwrap();
    let third =
        in_time("the same owner at the end of the line", waiting.pop().unwrap()).await.unwrap().unwrap();
    let second = waiting.pop().unwrap();
    let first = in_time("the head", waiting.pop().unwrap()).await.unwrap().unwrap();
    assert_eq!(first.fencing_token(), third.fencing_token());
    assert!(!second.is_finished());
    first.release().await.unwrap();
    third.release().await.unwrap();
    let second = in_time("the other owner", second).await.unwrap().unwrap();
    second.release().await.unwrap();
    free(&managers[0], &key).await;
}

/// Under a lock in a scope, the same owner shares the hold and another one is told that it would wait for itself.
pub async fn owners_know_their_own_holds(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("scope");
    let guard = one.mutex(&key).owner("x").lock().await.unwrap();
    let (same, other, elsewhere) = guard
        .run(async {
            (
                one.mutex(&key).owner("x").lock().await.unwrap(),
                one.mutex(&key).owner("y").lock().await.unwrap_err(),
                two.mutex(&key).owner("x").lock().await.unwrap(),
            )
        })
        .await
        .unwrap();
    assert_eq!((same.hold_count(), guard.hold_count()), (2, 2));
    assert_eq!(other.kind(), ErrorKind::Deadlock, "{other}");
    assert_eq!(elsewhere.fencing_token(), guard.fencing_token());
    drop((same, guard));
    let state = eventually("one hold to be left", async || {
        let state = one.inspect(&key).await.unwrap();
        (state.holder.as_ref()?.hold_count == Some(1)).then_some(state)
    });
    assert_eq!(state.await.holder.unwrap().label.as_deref(), Some("two"));
    assert!(elsewhere.is_valid());
    drop(elsewhere);
    free(&one, &key).await;
    for id in [String::new(), "x".repeat(300)] {
        let error = one.mutex(&key).owner(id).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    }
}

/// What is taken by force is taken from all holds of the owner, and they learn of it.
pub async fn an_owners_holds_are_taken_by_force(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("force");
    let mine = one.mutex(&key).owner("x").lock().await.unwrap();
    let theirs = two.mutex(&key).owner("x").ttl(ms(900)).lock().await.unwrap();
    let waiter = tokio::spawn(two.mutex(&key).owner("y").wait(LONG).lock());
    waiters(&one, &key, 1).await;
    let taken = one.force_release(&key, "a test").await.unwrap().unwrap();
    assert!(taken.label.is_some());
    let next = in_time("the next owner", waiter).await.unwrap().unwrap();
    // At once in the process that took it, else at the next renewal.
    let lost = in_time("the loss here", mine.lost()).await;
    assert_eq!((lost.kind(), lost.key()), (ErrorKind::Lost, Some(&key)));
    in_time("the loss there", theirs.lost()).await;
    assert!(next.is_valid() && next.fencing_token() > mine.fencing_token());
    drop((mine, theirs));
    assert!(matches!(
        Client::open(store, "three").await.try_acquire(&owned(&key, "x")).await.unwrap(),
        Attempt::Busy(_)
    ));
}

/// A hold that is dropped at any poll is no hold, whether it would enter, wait or be the first.
pub async fn an_owners_hold_dropped_at_every_poll_leaves_nothing(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let key = fresh_key("dropped-owner");
    for holder in [None, Some("x"), Some("y")] {
        for polls in 1..10 {
            let held = match holder {
                Some(owner) => Some(two.mutex(&key).owner(owner).lock().await.unwrap()),
                None => None,
            };
            let mut call = Box::pin(one.mutex(&key).owner("x").wait(ms(200)).lock());
            let mut left = polls;
            let outcome = poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                call.as_mut().poll(cx).map(Some)
            })
            .await;
            drop((call, outcome));
            if let Some(held) = held {
                eventually("the holder's own hold alone", async || {
                    let state = two.inspect(&key).await.unwrap();
                    (state.waiters == 0 && state.holder?.hold_count == Some(1)).then_some(())
                })
                .await;
                held.release().await.unwrap();
            }
            free(&two, &key).await;
        }
    }
    assert_eq!(one.held(), 0);
}
