//! Places in the line, and what becomes of those that vanish.

use std::{future::poll_fn, task::Poll};

use distlock_runtime::{
    LockKey,
    backend::{AcquireRequest, Attempt, Backend as _, Released, Renewal},
};
use distlock_tests::{
    arena::stale_release,
    naive::{EtcdFlaw, NaiveEtcd},
    server::{EtcdCluster, EtcdSetup},
};

use etcd_client::PutOptions;

use super::tools::{Client, LIMIT, eventually, key, manager, ms, naive, names, queued, request};

/// A waiter whose place lapsed while it waited isn't granted when the one in front of it goes: it looks at its own name first. The
/// control says yes as soon as the name in front is gone, as a peer does, while another holds the lock.
#[tokio::test]
async fn a_waiter_whose_place_lapsed_is_not_granted() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = (Client::open(&cluster, "one"), Client::open(&cluster, "two"));
    let lock = key("place");
    let (held, waiter, rival) = (request(&lock, 30_000), queued(&lock, 30_000), request(&lock, 30_000));
    one.granted(&held).await;
    two.queued(&waiter).await;
    let line = names(&cluster, "distlock/lock/place/").await;
    let (ahead, _) = line.iter().find(|(name, _)| name.ends_with(&held.owner.to_hex())).unwrap().clone();
    let (_, lease) = *line.iter().find(|(name, _)| name.ends_with(&waiter.owner.to_hex())).unwrap();
    let mut client = cluster.client().await.unwrap();
    client.lease_revoke(lease).await.unwrap();
    one.release(&held.lease(), None).await.unwrap();
    one.granted(&rival).await;

    let naive = client.get(ahead, None).await.unwrap();
    assert_eq!(naive.count(), 0, "the naive waiter sees nobody in front and believes to hold the lock");
    let outcome = two.try_acquire(&waiter).await.unwrap();
    assert!(matches!(outcome, Attempt::Queued(_)), "{outcome:?}");
    assert_eq!(one.inspect(&lock).await.unwrap().holder.unwrap().owner, Some(rival.owner));
    one.release(&rival.lease(), None).await.unwrap();
    eventually("its new turn", async || {
        matches!(two.try_acquire(&waiter).await.unwrap(), Attempt::Granted(_)).then_some(())
    })
    .await;
}

/// An unlock of an earlier hold of the same process, repeated or late, never ends a later one. The control deletes by the
/// lock's name, as a naive unlock does, and takes it from its next holder.
#[tokio::test]
async fn a_stale_unlock_leaves_the_later_hold() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let one = Client::open(&cluster, "one");
    let lock = key("stale");
    for _ in 0..20 {
        let (earlier, later) = (request(&lock, 30_000), request(&lock, 30_000));
        one.granted(&earlier).await;
        assert_eq!(one.release(&earlier.lease(), None).await.unwrap(), Released::Confirmed);
        one.granted(&later).await;
        assert_eq!(one.release(&earlier.lease(), None).await.unwrap(), Released::NotHeld);
        one.cancel(&earlier).await.unwrap();
        assert!(matches!(one.renew(&[earlier.lease()]).await[..], [Renewal::Gone]));
        assert!(matches!(one.renew(&[later.lease()]).await[..], [Renewal::Renewed { .. }]));
        assert_eq!(one.inspect(&lock).await.unwrap().holder.unwrap().owner, Some(later.owner));
        assert_eq!(one.release(&later.lease(), None).await.unwrap(), Released::Confirmed);
    }
    // The same over whole managers, and with the control.
    let (locks, rival) = (manager(&cluster.url(), "one").await, manager(&cluster.url(), "rival").await);
    let forced = async || drop(rival.force_release("late", "the test says so").await.unwrap());
    stale_release(&locks, &rival, "late", LIMIT, forced, ms(500)).await.assert_clean(2);
    let naive = naive(&cluster, EtcdFlaw::ByName).await;
    let mut client = cluster.client().await.unwrap();
    let forced = async || drop(client.delete(NaiveEtcd::name("late"), None).await.unwrap());
    stale_release(&naive, &naive, "late", LIMIT, forced, LIMIT).await.assert_caught();
}

/// Holds of one ttl share a lease, and one that isn't renewed lapses all the same while the others go on.
#[tokio::test]
async fn a_hold_on_a_shared_lease_lapses_alone() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let (one, two) = (Client::open(&cluster, "one"), Client::open(&cluster, "two"));
    let (forgotten, kept) = (request(&key("forgotten"), 1_500), request(&key("kept"), 1_500));
    one.granted(&forgotten).await;
    one.granted(&kept).await;
    let line = names(&cluster, "distlock/lock/").await;
    assert_eq!(line.len(), 2);
    assert_eq!(line[0].1, line[1].1, "one lease for both");
    eventually("the forgotten hold to lapse", async || {
        assert!(matches!(one.renew(&[kept.lease()]).await[..], [Renewal::Renewed { .. }]));
        matches!(two.try_acquire(&request(&forgotten.key, 30_000)).await.unwrap(), Attempt::Granted(_))
            .then_some(())
    })
    .await;
    assert!(matches!(one.renew(&[forgotten.lease()]).await[..], [Renewal::Gone]));
    assert!(matches!(one.renew(&[kept.lease()]).await[..], [Renewal::Renewed { .. }]));
}

/// What the store doesn't let us take away any more stops the end of nothing else, costs the others on its lease nothing, and
/// goes in the end.
#[tokio::test]
async fn a_hold_that_cannot_be_taken_away_is_in_no_others_way() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1).auth()).await.unwrap();
    cluster.add_user("locks", "s3cret", "distlock/").await.unwrap();
    let mut root = cluster.client().await.unwrap();
    let jobs = etcd_client::Permission::new(etcd_client::PermissionType::Readwrite, "jobs/").with_prefix();
    root.role_grant_permission("locks", jobs).await.unwrap();
    let one = Client::at(&cluster.url_as("locks", "s3cret"), "one");
    let stubborn = request(&LockKey::raw("jobs").unwrap(), 3_000);
    one.granted(&stubborn).await;
    // Whose outcome nobody saw: it can never be undone, and stands on no lease that is known.
    let open = request(&LockKey::raw("elsewhere").unwrap(), 3_000);
    let mut attempt = one.try_acquire(&open);
    let polled = poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    drop(attempt);
    // They come after it.
    for n in 0..8 {
        one.granted(&request(&key(&format!("k{n}")), 12_000)).await;
    }
    let kept = request(&key("kept"), 12_000);
    one.granted(&kept).await;
    let prefix = etcd_client::RoleRevokePermissionOptions::new().with_prefix();
    root.role_revoke_permission("locks", "jobs/", Some(prefix)).await.unwrap();
    let left = async |prefix, most: usize| {
        assert!(matches!(one.renew(&[kept.lease()]).await[..], [Renewal::Renewed { .. }]));
        let options = etcd_client::GetOptions::new().with_prefix().with_count_only();
        let left = root.clone().get(prefix, Some(options)).await.unwrap().count();
        (usize::try_from(left).unwrap() <= most).then_some(())
    };
    eventually("what may be taken away to go", async || left("distlock/lock/", 1).await).await;
    eventually("what may not be taken away to go", async || left("jobs/", 0).await).await;
    assert!(matches!(one.renew(&[stubborn.lease()]).await[..], [Renewal::Gone]));
}

/// Many holds go to another lease in few steps: one that each of them had to wait for would come too late for the last.
#[tokio::test]
async fn holds_move_to_another_lease_together() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let one = Client::open(&cluster, "one");
    let holds: Vec<_> = (0..150).map(|n| request(&key(&format!("k{n}")), 60_000).lease()).collect();
    for hold in &holds {
        let request = AcquireRequest { owner: hold.owner, ..request(&hold.key, 60_000) };
        one.granted(&request).await;
    }
    let mut client = cluster.client().await.unwrap();
    let (lease, mine) =
        (client.lease_grant(60, None).await.unwrap().id(), names(&cluster, "distlock/lock/").await[0].1);
    let (gone, standing) = (&holds[70], names(&cluster, "distlock/lock/").await);
    for (name, _) in &standing {
        match name.ends_with(&gone.owner.to_hex()) {
            true => drop(client.delete(name.as_str(), None).await.unwrap()),
            false => {
                let options = PutOptions::new().with_lease(lease).with_ignore_value();
                client.put(name.as_str(), "", Some(options)).await.unwrap();
            }
        }
    }
    let revision = async || cluster.client().await.unwrap().get("none", None).await.unwrap();
    let before = revision().await.header().unwrap().revision();
    let renewals = one.renew(&holds).await;
    let steps = revision().await.header().unwrap().revision() - before;
    for (hold, renewal) in holds.iter().zip(&renewals) {
        let is_right = match hold.owner == gone.owner {
            true => matches!(renewal, Renewal::Gone),
            false => matches!(renewal, Renewal::Renewed { .. }),
        };
        assert!(is_right, "{:?}: {renewal:?}", hold.key);
    }
    assert!((1..=10).contains(&steps), "{steps} steps");
    let moved = names(&cluster, "distlock/lock/").await;
    assert!(moved.len() == 149 && moved.iter().all(|(_, under)| *under == mine), "{moved:?}");
}

/// Cancelled attempts leave tombstones that end by themselves, on leases that they share.
#[tokio::test]
async fn tombstones_share_leases_that_end() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let one = Client::open(&cluster, "one");
    for n in 0..20 {
        one.cancel(&request(&key(&format!("k{n}")), 1_000)).await.unwrap();
    }
    let stones = names(&cluster, "distlock/gone/").await;
    assert_eq!(stones.len(), 20);
    assert!(stones.iter().all(|(_, lease)| *lease == stones[0].1 && *lease != 0), "{stones:?}");
    let left = cluster.client().await.unwrap().lease_time_to_live(stones[0].1, None).await.unwrap();
    assert!((60..=180).contains(&left.ttl()), "{left:?}");
}
