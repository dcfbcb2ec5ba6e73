//! Waist: renewal and release.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Store;
use super::tools::{Client, eventually, fresh_key, ms, queued_request, request, ttl};
use crate::backend::{AcquireRequest, LeaseHandle, PostedRelease, Released, Renewal, Unreleased};

/// A renewed lease outlives its ttl, and `sent` never lies in the future of the reply.
pub async fn a_renewed_lease_lives_on(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("renew");
    let held = AcquireRequest { ttl: ttl(1_500), ..request(&key) };
    let mut sent = one.granted(&held).await.sent;
    let start = Instant::now();
    while start.elapsed() < ms(3_500) {
        match one.renew(&[held.lease()]).await.as_slice() {
            [Renewal::Renewed { sent: now }] => {
                assert!(*now >= sent);
                sent = *now;
            }
            other => panic!("{other:?}"),
        }
        two.busy(&request(&key)).await;
        tokio::time::sleep(ms(100)).await;
    }
}

/// A renewal never makes a lock: not of nothing, not after release, expiry or cancel, and not against another owner.
pub async fn a_renewal_never_makes_a_lock(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let gone = async |lease: &LeaseHandle| {
        let outcomes = one.renew(std::slice::from_ref(lease)).await;
        assert!(matches!(outcomes.as_slice(), [Renewal::Gone]), "{outcomes:?}");
    };
    let key = fresh_key("never");
    gone(&request(&key).lease()).await;
    assert!(one.is_free(&key).await);

    let released = request(&key);
    one.granted(&released).await;
    one.release(&released.lease(), None).await.unwrap();
    gone(&released.lease()).await;

    let lapsed = AcquireRequest { ttl: ttl(100), ..request(&key) };
    one.granted(&lapsed).await;
    eventually("the lease to lapse", async || one.is_free(&key).await.then_some(())).await;
    gone(&lapsed.lease()).await;
    assert!(one.is_free(&key).await);

    let cancelled = request(&key);
    one.granted(&cancelled).await;
    one.cancel(&cancelled).await.unwrap();
    gone(&cancelled.lease()).await;
    assert!(one.is_free(&key).await);

    let taken = request(&key);
    two.granted(&taken).await;
    gone(&lapsed.lease()).await;
    assert_eq!(two.inspect(&key).await.unwrap().holder.unwrap().owner, Some(taken.owner));
}

/// Many leases are renewed in one call, with one outcome each, in order.
pub async fn many_leases_are_renewed_in_one_call(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let mut leases = Vec::new();
    for n in 0..450 {
        let request = request(&fresh_key("many"));
        if n % 3 != 0 {
            client.granted(&request).await;
        }
        leases.push(request.lease());
    }
    let outcomes = client.renew(&leases).await;
    assert_eq!(outcomes.len(), leases.len());
    for (n, outcome) in outcomes.iter().enumerate() {
        let fits = match outcome {
            Renewal::Renewed { .. } => n % 3 != 0,
            Renewal::Gone => n % 3 == 0,
            Renewal::Unknown(_) => false,
        };
        assert!(fits, "lease {n}: {outcome:?}");
    }
    assert!(client.renew(&[]).await.is_empty());
}

/// A renewal may ask for a longer ttl than the acquire did.
pub async fn a_renewal_can_lengthen_the_lease(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("longer");
    let held = AcquireRequest { ttl: ttl(5_000), ..request(&key) };
    client.granted(&held).await;
    let longer = LeaseHandle { ttl: ttl(60_000), ..held.lease() };
    assert!(matches!(client.renew(&[longer]).await.as_slice(), [Renewal::Renewed { .. }]));
    let left = client.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
    assert!(left > ms(50_000), "{left:?}");
}

/// A renewal or a repeated attempt with a smaller ttl, which may have been sent before a larger one, leaves the larger.
pub async fn what_comes_late_never_shortens_the_lease(store: &impl Store) {
    let client = Client::open(store, "one").await;
    let key = fresh_key("shorter");
    let held = AcquireRequest { ttl: ttl(5_000), ..request(&key) };
    client.granted(&held).await;
    client.renew(&[LeaseHandle { ttl: ttl(60_000), ..held.lease() }]).await;
    for step in ["a renewal", "a repeated attempt", "one that would wait"] {
        match step {
            "a renewal" => {
                let outcomes = client.renew(&[held.lease()]).await;
                assert!(matches!(outcomes.as_slice(), [Renewal::Renewed { .. }]), "{outcomes:?}");
            }
            "a repeated attempt" => drop(client.granted(&held).await),
            _ => drop(client.granted(&AcquireRequest { queue: true, ..held.clone() }).await),
        }
        let left = client.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
        assert!(left > ms(50_000), "{step} left {left:?}");
    }
}

/// Nobody gives back what isn't theirs.
pub async fn a_release_by_others_is_refused(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("others");
    let held = request(&key);
    one.granted(&held).await;
    for keep in [None, Some(ms(10))] {
        assert_eq!(two.release(&request(&key).lease(), keep).await.unwrap(), Released::NotHeld);
        assert_eq!(one.inspect(&key).await.unwrap().holder.unwrap().owner, Some(held.owner));
    }
    let left = one.inspect(&key).await.unwrap().holder.unwrap().remaining.unwrap();
    assert!(left > ms(15_000), "{left:?}");
}

/// A release that is tried again finds nothing, and neither does one that comes after the next owner.
pub async fn a_repeated_release_is_harmless(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("twice");
    let (held, next) = (request(&key), request(&key));
    one.granted(&held).await;
    assert_eq!(one.release(&held.lease(), None).await.unwrap(), Released::Confirmed);
    assert_eq!(one.release(&held.lease(), None).await.unwrap(), Released::NotHeld);
    two.granted(&next).await;
    assert_eq!(one.release(&held.lease(), None).await.unwrap(), Released::NotHeld);
    assert_eq!(two.inspect(&key).await.unwrap().holder.unwrap().owner, Some(next.owner));
}

/// A release may keep the lock taken for a while; then it lapses by itself, and who waits gets it. Nothing that its owner sent
/// before, and that arrives late, makes it longer.
pub async fn a_release_can_keep_the_lock_taken(store: &impl Store) {
    let (one, two) = (Client::open(store, "one").await, Client::open(store, "two").await);
    let key = fresh_key("keep");
    let (held, waiter) = (request(&key), queued_request(&key));
    one.granted(&held).await;
    let start = Instant::now();
    assert_eq!(one.release(&held.lease(), Some(ms(600))).await.unwrap(), Released::Confirmed);
    assert!(matches!(one.renew(&[held.lease()]).await.as_slice(), [Renewal::Gone]));
    one.busy(&held).await;
    assert_eq!(one.release(&held.lease(), Some(ms(60_000))).await.unwrap(), Released::NotHeld);
    two.busy(&request(&key)).await;
    two.wait_for(&waiter).await;
    assert!(start.elapsed() >= ms(600), "had after {:?}", start.elapsed());
    assert!(start.elapsed() < ms(600) + ms(2_500), "had only after {:?}", start.elapsed());
}

/// A posted release happens and its sender learns that it did, or it comes back; it is never forgotten.
pub async fn a_posted_release_is_finished_or_comes_back(store: &impl Store) {
    let client = Client::open(store, "one").await;
    for round in 0..3 {
        let key = fresh_key("posted");
        let held = request(&key);
        client.granted(&held).await;
        let ledger = Arc::new(Ledger::default());
        let outcome = client.post_release(PostedRelease::new(held.lease(), None, ledger.clone()));
        if let Err(posted) = outcome {
            assert_eq!(posted.lease(), &held.lease());
            drop(posted);
        }
        let ended = async || match ledger.counts() {
            (0, 0) => None,
            counts => Some(counts),
        };
        match eventually("the posted release's end", ended).await {
            (1, 0) => assert!(client.is_free(&key).await, "round {round}"),
            (0, 1) => assert_eq!(client.release(&held.lease(), None).await.unwrap(), Released::Confirmed),
            counts => panic!("finished, came back: {counts:?}"),
        }
    }
}

#[derive(Default)]
struct Ledger {
    finished: AtomicUsize,
    unreleased: AtomicUsize,
}

impl Ledger {
    /// How many were finished, and how many came back.
    fn counts(&self) -> (usize, usize) {
        (self.finished.load(Ordering::SeqCst), self.unreleased.load(Ordering::SeqCst))
    }
}

impl Unreleased for Ledger {
    fn unreleased(&self, _: LeaseHandle, _: Option<Duration>) {
        self.unreleased.fetch_add(1, Ordering::SeqCst);
    }

    fn finished(&self) {
        self.finished.fetch_add(1, Ordering::SeqCst);
    }
}
