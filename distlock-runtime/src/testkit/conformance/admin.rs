//! Waist: looking at locks, and taking them by force.

use std::collections::BTreeSet;

use super::Store;
use super::tools::{Client, fresh_key, ms, queued_request, request};
use crate::backend::{Capability, Renewal};
use crate::key::LockKey;

/// `inspect` tells a free lock from a held one, and who holds and how many wait.
pub async fn inspect_tells_holder_and_waiters(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("inspect");
    let state = one.inspect(&key).await.unwrap();
    assert_eq!((state.key, state.holder, state.waiters), (key.clone(), None, 0));
    let held = request(&key);
    one.granted(&held).await;
    for n in 0..3 {
        assert_eq!(two.waiters(&key).await, n);
        two.queued(&queued_request(&key)).await;
    }
    let state = two.inspect(&key).await.unwrap();
    let holder = state.holder.unwrap();
    assert_eq!((holder.label.as_deref(), holder.owner), (Some("one"), Some(held.owner)));
    let remaining = holder.remaining.unwrap();
    assert!(remaining > ms(15_000) && remaining <= ms(30_000), "{remaining:?}");
    assert_eq!(state.waiters, 3);
}

/// `list` gives the held locks whose name begins so, and no others.
pub async fn list_gives_held_locks_by_prefix(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    // Characters that mean something in patterns are meant as they stand.
    let prefix = format!("list*[?]-{:016x}:", fastrand::u64(..));
    let names: BTreeSet<String> = (0..25).map(|n| format!("{prefix}{n}")).collect();
    for name in &names {
        one.granted(&request(&LockKey::new(name).unwrap())).await;
    }
    let waited_for = format!("{prefix}7");
    let queues = two.guarantees().can(Capability::Queue);
    if queues {
        two.queued(&queued_request(&LockKey::new(&waited_for).unwrap())).await;
    }
    one.granted(&request(&fresh_key("list"))).await;
    let freed = request(&LockKey::new(format!("{prefix}freed")).unwrap());
    one.granted(&freed).await;
    one.release(&freed.lease(), None).await.unwrap();
    one.granted(&request(&LockKey::raw(format!("{prefix}raw")).unwrap())).await;

    let found = two.list(&prefix, 1_000).await.unwrap();
    assert!(found.iter().all(|state| state.holder.as_ref().unwrap().label.as_deref() == Some("one")));
    let waiting = found.iter().find(|state| state.key.as_str() == waited_for).unwrap();
    assert_eq!(waiting.waiters, u64::from(queues));
    let found: Vec<String> = found.into_iter().map(|state| state.key.as_str().to_owned()).collect();
    assert_eq!(found.len(), names.len(), "each once: {found:?}");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), names);
    assert_eq!(two.list(&prefix, 7).await.unwrap().len(), 7);
    assert!(two.list(&format!("{prefix}no"), 10).await.unwrap().is_empty());
}

/// `force_release` takes the lock from its holder, who finds it gone, and hands it on.
pub async fn force_release_takes_and_hands_on(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("force");
    assert_eq!(two.force_release(&key).await.unwrap(), None);
    let (held, waiter) = (request(&key), queued_request(&key));
    one.granted(&held).await;
    two.queued(&waiter).await;
    let taken = two.force_release(&key).await.unwrap().unwrap();
    assert_eq!((taken.label.as_deref(), taken.owner), (Some("one"), Some(held.owner)));
    assert!(matches!(one.renew(&[held.lease()]).await.as_slice(), [Renewal::Gone]));
    two.wait_for(&waiter).await;
    assert_eq!(one.inspect(&key).await.unwrap().holder.unwrap().owner, Some(waiter.owner));
}

/// The store answers, names itself and what it promises, and its settings can be looked at.
pub async fn the_store_answers_and_names_itself(store: &impl Store) {
    let client = Client::open(store, "one").await;
    client.ping().await.unwrap();
    client.check().await.unwrap();
    assert!(!client.name().is_empty());
    assert!(!client.guarantees().store.is_empty());
    for (has, says, capability) in [
        (client.shared().records().is_some(), store.has_records(), Capability::Records),
        (client.shared().latches().is_some(), store.has_latches(), Capability::Latches),
    ] {
        assert_eq!((has, client.guarantees().can(capability)), (says, says), "{capability}");
    }
}

/// A raw name is one lock with itself only; its characters mean nothing.
pub async fn raw_names_are_locks_too(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let raw = LockKey::raw(format!("raw:{{x}}*-{:016x}", fastrand::u64(..))).unwrap();
    let held = request(&raw);
    one.granted(&held).await;
    two.busy(&request(&raw)).await;
    let named = LockKey::new(raw.as_str()).unwrap();
    two.granted(&request(&named)).await;
    one.release(&held.lease(), None).await.unwrap();
    assert!(two.is_free(&raw).await && !two.is_free(&named).await);
}
