//! Several exclusive locks at once.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use super::tools::{Client, eventually, free, fresh_key, in_time, lock, manager, ms, request, waiters};
use crate::backend::{AcquireRequest, Attempt, AttemptAll, Grant, Released};
use crate::error::ErrorKind;
use crate::key::LockKey;

fn fresh_keys(name: &str) -> Vec<LockKey> {
    let mut keys: Vec<_> = (0..3).map(|_| fresh_key(name)).collect();
    keys.sort();
    keys
}

fn granted(outcome: &AttemptAll) -> &[Grant] {
    match outcome {
        AttemptAll::Granted(grants) => grants,
        other => panic!("not granted but {other:?}"),
    }
}

/// Waist: a store that takes several locks in one step takes all of them or none, and a repeat is granted again. Others say
/// that they can't, and have done nothing.
pub async fn several_are_taken_in_one_step_or_none(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let keys = fresh_keys("step");
    let requests: Vec<AcquireRequest> = keys.iter().map(request).collect();
    let first = client.try_acquire_all(&requests).await.unwrap();
    if matches!(first, AttemptAll::Apart) {
        for key in &keys {
            assert!(client.is_free(key).await, "nothing was tried");
        }
        return;
    }
    let first = granted(&first).to_vec();
    assert_eq!(first.len(), keys.len());
    let again = client.try_acquire_all(&requests).await.unwrap();
    for (grant, repeat) in first.iter().zip(granted(&again)) {
        assert!(repeat.token >= grant.token && repeat.sent >= grant.sent);
    }
    for request in &requests {
        assert!(!client.is_free(&request.key).await);
        assert_eq!(client.release(&request.lease(), None).await.unwrap(), Released::Confirmed);
    }
    // One that is held: none is taken, and the answer says which is in the way and by whom.
    let rival = request(&keys[1]);
    let between = client.granted(&rival).await;
    assert!(between.token > first[1].token);
    let others: Vec<AcquireRequest> = keys.iter().map(request).collect();
    match client.try_acquire_all(&others).await.unwrap() {
        AttemptAll::Busy { index, blocked } => {
            assert_eq!(index, 1);
            assert_eq!(blocked.holder.unwrap().label.as_deref(), Some("one"));
        }
        other => panic!("not busy but {other:?}"),
    }
    assert!(client.is_free(&keys[0]).await && client.is_free(&keys[2]).await, "none was taken");
    client.release(&rival.lease(), None).await.unwrap();
    // One whose attempt was cancelled before it arrived: the others aren't taken either.
    if store.calls_outlive_their_futures() {
        client.cancel(&others[2]).await.unwrap();
        client.try_acquire_all(&others).await.unwrap_err();
        assert!(client.is_free(&keys[0]).await && client.is_free(&keys[1]).await);
    }
    let last: Vec<AcquireRequest> = keys.iter().map(request).collect();
    let outcome = client.try_acquire_all(&last).await.unwrap();
    assert!(granted(&outcome).iter().zip(&first).all(|(grant, first)| grant.token > first.token));
    assert!(matches!(client.try_acquire(&request(&keys[0])).await.unwrap(), Attempt::Busy(_)));
    for request in &last {
        client.cancel(request).await.unwrap();
        assert!(client.is_free(&request.key).await);
    }
}

/// The wait budget is for all together, the error names the one that couldn't be had, and nothing stays.
pub async fn several_wait_together_within_one_budget(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let keys = fresh_keys("budget");
    let held = [lock(&two, &keys[1]).await, lock(&two, &keys[2]).await];
    let waiting = tokio::spawn(one.mutex_all(&keys).wait(Duration::from_secs(15)).lock());
    waiters(&two, &keys[1], 1).await;
    let [first, second] = held;
    first.release().await.unwrap();
    waiters(&two, &keys[2], 1).await;
    assert!(!waiting.is_finished());
    // Tasks of the holder's process may still wait for what is held meanwhile.
    let behind = tokio::spawn(two.mutex(&keys[0]).wait(Duration::from_secs(15)).lock());
    second.release().await.unwrap();
    let all = in_time("all of them", waiting).await.unwrap().unwrap();
    assert_eq!(all.guards().iter().map(|guard| guard.key().clone()).collect::<Vec<_>>(), keys);
    all.release().await.unwrap();
    drop(in_time("who waited behind", behind).await.unwrap().unwrap());

    let held = [lock(&two, &keys[0]).await, lock(&two, &keys[2]).await];
    let start = Instant::now();
    let release = async {
        tokio::time::sleep(ms(200)).await;
        let [first, second] = held;
        first.release().await.unwrap();
        second
    };
    let (second, outcome) = tokio::join!(release, one.mutex_all(&keys).wait(ms(500)).lock());
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(error.key(), Some(&keys[2]));
    let waited = start.elapsed();
    assert!(waited >= ms(490) && waited < Duration::from_secs(5), "{waited:?}");
    free(&two, &keys[0]).await;
    free(&two, &keys[1]).await;
    second.release().await.unwrap();
}

/// A call for several that is dropped at any poll leaves none of them, free or held.
pub async fn several_dropped_at_every_poll_leave_nothing(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let keys = fresh_keys("dropped");
    for held in [None, Some(0), Some(1), Some(2)] {
        for polls in 1..10 {
            let holder = match held {
                Some(index) => Some(lock(&two, &keys[index]).await),
                None => None,
            };
            let mut call = Box::pin(one.mutex_all(&keys).wait(ms(300)).lock());
            let mut left = polls;
            let outcome = poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                call.as_mut().poll(cx).map(Some)
            })
            .await;
            drop((call, outcome, holder));
            for key in &keys {
                free(&two, key).await;
                eventually("no waiter", async || {
                    (two.inspect(key).await.unwrap().waiters == 0).then_some(())
                })
                .await;
            }
        }
    }
    assert_eq!(one.held(), 0);
}

/// Each lock keeps its own token and lease: one that is taken away is lost, the others are given back.
pub async fn several_are_held_and_released_like_single_ones(store: &impl Store) {
    let (one, two) = (manager(store, "one").await, manager(store, "two").await);
    let keys = fresh_keys("held");
    let before = lock(&two, &keys[0]).await;
    let token = before.fencing_token();
    before.release().await.unwrap();
    let all = one.mutex_all(&keys).ttl(ms(900)).lock().await.unwrap();
    assert!(all.fencing_token(&keys[0]).unwrap() > token);
    assert_eq!(all.fencing_token(keys[0].as_str()), all.fencing_token(&keys[0]), "as text too");
    assert_eq!(all.fencing_token("another"), None);
    let each: Vec<_> = all.fencing_tokens().collect();
    let of_guards: Vec<_> = all.guards().iter().map(|guard| (guard.key(), guard.fencing_token())).collect();
    assert_eq!(each, of_guards);
    // Renewed past their ttl.
    tokio::time::sleep(ms(1_500)).await;
    all.check().unwrap();
    // Under them, one may be entered again, and the rest of a larger set is taken beside it.
    let mut more = keys.clone();
    more.push(fresh_key("more"));
    let inner = all.run(one.mutex_all(&more).ttl(ms(900)).reentrant().lock()).await.unwrap().unwrap();
    assert_eq!(inner.fencing_token(&keys[1]), all.fencing_token(&keys[1]));
    assert_eq!(inner.guards().len(), 4);
    drop(inner);
    free(&two, &more[3]).await;
    let error = all.run(one.mutex_all(&more).lock()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
    assert!(two.mutex(&more[3]).try_lock().await.is_ok(), "nothing was taken");
    all.check().unwrap();
    two.force_release(&keys[1], "a test").await.unwrap();
    let lost = in_time("the loss", all.lost()).await;
    assert_eq!(lost.key(), Some(&keys[1]));
    assert_eq!(all.release().await.unwrap_err().kind(), ErrorKind::NotHeld);
    for key in &keys {
        free(&two, key).await;
    }
}
