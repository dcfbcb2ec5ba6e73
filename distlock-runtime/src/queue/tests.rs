//! Random schedules of tasks, grants, losses and departures against a small model: more than 10^5 of them.

use std::collections::HashMap;

use super::*;

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

fn want(ms: u64, shares: bool) -> Want {
    Want { ttl: ttl(ms), shares }
}

fn owner(n: u64) -> OwnerToken {
    OwnerToken::from_hex(&format!("{n:032x}")).unwrap()
}

fn tenure(lease: u64) -> Tenure<u64> {
    Tenure::new(lease, want(1000, true))
}

fn block(lease: u64, since: Moment, tokens: u32) -> Block {
    Block { since, next: FencingToken::new(lease * 10_000), left: tokens }
}

const NOW: Moment = Moment::from_nanos(1_000_000_000);

#[test]
fn first_drives_others_wait_and_the_lease_goes_round_in_order() {
    let mut queue = KeyQueue::<u64, ()>::new();
    assert_eq!(queue.enter(Seat::new(1), want(1000, true), Some(9), || ()), Ok(Entry::Drive));
    for seat in 2..=4 {
        assert_eq!(queue.enter(Seat::new(seat), want(1000, true), Some(9), || ()), Ok(Entry::Wait));
    }
    assert_eq!(queue.enter(Seat::new(5), want(1000, true), None, || ()), Err(Refused::Busy));
    assert_eq!(queue.enter(Seat::new(5), want(1000, true), Some(3), || ()), Err(Refused::TooMany));
    let mut last = queue.granted(Seat::new(1), tenure(1), block(1, NOW, 3)).unwrap();
    for holder in 1..=2 {
        let step = queue.released(Seat::new(holder), NOW, true);
        let Some((heir, (), News::Granted(lease, token))) = step.news else { panic!("{step:?}") };
        assert_eq!((heir, lease), (Seat::new(holder + 1), 1));
        assert!(token > last, "each hand-off has its own, larger token");
        last = token;
    }
    // The block is used up: the store has its turn.
    let step = queue.released(Seat::new(3), NOW, true);
    assert!(matches!(step.store, Some(Leave::Release(1))));
    assert!(matches!(step.news, Some((seat, (), News::Drive(None))) if seat == Seat::new(4)));
}

#[test]
fn no_hand_off_after_the_slice_or_to_another_ttl_or_of_a_failing_lease() {
    for (late, heirs_ttl, healthy, shares) in [
        (true, 1000, true, true),
        (false, 2000, true, true),
        (false, 1000, false, true),
        (false, 1000, true, false),
    ] {
        let mut queue = KeyQueue::<u64, ()>::new();
        queue.enter(Seat::new(1), want(1000, true), Some(9), || ()).unwrap();
        queue.enter(Seat::new(2), want(heirs_ttl, shares), Some(9), || ()).unwrap();
        queue.granted(Seat::new(1), tenure(1), block(1, NOW, 100)).unwrap();
        let now = if late { NOW + SLICE } else { NOW };
        let step = queue.released(Seat::new(1), now, healthy);
        assert!(matches!(step.store, Some(Leave::Release(1))), "{late} {heirs_ttl} {healthy} {shares}");
    }
}

#[test]
fn a_dropped_driver_leaves_its_place_to_the_next() {
    let mut queue = KeyQueue::<u64, ()>::new();
    queue.enter(Seat::new(1), want(1000, true), Some(9), || ()).unwrap();
    queue.enter(Seat::new(2), want(1000, true), Some(9), || ()).unwrap();
    let ticket = Ticket::new(owner(1), ttl(1000)).send();
    assert!(queue.driving(Seat::new(1), ticket));
    let step = queue.gave_up(Seat::new(1));
    assert!(
        matches!(step.news, Some((seat, (), News::Drive(Some(t)))) if seat == Seat::new(2) && t == ticket)
    );
    assert!(step.store.is_none());
    let step = queue.gave_up(Seat::new(2));
    assert!(matches!(step.store, Some(Leave::Cancel(t)) if t == ticket));
    assert!(step.idle);
}

#[test]
fn an_heir_with_another_ttl_starts_anew() {
    let mut queue = KeyQueue::<u64, ()>::new();
    queue.enter(Seat::new(1), want(1000, true), Some(9), || ()).unwrap();
    queue.enter(Seat::new(2), want(5000, true), Some(9), || ()).unwrap();
    let ticket = Ticket::new(owner(1), ttl(1000)).send();
    queue.driving(Seat::new(1), ticket);
    let step = queue.gave_up(Seat::new(1));
    assert!(matches!(step.news, Some((seat, (), News::Drive(None))) if seat == Seat::new(2)));
    assert!(matches!(step.store, Some(Leave::Cancel(_))));
}

#[test]
fn a_driver_that_stands_still_is_overtaken_by_the_first_behind_it_only() {
    let mut queue = KeyQueue::<u64, ()>::new();
    for seat in 1..=3 {
        queue.enter(Seat::new(seat), want(1000, true), Some(9), || ()).unwrap();
    }
    let ticket = Ticket::new(owner(1), ttl(1000)).send();
    let (mut second, mut third) = (None, None);
    for _ in 0..3 {
        queue.driving(Seat::new(1), ticket);
        assert!(queue.overtake(Seat::new(2), &mut second).news.is_none(), "it moves");
        assert!(queue.overtake(Seat::new(3), &mut third).news.is_none(), "it isn't the next");
    }
    let step = queue.overtake(Seat::new(2), &mut second);
    assert!(
        matches!(step.news, Some((seat, (), News::Drive(Some(heirs)))) if seat == Seat::new(2) && heirs == ticket)
    );
    assert!(step.store.is_none());
    assert!(!queue.driving(Seat::new(1), ticket), "it has to notice");
    assert_eq!(queue.granted(Seat::new(1), tenure(1), block(1, NOW, 1)), Err(1));
    assert!(queue.gave_up(Seat::new(1)).news.is_none());
    assert!(queue.overtake(Seat::new(3), &mut third).news.is_none(), "a new driver is given time");
    queue.granted(Seat::new(2), tenure(2), block(2, NOW, 1)).unwrap();
    assert!(queue.overtake(Seat::new(3), &mut third).news.is_none(), "a holder isn't overtaken");
}

/// The model: tasks that believe they hold, tickets that are out, leases that the store believes we hold.
fn history(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut queue = KeyQueue::<u64, ()>::new();
    let mut now = NOW;
    let mut next = 1u64;
    let mut waiting: Vec<Seat> = Vec::new();
    let mut driver: Option<(Seat, Option<Ticket>)> = None;
    let mut holder: Option<(Seat, u64)> = None;
    let mut at_store: HashMap<OwnerToken, ()> = HashMap::new();
    let mut last_token = FencingToken::new(0);
    let mut lease = 0u64;
    let mut apply = |step: Step<u64, ()>,
                     waiting: &mut Vec<Seat>,
                     driver: &mut Option<(Seat, Option<Ticket>)>,
                     holder: &mut Option<(Seat, u64)>,
                     at_store: &mut HashMap<OwnerToken, ()>,
                     released: Option<u64>| {
        match step.store {
            Some(Leave::Release(lease)) => {
                assert_eq!(Some(lease), released, "only the ended hold's lease goes back")
            }
            Some(Leave::Cancel(ticket)) => {
                assert!(at_store.remove(&ticket.owner).is_some(), "cancels what is out")
            }
            None => {}
        }
        match step.news {
            Some((seat, (), news)) => {
                assert_eq!(seat, waiting.remove(0), "first come, first served");
                assert!(driver.is_none() && holder.is_none(), "one at a time");
                match news {
                    News::Drive(ticket) => *driver = Some((seat, ticket)),
                    News::Granted(lease, token) => {
                        assert!(token > last_token);
                        last_token = token;
                        *holder = Some((seat, lease));
                    }
                }
            }
            None => assert!(waiting.is_empty(), "nobody is forgotten"),
        }
    };
    for _ in 0..24 {
        match random.u8(0..8) {
            0..3 => {
                next += 1;
                let wish = want([1000, 1000, 5000][random.usize(0..3)], random.u8(0..4) > 0);
                match queue.enter(Seat::new(next), wish, random.bool().then_some(8), || ()) {
                    Ok(Entry::Drive) => {
                        assert!(driver.is_none() && holder.is_none());
                        driver = Some((Seat::new(next), None));
                    }
                    Ok(Entry::Wait) => waiting.push(Seat::new(next)),
                    Err(_) => assert!(driver.is_some() || holder.is_some()),
                }
            }
            3 if !waiting.is_empty() => {
                let seat = waiting.remove(random.usize(0..waiting.len()));
                assert!(queue.leave(seat));
            }
            4 => {
                if let Some((seat, ticket)) = &mut driver {
                    let out = ticket.get_or_insert(Ticket::new(owner(next << 8), ttl(1000)).send());
                    assert!(queue.driving(*seat, *out));
                    at_store.insert(out.owner, ());
                }
            }
            5 => {
                if let Some((seat, Some(ticket))) = driver.take_if(|(_, ticket)| ticket.is_some()) {
                    if random.bool() {
                        lease += 1;
                        at_store.remove(&ticket.owner);
                        let token =
                            queue.granted(seat, tenure(lease), block(lease, now, random.u32(1..4))).unwrap();
                        assert!(token.get() >= lease * 10_000);
                        holder = Some((seat, lease));
                    } else {
                        let step = queue.gave_up(seat);
                        if let Some((_, (), News::Drive(Some(heirs)))) = &step.news {
                            assert_eq!(*heirs, ticket);
                        } else {
                            assert!(matches!(step.store, Some(Leave::Cancel(_))), "nothing out is forgotten");
                        }
                        apply(step, &mut waiting, &mut driver, &mut holder, &mut at_store, None);
                    }
                }
            }
            6 => {
                if let Some((seat, held)) = holder.take() {
                    let step = match random.u8(0..4) {
                        0 => queue.lost(|lease| *lease == held),
                        n => {
                            let step = queue.released(seat, now, n > 1);
                            let handed = matches!(step.news, Some((_, (), News::Granted(..))));
                            assert!(
                                handed || matches!(step.store, Some(Leave::Release(_))),
                                "no lease is forgotten"
                            );
                            step
                        }
                    };
                    apply(step, &mut waiting, &mut driver, &mut holder, &mut at_store, Some(held));
                    // A second release of the same hold, or a loss that comes late, changes nothing.
                    let again = queue.released(seat, now, true);
                    assert!(again.news.is_none() && again.store.is_none());
                }
            }
            _ => now = now + Duration::from_micros(random.u64(0..3_000)),
        }
        assert_eq!(queue.waiting(), waiting.len());
        assert_eq!(queue.tenure().is_some(), holder.is_some());
        if driver.is_none() && holder.is_none() {
            assert!(waiting.is_empty(), "somebody waits for nothing");
        }
    }
}

#[test]
fn random_schedules_keep_every_promise() {
    for seed in 0..120_000 {
        history(seed);
    }
}
