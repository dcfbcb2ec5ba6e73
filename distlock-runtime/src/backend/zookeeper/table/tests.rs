use super::*;
use crate::backend::zookeeper::names::Place;
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

/// Another call, and what it finds.
fn call<'a>(table: &mut Table, request: &'a AcquireRequest, now: Moment) -> (Ask<'a>, Known) {
    let ask = Ask { request, call: table.call() };
    let known = table.known(ask, SESSION, now).unwrap();
    (ask, known)
}

/// One that has just sent.
fn asking<'a>(table: &mut Table, request: &'a AcquireRequest) -> Ask<'a> {
    let (ask, _) = call(table, request, at(0));
    table.ask(ask, at(0)).unwrap();
    ask
}

fn holding<'a>(table: &mut Table, request: &'a AcquireRequest) -> Ask<'a> {
    let ask = asking(table, request);
    assert!(table.placed(ask, &node(request), at(0)) && table.held(ask, 3, at(0)));
    ask
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
    let ask = holding(&mut table, &request);
    assert!(table.renewable(&request.lease(), SESSION).is_some());
    assert_eq!(table.renewable(&request.lease(), SESSION + 1), None);
    assert!(matches!(table.known(ask, SESSION + 1, at(1)), Ok(Known::Nothing)));
    table.session_ended(SESSION + 1);
    holding(&mut table, &request);
    table.session_ended(SESSION);
    assert!(table.get(request.owner).is_none());
}

#[test]
fn what_was_cancelled_is_refused_for_as_long_as_it_may_come_late() {
    let (mut table, request) = (Table::default(), request());
    let ask = asking(&mut table, &request);
    assert_eq!(table.cancel(&request, at(1)), Some((SESSION, None)));
    assert!(!table.placed(ask, &node(&request), at(2)), "its node came late");
    assert!(table.ask(ask, at(2)).is_err(), "nothing is sent any more");
    table.left(request.owner);
    let late = Ask { request: &request, call: table.call() };
    assert!(table.ask(late, at(3)).is_err() && table.known(late, SESSION, at(3)).is_err());
    for _ in 0..3_000 {
        table.cancel(&super::tests::request(), at(4));
    }
    assert!(table.known(late, SESSION, at(4)).is_err());
    for _ in 0..6_000 {
        table.cancel(&super::tests::request(), at(1_000_000));
    }
    assert!(table.cancelled.len() < 9_000, "they are forgotten: {}", table.cancelled.len());
}

#[test]
fn a_waiter_that_asks_no_more_loses_its_place() {
    let (mut table, request) = (Table::default(), request());
    let ask = asking(&mut table, &request);
    assert!(table.placed(ask, &node(&request), at(0)));
    let (ask, known) = call(&mut table, &request, at(9_000));
    assert!(matches!(known, Known::Waiting(_)), "{known:?}");
    assert!(table.lapse(at(10_001)).0.is_empty());
    assert_eq!(table.lapse(at(19_000)).0.len(), 1);
    assert!(!table.held(ask, 3, at(19_001)));
}

/// Whatever the one that was overtaken still hears: the place and the hold are the later call's.
#[test]
fn an_earlier_call_changes_nothing_any_more() {
    let (mut table, request) = (Table::default(), request());
    let early = asking(&mut table, &request);
    let (late, known) = call(&mut table, &request, at(1));
    assert!(matches!(known, Known::Asked), "the first may have a node: {known:?}");
    let powerless = |table: &mut Table| {
        assert!(table.known(early, SESSION, at(2)).is_err() && table.ask(early, at(2)).is_err());
        assert!(!table.placed(early, &node(&request), at(2)) && !table.held(early, 9, at(2)));
        assert!(table.nothing_left(early).is_err() && table.withdraw(early).is_err());
        assert!(table.undo(early).is_err() && !table.hold_gone(early, &node(&request)));
        table.end(early);
    };
    powerless(&mut table);
    table.nothing_left(late).unwrap();
    powerless(&mut table);
    table.ask(late, at(3)).unwrap();
    assert!(table.placed(late, &node(&request), at(3)));
    powerless(&mut table);
    assert!(table.held(late, 3, at(4)));
    powerless(&mut table);
    assert_eq!(table.renewable(&request.lease(), SESSION), Some(node(&request)));
    assert_eq!(table.next(), at(1_004), "nobody shortened the lease");
    assert!(table.leave(&request.lease()).is_some());
    table.left(request.owner);
    // Also when all is over: what is sent then, nobody would give back.
    assert!(table.ask(early, at(5)).is_err() && !table.placed(early, &node(&request), at(5)));
    assert!(table.get(request.owner).is_none());
}

#[test]
fn a_call_that_sent_nothing_leaves_nothing() {
    let (mut table, request) = (Table::default(), request());
    let (ask, _) = call(&mut table, &request, at(0));
    table.end(ask);
    assert!(table.get(request.owner).is_none());
    let (ask, _) = call(&mut table, &request, at(0));
    assert!(table.lapse(at(20_000)).0.is_empty() && table.get(request.owner).is_none());
    assert!(table.ask(ask, at(20_001)).is_err());
    call(&mut table, &request, at(0));
    assert_eq!(table.cancel(&request, at(1)), None, "there is nothing to look for");
    assert!(table.get(request.owner).is_none());
}

/// Of several in one step all go if one isn't granted, also those that were before.
#[test]
fn what_was_granted_is_undone_by_its_own_call_only() {
    let (mut table, request) = (Table::default(), request());
    holding(&mut table, &request);
    let (again, known) = call(&mut table, &request, at(1));
    assert!(matches!(known, Known::Held(..)) && table.withdraw(again).is_err());
    assert!(matches!(table.undo(again), Ok(Known::Waiting(_))));
    table.withdraw(again).unwrap();
    assert_eq!(table.renewable(&request.lease(), SESSION), None);
}

#[test]
fn what_is_kept_goes_in_its_time() {
    let mut table = Table::default();
    table.keep("/n/k/kept-x".to_owned(), at(600));
    assert_eq!(table.kept_for("/n/k/kept-x", at(100)), Some(Duration::from_millis(500)));
    assert!(table.lapse(at(599)).1.is_empty());
    assert_eq!(table.lapse(at(600)).1, ["/n/k/kept-x"]);
}
