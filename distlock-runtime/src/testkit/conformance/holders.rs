//! What is told of those who hold a lock: to those who look, and to those in whose way they are.

use std::time::Duration;

use super::Store;
use super::tools::{Client, fresh_key, manager, ms, queued_request, request, ttl};
use crate::backend::{AcquireRequest, Kind, LockState, Mode};
use crate::error::{ErrorKind, LockError};
use crate::key::LockKey;
use crate::token::OwnerId;

/// A lease whose end is far from those of the others.
fn share(key: &LockKey, mode: Mode, seconds: u64) -> AcquireRequest {
    AcquireRequest { mode, ttl: ttl(1_000 * seconds), ..request(key) }
}

fn shown(state: &LockState) -> Vec<(&str, Mode)> {
    let how = |holder: &crate::backend::HolderState| holder.mode.unwrap();
    state.holders.iter().map(|holder| (holder.label.as_deref().unwrap(), how(holder))).collect()
}

/// Waist: all readers are shown, those whose leases end last first, and a writer as one.
pub async fn inspect_shows_all_readers(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("readers");
    let (long, short) = (share(&key, Mode::Read, 90), share(&key, Mode::Read, 30));
    two.granted(&short).await;
    one.granted(&long).await;
    for state in [two.inspect(&key).await.unwrap(), two.list(key.as_str(), 10).await.unwrap().remove(0)] {
        assert_eq!((state.kind, state.holder_count), (Some(Kind::ReadWrite), 2));
        assert_eq!(shown(&state), [("one", Mode::Read), ("two", Mode::Read)]);
        assert_eq!(state.holder.as_ref(), state.holders.first());
        assert_eq!(state.holders[1].owner, Some(short.owner));
        assert!(state.holders[1].remaining.unwrap() <= ms(30_000));
        assert_eq!(state.permits_in_use, None);
    }
    one.release(&long.lease(), None).await.unwrap();
    two.release(&short.lease(), None).await.unwrap();
    let free = one.inspect(&key).await.unwrap();
    assert_eq!((free.kind, free.holder_count, free.holders.len()), (None, 0, 0));
    let writer = share(&key, Mode::Write, 30);
    one.granted(&writer).await;
    two.queued(&AcquireRequest { mode: Mode::Read, ..queued_request(&key) }).await;
    let state = two.inspect(&key).await.unwrap();
    assert_eq!((shown(&state), state.holder_count, state.waiters), (vec![("one", Mode::Write)], 1, 1));
}

/// Waist: of a semaphore the limit and the permits that are taken are told, with who has how many; what lapsed doesn't count.
pub async fn inspect_shows_limit_and_permits(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("permits");
    let permits = |limit, weight| Mode::Permits { limit, weight };
    client.granted(&share(&key, permits(5, 3), 90)).await;
    client.granted(&share(&key, permits(5, 1), 60)).await;
    let brief = AcquireRequest { mode: permits(5, 1), ttl: ttl(200), ..request(&key) };
    client.granted(&brief).await;
    let state = client.inspect(&key).await.unwrap();
    assert_eq!((state.kind, state.holder_count), (Some(Kind::Semaphore { limit: 5 }), 3));
    assert_eq!(state.permits_in_use, Some(5));
    super::tools::eventually("the end of the brief lease", async || {
        (client.inspect(&key).await.unwrap().holder_count == 2).then_some(())
    })
    .await;
    // Holds beyond a lower limit are still taken.
    assert!(client.resize(&key, 2).await.unwrap());
    let state = client.inspect(&key).await.unwrap();
    assert_eq!(state.kind, Some(Kind::Semaphore { limit: 2 }));
    assert_eq!((state.permits_in_use, state.holder_count), (Some(4), 2));
    assert_eq!(shown(&state), [("one", permits(2, 3)), ("one", permits(2, 1))]);
}

/// Waist: of a crowd of holders a bounded number is shown, and all are counted.
pub async fn inspect_shows_a_bounded_number(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("crowd");
    let weight = |number: usize| u32::try_from(number % 3 + 1).unwrap();
    let mut taken = 0;
    for number in 0..LockState::MOST_HOLDERS + 20 {
        let mode = Mode::Permits { limit: 1_000, weight: weight(number) };
        client.granted(&share(&key, mode, 60 + number as u64)).await;
        taken += u64::from(weight(number));
    }
    let state = client.inspect(&key).await.unwrap();
    let listed = client.list(key.as_str(), 10).await.unwrap().remove(0);
    for (state, most) in [(state, LockState::MOST_HOLDERS), (listed, LockState::MOST_LISTED)] {
        assert_eq!(state.holders.len(), most);
        assert_eq!(state.holder_count, LockState::MOST_HOLDERS as u64 + 20);
        assert_eq!(state.permits_in_use, Some(taken));
        let ends: Vec<Duration> = state.holders.iter().map(|holder| holder.remaining.unwrap()).collect();
        assert!(ends.is_sorted_by(|one, next| one >= next), "{ends:?}");
        assert!(ends[0] > Duration::from_secs(150), "{ends:?}");
    }
}

/// Waist: an exclusive lock and one of an explicit owner are shown as what they are.
pub async fn inspect_tells_the_kind(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let (plain, owned) = (fresh_key("plain"), fresh_key("owned"));
    client.granted(&request(&plain)).await;
    let state = client.inspect(&plain).await.unwrap();
    assert_eq!((state.kind, state.holder_count), (Some(Kind::Exclusive), 1));
    assert_eq!(shown(&state), [("one", Mode::Exclusive)]);
    let mode = Mode::Owned { owner: OwnerId::new("x").unwrap() };
    for seconds in [60, 30] {
        client.granted(&share(&owned, mode, seconds)).await;
    }
    let state = client.inspect(&owned).await.unwrap();
    assert_eq!((state.kind, state.holder_count), (Some(Kind::Owned), 2));
    assert_eq!(shown(&state), [("one", mode), ("one", mode)]);
    assert_eq!(state.holder.unwrap().hold_count, Some(2));
}

/// User: a manager knows its own holds of every kind, in what it shows and in the errors of those that they are in the way of.
pub async fn holds_of_this_process_are_told_from_those_of_others(store: &impl Store) {
    let (ours, theirs) = (manager(store, "ours").await, manager(store, "theirs").await);
    let told = |what: &str, error: LockError, words: &str| {
        let text = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::Busy | ErrorKind::Timeout), "{what}: {text}");
        assert!(text.contains("held by this process (ours) for "), "{what}: {text}");
        assert!(text.contains("unless renewed") && text.contains(words), "{what}: {text}");
        let holder = error.holder().unwrap();
        assert!(holder.held_for.is_some() && holder.remaining.is_some(), "{what}: {holder:?}");
    };
    let others = |what: &str, error: LockError| {
        let text = error.to_string();
        assert!(text.contains("held by ours") && !text.contains("this process"), "{what}: {text}");
        assert_eq!(error.holder().unwrap().held_for, None, "{what}");
    };
    let key = fresh_key("fair");
    let guard = ours.mutex(&key).fair().lock().await.unwrap();
    told("fair", ours.mutex(&key).fair().try_lock().await.unwrap_err(), "guard.run");
    told("plain", ours.mutex(&key).try_lock().await.unwrap_err(), "guard.run");
    told("waits", ours.mutex(&key).fair().wait(ms(120)).lock().await.unwrap_err(), "guard.run");
    others("fair", theirs.mutex(&key).fair().try_lock().await.unwrap_err());
    let shown = ours.inspect(&key).await.unwrap().holder.unwrap();
    assert_eq!((shown.token, shown.hold_count), (Some(guard.fencing_token()), Some(1)));

    let key = fresh_key("read");
    let guard = ours.rw_lock(&key).read().await.unwrap();
    told("read", ours.rw_lock(&key).try_write().await.unwrap_err(), "try_upgrade()");
    others("read", theirs.rw_lock(&key).try_write().await.unwrap_err());
    let shown = ours.inspect(&key).await.unwrap().holders.remove(0);
    assert_eq!((shown.token, shown.hold_count), (Some(guard.fencing_token()), Some(1)));
    assert_eq!(theirs.inspect(&key).await.unwrap().holders[0].token, None);
    let guard = guard.try_upgrade().await.unwrap();
    told("write", ours.rw_lock(&key).try_read().await.unwrap_err(), "guard.run");
    drop(guard);

    let key = fresh_key("permits");
    let _guard = ours.semaphore(&key, 2).acquire_many(2).await.unwrap();
    told("permits", ours.semaphore(&key, 2).try_acquire().await.unwrap_err(), "acquire_many");
    others("permits", theirs.semaphore(&key, 2).try_acquire().await.unwrap_err());

    let key = fresh_key("owner");
    let _guard = ours.mutex(&key).owner("x").lock().await.unwrap();
    told("owner", ours.mutex(&key).owner("y").try_lock().await.unwrap_err(), "as the same owner");
    others("owner", theirs.mutex(&key).owner("y").try_lock().await.unwrap_err());

    let keys = [fresh_key("one"), fresh_key("two")];
    let _guard = ours.mutex(&keys[0]).fair().lock().await.unwrap();
    told("several", ours.mutex_all(&keys).try_lock().await.unwrap_err(), "guard.run");
}
