//! Waist: quotas of scopes.

use std::time::Duration;

use super::Store;
use super::inventory::fresh_scope;
use super::records::{Desk, claim, complete, fresh_record};
use super::tools::{eventually, ms};
use crate::backend::{
    Charge, Claim, Quota, RecordKey, RecordNote, RecordScope, Reservation, Reserved, Settlement,
};

async fn reserve(desk: &Desk, scope: RecordScope, key: RecordKey, quota: Quota, hold: Duration) -> Reserved {
    desk.records.reserve(&Reservation { scope, key, hold, quota }).await.unwrap()
}

async fn charge(desk: &Desk, scope: RecordScope, key: RecordKey, settlement: &Settlement) {
    desk.records.charge(&Charge::of(scope, key, settlement)).await.unwrap();
}

/// A scope has as many places as its quota says; who has one keeps it, and one that is given back can be taken.
pub async fn places_are_bounded_by_keys(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let (scope, hour) = (fresh_scope(), ms(3_600_000));
    let quota = Quota::new().keys(2);
    let [one, two, three] = [fresh_record(), fresh_record(), fresh_record()];
    for key in [one, two, one] {
        assert_eq!(reserve(&desk, scope, key, quota, hour).await, Reserved::Granted);
    }
    assert_eq!(reserve(&desk, scope, three, quota, hour).await, Reserved::Full { keys: 2, bytes: 0 });
    assert_eq!(reserve(&desk, fresh_scope(), three, quota, hour).await, Reserved::Granted, "another scope");
    charge(&desk, scope, one, &Settlement::Release).await;
    assert_eq!(reserve(&desk, scope, three, quota, hour).await, Reserved::Granted);
    assert_eq!(reserve(&desk, scope, two, quota, hour).await, Reserved::Granted, "it has its place");
    assert_eq!(reserve(&desk, scope, one, quota, hour).await, Reserved::Full { keys: 2, bytes: 0 });
}

/// Bytes count from the settlement, once for each record; what has no place isn't counted.
pub async fn places_are_bounded_by_bytes(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let (scope, hour) = (fresh_scope(), ms(3_600_000));
    let quota = Quota::new().bytes(10);
    let [one, two, three] = [fresh_record(), fresh_record(), fresh_record()];
    assert_eq!(reserve(&desk, scope, one, quota, hour).await, Reserved::Granted);
    for _ in 0..3 {
        charge(&desk, scope, one, &complete(b"123456789")).await;
    }
    charge(&desk, scope, three, &complete(b"123456789")).await;
    assert_eq!(reserve(&desk, scope, two, quota, hour).await, Reserved::Granted, "9 of 10 bytes");
    charge(&desk, scope, two, &complete(b"1")).await;
    assert_eq!(reserve(&desk, scope, three, quota, hour).await, Reserved::Full { keys: 2, bytes: 10 });
    charge(&desk, scope, one, &Settlement::Tombstone { reason: "x".into(), retain: hour }).await;
    assert_eq!(reserve(&desk, scope, three, quota, hour).await, Reserved::Granted);
}

/// A place ends by itself: with its hold if nothing is heard of it, else with the retention.
pub async fn places_end_by_themselves(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let (scope, hour) = (fresh_scope(), ms(3_600_000));
    let quota = Quota::new().keys(2);
    let [one, two, three, four] = [fresh_record(), fresh_record(), fresh_record(), fresh_record()];
    assert_eq!(reserve(&desk, scope, one, quota, ms(100)).await, Reserved::Granted);
    assert_eq!(reserve(&desk, scope, two, quota, hour).await, Reserved::Granted);
    let brief = Settlement::Complete { response: b"12".to_vec().into(), retain: ms(100) };
    charge(&desk, scope, two, &brief).await;
    for key in [three, four] {
        eventually("a place to end", async || {
            (reserve(&desk, scope, key, quota, hour).await == Reserved::Granted).then_some(())
        })
        .await;
    }
    assert_eq!(reserve(&desk, scope, one, quota, hour).await, Reserved::Full { keys: 2, bytes: 0 });
}

/// A purge gives back the places of what it forgets.
pub async fn a_purge_gives_places_back(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let (scope, hour) = (fresh_scope(), ms(3_600_000));
    let quota = Quota::new().keys(1).bytes(100);
    let first = Claim { note: RecordNote::new().with_scope(scope), ..claim(fresh_record()) };
    assert_eq!(reserve(&desk, scope, first.key, quota, hour).await, Reserved::Granted);
    let (lease, _) = desk.claimed(&first).await;
    desk.settled(&lease, &complete(b"done")).await;
    charge(&desk, scope, first.key, &complete(b"done")).await;
    assert_eq!(
        reserve(&desk, scope, fresh_record(), quota, hour).await,
        Reserved::Full { keys: 1, bytes: 4 }
    );
    assert_eq!(desk.records.purge(&scope, 100).await.unwrap().removed, 1);
    assert_eq!(reserve(&desk, scope, fresh_record(), quota, hour).await, Reserved::Granted);
}
