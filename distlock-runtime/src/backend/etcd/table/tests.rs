use super::*;
use crate::backend::etcd::watch::{Sight, Watches};

fn owner(number: u8) -> OwnerToken {
    OwnerToken::from_hex(&format!("{number:032x}")).unwrap()
}

fn attempt(table: &Table, number: u8, millis: u64, now: Moment) -> Option<(Busy<'_>, Option<Standing>)> {
    table.attempt(owner(number), || "name".to_owned(), Duration::from_millis(millis), now)
}

/// Of a name that was made at revision 1.
fn has(role: Role, at: i64, until: Moment) -> Has {
    Has { role, lease: Lease::for_tests(), created: 1, at, length: Duration::from_secs(1), until }
}

fn held() -> Role {
    Role::Held { token: FencingToken::new(1) }
}

fn waiting() -> Role {
    let sight = Sight { name: Vec::new(), is_range: false, changes: false, from: 1 };
    Role::Waiting(Arc::new(Waiting {
        wake: Watches::default().watch(sight),
        blocked: Blocked::default(),
        seen: at(0),
        waited: AtomicBool::new(false),
    }))
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

#[test]
fn an_attempt_that_is_dropped_is_open_and_comes_due() {
    let table = Table::default();
    let (busy, before) = attempt(&table, 1, 1_000, at(0)).unwrap();
    assert!(before.is_none());
    assert!(table.due(at(100_000)).0.is_empty(), "it is under way");
    drop(busy);
    let (due, _) = table.due(at(100_000));
    assert!(due.len() == 1 && due[0].1.is_open);
    assert!(attempt(&table, 1, 1_000, at(100_000)).is_none(), "it is being taken away");
    assert!(table.due(at(100_000)).0.is_empty(), "by somebody already");
    table.postpone(owner(1), at(100_000), Duration::from_millis(100));
    assert_eq!(table.due(at(100_100)).0.len(), 1);
    table.forget(owner(1));
    assert!(table.get(owner(1)).is_none());
}

#[test]
fn what_left_nothing_is_forgotten_unless_an_earlier_attempt_is_open() {
    let table = Table::default();
    attempt(&table, 1, 1_000, at(0)).unwrap().0.failed();
    assert!(table.get(owner(1)).is_none());
    drop(attempt(&table, 1, 1_000, at(0)).unwrap());
    let (busy, before) = attempt(&table, 1, 1_000, at(1)).unwrap();
    assert!(before.unwrap().is_open);
    busy.failed();
    assert!(table.get(owner(1)).is_some());
}

#[test]
fn a_hold_does_not_lapse_while_it_is_being_renewed_and_is_not_renewed_while_it_lapses() {
    let table = Table::default();
    let (busy, _) = attempt(&table, 1, 1_000, at(0)).unwrap();
    busy.has(has(held(), 1, at(1_000)));
    let (renewal, _) = table.renewal(owner(1), |_| true).unwrap();
    assert!(table.due(at(2_000)).0.is_empty());
    assert!(renewal.renewed(Some(at(2_500)), Duration::from_secs(1), None));
    assert!(table.due(at(2_400)).0.is_empty());
    assert_eq!(table.due(at(2_500)).0.len(), 1);
    assert!(table.renewal(owner(1), |_| true).is_none());
}

/// A repeat that certainly did nothing says nothing of what there is: a place or a hold goes on, and ends by its own time.
#[test]
fn a_repeat_that_failed_forgets_no_place_and_no_hold() {
    for role in [waiting(), held()] {
        let table = Table::default();
        attempt(&table, 1, 1_000, at(0)).unwrap().0.has(has(role, 1, at(1_000)));
        attempt(&table, 1, 1_000, at(1)).unwrap().0.failed();
        let standing = table.get(owner(1)).expect("it stands in the store");
        assert_eq!(table.due(at(100_000)).0.len(), 1, "{standing:?}");
    }
    // Nor of what another attempt got beside it.
    let table = Table::default();
    let (slow, _) = attempt(&table, 1, 1_000, at(0)).unwrap();
    attempt(&table, 1, 1_000, at(1)).unwrap().0.has(has(held(), 1, at(1_000)));
    slow.failed();
    assert!(table.renewal(owner(1), |_| true).is_some());
}

/// Two attempts of one acquisition may be under way, and answers be taken late: what an older revision says isn't believed.
#[test]
fn an_older_answer_takes_nothing_from_a_newer_one() {
    let table = Table::default();
    let older = || attempt(&table, 1, 1_000, at(0)).unwrap().0;
    let held_until = || {
        let (renewal, standing) = table.renewal(owner(1), |_| true).expect("it is held");
        renewal.renewed(None, Duration::ZERO, None);
        standing.until
    };
    let (queued, again) = (older(), older());
    older().has(Has { created: 5, ..has(held(), 9, at(1_000)) });
    queued.has(Has { created: 5, ..has(waiting(), 8, at(9_000)) });
    assert_eq!(held_until(), at(1_000));
    again.has(Has { created: 5, ..has(held(), 8, at(1_500)) });
    assert_eq!(held_until(), at(1_500), "as long as the longest answer says");
    older().had_nothing(8);
    assert_eq!(held_until(), at(1_500));
    older().had_nothing(10);
    assert!(table.get(owner(1)).is_none());
}

/// A call may end after what it was about: then that is taken away at once, and not at the next occasion.
#[tokio::test]
async fn the_end_of_a_call_past_the_end_is_told() {
    let table = Table::default();
    attempt(&table, 1, 1_000, at(0)).unwrap().0.has(has(held(), 1, at(1_000)));
    let (renewal, _) = table.renewal(owner(1), |_| true).unwrap();
    let _ = is_told(&table).await;
    assert_eq!(table.due(at(2_000)).1, None);
    renewal.renewed(None, Duration::ZERO, None);
    assert!(is_told(&table).await && table.due(at(2_000)).0.len() == 1);
}

async fn is_told(table: &Table) -> bool {
    tokio::time::timeout(Duration::ZERO, table.earlier.notified()).await.is_ok()
}

#[tokio::test]
async fn a_hold_that_ends_later_than_another_wakes_nobody() {
    let table = Table::default();
    let get = |number, until| {
        attempt(&table, number, 1_000, at(0)).unwrap().0.has(has(held(), 1, until));
    };
    get(1, at(1_000));
    assert!(is_told(&table).await);
    assert_eq!(table.due(at(0)).1, Some(at(1_000)));
    get(2, at(1_001));
    assert!(!is_told(&table).await);
    get(3, at(999));
    assert!(is_told(&table).await);
    table.forget(owner(3));
    get(4, at(999));
    assert!(!is_told(&table).await, "a look is planned for then");
}

#[test]
fn a_conversion_takes_nothing_from_a_renewal_beside_it() {
    let table = Table::default();
    let second = Duration::from_secs(1);
    let (busy, _) = attempt(&table, 1, 1_000, at(0)).unwrap();
    busy.has(has(held(), 1, at(1_000)));
    let (conversion, _) = table.renewal(owner(1), |_| true).unwrap();
    let (renewal, _) = table.renewal(owner(1), |_| true).unwrap();
    assert!(renewal.renewed(Some(at(1_500)), second, None));
    conversion.has(has(held(), 2, at(1_200)));
    assert!(table.due(at(1_499)).0.is_empty());
}

#[test]
fn the_next_end_is_told() {
    let table = Table::default();
    drop(attempt(&table, 1, 1_000, at(0)).unwrap());
    drop(attempt(&table, 2, 20_000, at(0)).unwrap());
    let (due, next) = table.due(at(9_999));
    assert!(due.is_empty() && next == Some(at(10_000)));
    let (due, next) = table.due(at(10_000));
    assert!(due.len() == 1 && next == Some(at(25_000)));
}
