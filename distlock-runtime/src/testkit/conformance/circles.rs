//! Circles of waiting tasks over processes.

use std::time::Duration;

use super::Store;
use super::tools::{Client, eventually, free, fresh_key, in_time, ms, request, waiters};
use crate::backend::{AcquireRequest, HolderWait, Mode, PublishedWait};
use crate::error::ErrorKind;
use crate::key::LockKey;
use crate::manager::LockManager;
use crate::token::{OwnerId, OwnerToken};

const LONG: Duration = Duration::from_secs(18);

/// A manager that looks for circles over processes.
async fn detecting(store: &impl Store, label: &str) -> LockManager {
    let builder = LockManager::builder().label(label).detect_circles();
    builder.backend(store.backend(label).await).await.unwrap()
}

/// Waist: a wait is seen by who asks for a lock that is held meanwhile: of any kind, for as long as it is held by that very
/// acquisition, and until it is withdrawn or not said again.
pub async fn waits_of_holders_are_seen_while_they_hold_and_wait(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let (here, there) = (one.shared().waits().unwrap(), two.shared().waits().unwrap());
    let owned = Mode::Owned { owner: OwnerId::new("x").unwrap() };
    for mode in [Mode::Exclusive, Mode::Read, owned] {
        let (key, wanted) = (fresh_key("held"), fresh_key("wanted"));
        let hold = AcquireRequest { mode, ..request(&key) };
        let id = OwnerToken::random().unwrap();
        let wait = PublishedWait {
            id,
            beat: 1,
            key: wanted.clone(),
            under: vec![hold.lease()],
            who: "one/1".into(),
        };
        here.publish(&wait).await.unwrap();
        assert!(there.waits_of_holders(&key).await.unwrap().is_empty(), "it doesn't hold it yet");
        one.granted(&hold).await;
        let expected = HolderWait { id, beat: 1, owner: hold.owner, key: wanted, who: "one/1".into() };
        assert_eq!(there.waits_of_holders(&key).await.unwrap(), std::slice::from_ref(&expected));
        let later = PublishedWait { beat: 2, ..wait.clone() };
        here.publish(&later).await.unwrap();
        assert_eq!(there.waits_of_holders(&key).await.unwrap(), [HolderWait { beat: 2, ..expected }]);
        here.withdraw(&wait).await.unwrap();
        assert!(there.waits_of_holders(&key).await.unwrap().is_empty());
        here.publish(&later).await.unwrap();
        one.release(&hold.lease(), None).await.unwrap();
        assert!(there.waits_of_holders(&key).await.unwrap().is_empty(), "it doesn't hold it any more");
        let again = AcquireRequest { mode, ..request(&key) };
        one.granted(&again).await;
        assert!(there.waits_of_holders(&key).await.unwrap().is_empty(), "another acquisition does");
    }
    let (key, hold) = (fresh_key("silent"), OwnerToken::random().unwrap());
    let hold = AcquireRequest { owner: hold, ..request(&key) };
    one.granted(&hold).await;
    let id = OwnerToken::random().unwrap();
    let silent =
        PublishedWait { id, beat: 1, key: key.clone(), under: vec![hold.lease()], who: "one/2".into() };
    here.publish(&silent).await.unwrap();
    let forgotten = async || there.waits_of_holders(&key).await.unwrap().is_empty().then_some(());
    eventually("a wait that isn't said again to be forgotten", forgotten).await;
}

/// Takes `keys[0]`, waits until the others have theirs, and asks for `keys[1]` under it.
async fn step(
    locks: LockManager,
    keys: [LockKey; 2],
    all: std::sync::Arc<tokio::sync::Barrier>,
) -> Option<String> {
    let guard = locks.mutex(&keys[0]).lock().await.unwrap();
    all.wait().await;
    let outcome = guard.run(locks.mutex(&keys[1]).wait(LONG).lock()).await.unwrap();
    match outcome {
        Ok(inner) => {
            inner.release().await.unwrap();
            guard.release().await.unwrap();
            None
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
            guard.release().await.unwrap();
            Some(error.to_string())
        }
    }
}

/// Two, and three, that wait for each other in a circle: one of them is told, with the names of the others, and lets go; the
/// others get what they wait for.
pub async fn a_circle_over_managers_ends_for_one_of_them(store: &impl Store) {
    for length in [2, 3] {
        let keys: Vec<LockKey> = (0..length).map(|_| fresh_key("circle")).collect();
        let all = std::sync::Arc::new(tokio::sync::Barrier::new(length));
        let mut tasks = Vec::new();
        for number in 0..length {
            let locks = detecting(store, &format!("m{number}")).await;
            let mine = [keys[number].clone(), keys[(number + 1) % length].clone()];
            tasks.push(tokio::spawn(step(locks, mine, all.clone())));
        }
        let mut told = Vec::new();
        for task in tasks {
            told.extend(in_time("the end of the circle", task).await.unwrap());
        }
        assert_eq!(told.len(), 1, "one is told, and only one: {told:#?}");
        for key in &keys {
            assert!(told[0].contains(key.as_str()), "{key} in {told:?}");
        }
        for number in 0..length {
            assert!(told[0].contains(&format!("m{number}/")), "m{number} in {told:?}");
        }
    }
}

/// Somebody who waits for a holder that waits for something else is no circle, and neither is one whose member goes away.
pub async fn what_is_no_circle_is_waited_for(store: &impl Store) {
    let (one, two) = (detecting(store, "one").await, detecting(store, "two").await);
    let keys = [fresh_key("chain"), fresh_key("chain"), fresh_key("chain")];
    let last = two.mutex(&keys[2]).lock().await.unwrap();
    let first = one.mutex(&keys[0]).lock().await.unwrap();
    let second = two.mutex(&keys[1]).lock().await.unwrap();
    let waiting = async {
        let one = first.run(one.mutex(&keys[1]).wait(LONG).lock());
        let two = async {
            // Long enough for both to have been published some times.
            let outcome = second.run(two.mutex(&keys[2]).wait(LONG).lock()).await.unwrap();
            drop(outcome.unwrap());
            second.release().await.unwrap();
        };
        let holder = async {
            waiters(&two_view(store).await, &keys[1], 1).await;
            tokio::time::sleep(ms(2_500)).await;
            last.release().await.unwrap();
        };
        tokio::join!(one, two, holder).0.unwrap().unwrap()
    };
    let inner = in_time("the chain", waiting).await;
    // Somebody waits for ours, and we wait no more for theirs.
    let mine = inner.run(async {
        let other = two.mutex(&keys[2]).lock().await.unwrap();
        let theirs = other.run(two.mutex(&keys[1]).wait(ms(2_500)).lock());
        let ours = async {
            let gone = tokio::time::timeout(ms(700), one.mutex(&keys[2]).wait(LONG).lock()).await;
            assert!(gone.is_err(), "given up long before it could be told");
        };
        tokio::join!(theirs, ours).0.unwrap().map(drop)
    });
    let error = in_time("the wait for ours", mine).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    drop((inner, first));
    for key in &keys {
        free(&one, key).await;
    }
}

async fn two_view(store: &impl Store) -> LockManager {
    super::tools::manager(store, "view").await
}
