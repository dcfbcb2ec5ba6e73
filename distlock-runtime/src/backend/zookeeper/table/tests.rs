use super::*;
use crate::ttl::Ttl;

const SESSION: i64 = 7;

fn request() -> AcquireRequest {
    AcquireRequest {
        key: LockKey::new("k").unwrap(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(Duration::from_secs(1)).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: true,
        tokens: 1,
    }
}

fn at(millis: u64) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

fn node(request: &AcquireRequest) -> Node {
    let name = format!("{}0000000001", super::super::names::prefix(request.mode, request.owner));
    Node { lock: "/n/k".to_owned(), place: Place::read(&name).unwrap(), czxid: 3, ctime: 0, made: at(0) }
}

fn holding(table: &mut Table, request: &AcquireRequest) {
    table.ask(request, SESSION, at(0)).unwrap();
    assert!(table.placed(request.owner, &node(request), at(0)));
    assert!(table.held(request.owner, 3, request.ttl.as_duration(), at(0)));
}

#[test]
fn a_hold_lapses_unless_it_is_renewed() {
    let (mut table, request) = (Table::default(), request());
    holding(&mut table, &request);
    assert_eq!(table.next(), at(1_000));
    assert!(table.renewed(request.owner, Duration::from_secs(1), at(500)));
    assert!(table.renewed(request.owner, Duration::from_millis(100), at(600)), "never shortened");
    assert!(table.lapse(at(1_499)).0.is_empty());
    assert_eq!(table.lapse(at(1_500)).0[0].owner, request.owner);
    assert!(!table.renewed(request.owner, Duration::from_secs(1), at(1_501)));
    assert_eq!(table.renewable(&request.lease(), SESSION), None);
    assert!(table.leave(&request.lease()).is_some(), "the node must still go");
    table.remove(request.owner);
    assert_eq!(table.next(), Moment::NEVER);
}

#[test]
fn a_node_of_an_earlier_session_is_never_taken_for_ours() {
    let (mut table, request) = (Table::default(), request());
    holding(&mut table, &request);
    assert!(table.renewable(&request.lease(), SESSION).is_some());
    assert_eq!(table.renewable(&request.lease(), SESSION + 1), None);
    assert!(matches!(table.known(&request, SESSION + 1, at(1)), Ok(Known::Nothing)));
    holding(&mut table, &request);
    table.session_ended(SESSION);
    assert!(table.get(request.owner).is_none());
}

#[test]
fn what_was_cancelled_is_refused_for_as_long_as_it_may_come_late() {
    let (mut table, request) = (Table::default(), request());
    table.ask(&request, SESSION, at(0)).unwrap();
    assert_eq!(table.cancel(&request, at(1)), Some((SESSION, None)));
    assert!(!table.placed(request.owner, &node(&request), at(2)), "its node came late");
    table.remove(request.owner);
    assert!(table.ask(&request, SESSION, at(3)).is_err() && table.known(&request, SESSION, at(3)).is_err());
    for _ in 0..3_000 {
        table.cancel(&super::tests::request(), at(4));
    }
    assert!(table.known(&request, SESSION, at(4)).is_err());
    for _ in 0..6_000 {
        table.cancel(&super::tests::request(), at(1_000_000));
    }
    assert!(table.cancelled.len() < 9_000, "they are forgotten: {}", table.cancelled.len());
}

#[test]
fn a_waiter_that_asks_no_more_loses_its_place() {
    let (mut table, request) = (Table::default(), request());
    table.ask(&request, SESSION, at(0)).unwrap();
    assert!(table.placed(request.owner, &node(&request), at(0)));
    assert!(matches!(table.known(&request, SESSION, at(9_000)), Ok(Known::Waiting(_))));
    assert!(table.lapse(at(10_001)).0.is_empty());
    assert_eq!(table.lapse(at(19_000)).0.len(), 1);
    assert!(!table.held(request.owner, 3, Duration::from_secs(1), at(19_001)));
}

#[test]
fn what_is_kept_goes_in_its_time() {
    let mut table = Table::default();
    table.keep("/n/k/kept-x".to_owned(), at(600));
    assert_eq!(table.kept_for("/n/k/kept-x", at(100)), Some(Duration::from_millis(500)));
    assert!(table.lapse(at(599)).1.is_empty());
    assert_eq!(table.lapse(at(600)).1, ["/n/k/kept-x"]);
}
