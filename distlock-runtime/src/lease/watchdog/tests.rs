//! Random schedules against the promises of the watchdog: more than 10^5 of them.

use std::sync::Arc;

use super::*;

#[derive(Clone, Debug)]
struct Kept(LeaseId, Arc<LeaseCell>);

impl Watched for Kept {
    fn cell(&self) -> &LeaseCell {
        &self.1
    }
}

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

fn take(dog: &mut Watchdog<Kept>, name: u64, ms: u64, sent: Moment) -> (LeaseId, Arc<LeaseCell>) {
    let cell = Arc::new(LeaseCell::new(ttl(ms), sent));
    dog.insert(LeaseId(name), Kept(LeaseId(name), cell.clone()), sent, None);
    (LeaseId(name), cell)
}

#[test]
fn renews_at_a_third_and_not_before() {
    let mut dog = Watchdog::new(1);
    let (id, _) = take(&mut dog, 7, 3000, at(1000));
    let wake = dog.next_wake();
    assert!((at(1900)..=at(2100)).contains(&wake), "{wake:?}");
    assert!(dog.due(at(1500)).renew.is_empty());
    let due = dog.due(wake);
    assert_eq!(due.renew.len(), 1);
    assert!(dog.due(wake + Duration::from_millis(1)).renew.is_empty(), "one renewal at a time");
    assert!(dog.renewed(id, wake, ttl(3000)));
    assert!(dog.next_wake() > wake + Duration::from_millis(800));
}

#[test]
fn renewals_due_soon_share_a_batch_and_many_make_no_burst() {
    const LEASES: usize = 10 * BATCH;
    let mut dog = Watchdog::new(2);
    for name in 0..LEASES as u64 {
        take(&mut dog, name, 15_000, at(1000 + name));
    }
    let mut now = dog.next_wake();
    let (mut wakes, mut renewed) = (0, 0);
    while now < at(1000 + 2000 + 5600) {
        let due = dog.due(now);
        assert!(due.renew.len() <= BATCH, "{} at once", due.renew.len());
        renewed += due.renew.len();
        wakes += 1;
        now = dog.next_wake().max(now + Duration::from_millis(1));
    }
    assert_eq!(renewed, LEASES);
    assert!(wakes <= 11, "{wakes} round trips for one cycle");
}

#[test]
fn what_was_renewed_together_is_renewed_together() {
    let mut dog = Watchdog::new(5);
    let ids: Vec<LeaseId> = (0..50).map(|name| take(&mut dog, name, 900, at(1000 + name)).0).collect();
    for id in ids {
        assert!(dog.renewed(id, at(2000), ttl(900)));
    }
    let together = loop {
        let due = dog.due(dog.next_wake());
        if !due.renew.is_empty() {
            break due.renew.len();
        }
    };
    assert_eq!(together, 50);
}

#[test]
fn a_release_during_a_renewal_makes_the_absence_ours() {
    let mut dog = Watchdog::new(3);
    let (id, cell) = take(&mut dog, 0, 3000, at(1000));
    assert_eq!(dog.due(at(2200)).renew.len(), 1);
    assert!(dog.remove(id));
    assert!(dog.gone(id).is_none());
    assert!(!dog.renewed(id, at(2200), ttl(3000)));
    assert_eq!(cell.loss_at(at(2300)), None);
    assert_eq!(dog.next_wake(), Moment::NEVER);
}

#[test]
fn max_hold_ends_a_lease_that_renews_well() {
    let mut dog = Watchdog::new(4);
    let cell = Arc::new(LeaseCell::new(ttl(1000), at(1000)));
    let id = LeaseId(1);
    dog.insert(id, Kept(id, cell), at(1000), Some(at(1000 + 2500)));
    let mut now = at(1000);
    loop {
        now = dog.next_wake().max(now);
        let due = dog.due(now);
        if let Some(lost) = due.lost.first() {
            assert_eq!(lost.loss, Loss::MaxHold);
            assert_eq!(now, at(3500));
            return;
        }
        assert!(dog.renewed(id, now, ttl(1000)));
    }
}

fn due_again(dog: &mut Watchdog<Kept>, now: Moment) -> bool {
    dog.due(now);
    dog.next_wake() > now
}

/// One random life: leases come and go, replies are late, lost, or say "gone"; time jumps as after a pause.
fn life(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut dog = Watchdog::new(seed);
    let mut now = at(1_000);
    let mut last = 0;
    let mut held: Vec<(LeaseId, Arc<LeaseCell>, Moment)> = Vec::new();
    let mut flying: Vec<(LeaseId, Moment, Ttl)> = Vec::new();
    for _ in 0..12 {
        match random.u8(0..10) {
            0..3 => {
                let length = [100, 900, 3_000, 30_000][random.usize(0..4)];
                let cell = Arc::new(LeaseCell::new(ttl(length), now));
                let stop = random.bool().then(|| now + Duration::from_millis(random.u64(1..5_000)));
                last += 1;
                let id = LeaseId(last);
                dog.insert(id, Kept(id, cell.clone()), now, stop);
                held.push((id, cell, stop.unwrap_or(Moment::NEVER)));
            }
            3 if !held.is_empty() => {
                let (id, ..) = held.swap_remove(random.usize(0..held.len()));
                assert!(dog.remove(id), "a held lease is known");
            }
            4..7 if !flying.is_empty() => {
                let (id, sent, length) = flying.swap_remove(random.usize(0..flying.len()));
                let known = held.iter().any(|(other, ..)| *other == id);
                match random.u8(0..4) {
                    0 => assert_eq!(dog.unknown(id, now).is_some(), known),
                    1 => {
                        let lost = dog.gone(id);
                        assert_eq!(lost.is_some(), known, "only a lease still held can be lost");
                        held.retain(|(other, ..)| *other != id);
                    }
                    _ => assert_eq!(dog.renewed(id, sent, length), known),
                }
            }
            7 if !held.is_empty() => {
                // An extension in the foreground moves the deadline behind the schedule's back.
                let (id, cell, _) = &held[random.usize(0..held.len())];
                cell.want(ttl(10_000));
                cell.renewed(now, ttl(10_000));
                dog.hurry(*id, now);
            }
            _ => now = now + Duration::from_millis(random.u64(0..2_000)),
        }
        // The engine wakes when asked to, perhaps late.
        if random.bool() {
            now = now.max(dog.next_wake().min(now + Duration::from_secs(20)));
        }
        let due = dog.due(now);
        for lost in due.lost {
            let index = held.iter().position(|(id, ..)| *id == lost.handle.0).expect("lost leases were held");
            let (_, cell, stop) = held.swap_remove(index);
            assert!(cell.valid_until() <= now || stop <= now, "nothing is lost early");
        }
        for renew in due.renew {
            assert!(
                !flying
                    .iter()
                    .any(|(id, ..)| *id == renew.handle.0 && held.iter().all(|(held, ..)| held != id))
            );
            flying.push((renew.handle.0, now, renew.ttl));
        }
        for (id, cell, stop) in &held {
            assert!(cell.valid_until() > now && *stop > now, "{id:?} outlived its deadline in the schedule");
        }
        // Whoever is held has a next step in the agenda, no later than its loss.
        let latest = held.iter().map(|(_, cell, stop)| cell.valid_until().min(*stop)).min();
        assert!(dog.next_wake() > now || due_again(&mut dog, now), "a wake-up that finds nothing would spin");
        assert!(dog.next_wake() <= latest.unwrap_or(Moment::NEVER));
        assert!(dog.entries.iter().all(|(id, entry)| match entry.is_under_way() {
            true => dog.under_way.contains(&(entry.planned, *id)),
            false => dog.agenda.has(entry.planned, *id),
        }));
        assert_eq!(dog.under_way.len(), dog.entries.values().filter(|entry| entry.is_under_way()).count());
        assert_eq!(dog.entries.len(), held.len());
    }
}

#[test]
fn random_schedules_keep_every_promise() {
    for seed in 0..120_000 {
        life(seed);
    }
}
