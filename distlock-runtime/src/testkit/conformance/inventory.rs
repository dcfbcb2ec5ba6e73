//! Waist: looking through records, resolving and purging them.

use std::collections::BTreeSet;

use super::Store;
use super::records::{Desk, claim, complete, fresh_record, lapsed};
use super::tools::{ms, ttl};
use crate::backend::{
    Claim, CrashPolicy, Fingerprint, RecordFilter, RecordInfo, RecordKey, RecordNote, RecordScope,
    RecordState, RecordStatus, Resolved, Settled, Settlement,
};

pub(super) fn fresh_scope() -> RecordScope {
    RecordScope::derive(&[b"conformance", &fastrand::u128(..).to_be_bytes()])
}

fn of(scope: RecordScope) -> Claim {
    Claim { note: RecordNote::new().with_scope(scope), ..claim(fresh_record()) }
}

async fn listed(desk: &Desk, filter: RecordFilter) -> Vec<RecordInfo> {
    let mut found = desk.records.list_records(&filter, 1000).await.unwrap();
    found.sort_by_key(|info| info.key);
    found
}

async fn resolved(desk: &Desk, key: &RecordKey, settlement: &Settlement) -> Resolved {
    desk.records.resolve(key, None, settlement).await.unwrap()
}

/// What a claim left for people is there in flight, after the settlement, and in the list.
pub async fn a_note_is_read_back(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let scope = fresh_scope();
    let note = RecordNote::new().with_scope(scope).with_trace("00-ab-cd-01").with_label("payment:42 of é");
    let first = Claim { note: note.clone(), ..claim(fresh_record()) };
    let (lease, _) = desk.claimed(&first).await;
    assert_eq!(desk.present(&claim(first.key)).await.note, note);
    desk.settled(&lease, &complete(b"done")).await;
    assert_eq!(desk.records.look_up(&first.key).await.unwrap().unwrap().note, note);
    let [info] = &listed(&desk, RecordFilter::all().scope(scope)).await[..] else { panic!("one") };
    assert_eq!((info.key, &info.note), (first.key, &note));
    assert_eq!(info.status, RecordStatus::Completed { bytes: 4 });
    let silent = claim(fresh_record());
    desk.claimed(&silent).await;
    assert_eq!(desk.records.look_up(&silent.key).await.unwrap().unwrap().note, RecordNote::new());
}

/// The unresolved are those that are unknown, and those that were left in flight; the bound is kept.
pub async fn unresolved_records_are_listed(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let scope = fresh_scope();
    let (unknown, dead) = (of(scope), Claim { lease: ttl(100), ..of(scope) });
    let (alive, done, gone) = (of(scope), of(scope), of(scope));
    let (lease, _) = desk.claimed(&unknown).await;
    desk.settled(&lease, &Settlement::Unknown { retain: ms(3_600_000) }).await;
    desk.claimed(&dead).await;
    desk.claimed(&alive).await;
    let (lease, _) = desk.claimed(&done).await;
    desk.settled(&lease, &complete(b"done")).await;
    let (lease, _) = desk.claimed(&gone).await;
    let tombstone = Settlement::Tombstone { reason: "too-large".into(), retain: ms(3_600_000) };
    desk.settled(&lease, &tombstone).await;
    lapsed(&desk, &dead.key).await;

    let keys = |infos: &[RecordInfo]| infos.iter().map(|info| info.key).collect::<BTreeSet<_>>();
    let all = listed(&desk, RecordFilter::all().scope(scope)).await;
    assert_eq!(keys(&all), [&unknown, &dead, &alive, &done, &gone].map(|claim| claim.key).into());
    let status = |claim: &Claim| all.iter().find(|info| info.key == claim.key).unwrap().status.clone();
    assert!(matches!(status(&alive), RecordStatus::InFlight { remaining } if remaining > ms(10_000)));
    assert_eq!(status(&gone), RecordStatus::Tombstone { reason: "too-large".into() });
    let open = listed(&desk, RecordFilter::unresolved().scope(scope)).await;
    assert_eq!(keys(&open), [&unknown, &dead].map(|claim| claim.key).into());
    assert!(open.iter().all(|info| info.status.is_unresolved()), "{open:?}");
    let others = RecordFilter::all().scope(fresh_scope());
    assert_eq!(listed(&desk, others).await, []);
    let few = desk.records.list_records(&RecordFilter::all().scope(scope), 2).await.unwrap();
    assert_eq!(few.len(), 2);
}

/// An unresolved record is settled as its resolver says, and its execution, should it come back, is fenced off.
pub async fn an_unresolved_record_is_resolved_once(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let dead = Claim { lease: ttl(100), ..claim(fresh_record()) };
    let (late, _) = desk.claimed(&dead).await;
    lapsed(&desk, &dead.key).await;
    assert_eq!(resolved(&desk, &dead.key, &complete(b"by hand")).await, Resolved::Done);
    assert_eq!(resolved(&desk, &dead.key, &complete(b"again")).await, Resolved::Refused);
    assert_eq!(desk.settled(&late, &complete(b"late")).await, Settled::Fenced);
    assert_eq!(desk.settled(&late, &complete(b"by hand")).await, Settled::Fenced);
    let expected = RecordState::Completed { response: b"by hand".to_vec().into() };
    assert_eq!(desk.state(&dead.key).await, Some(expected));

    let unknown = claim(fresh_record());
    let (lease, _) = desk.claimed(&unknown).await;
    desk.settled(&lease, &Settlement::Unknown { retain: ms(3_600_000) }).await;
    let other = Some(Fingerprint { version: 3, digest: [9; 32] });
    let refused = desk.records.resolve(&unknown.key, other, &complete(b"x")).await.unwrap();
    assert_eq!(refused, Resolved::Refused, "of another request");
    assert_eq!(resolved(&desk, &unknown.key, &Settlement::Release).await, Resolved::Done);
    assert_eq!(resolved(&desk, &unknown.key, &Settlement::Release).await, Resolved::Absent);
    assert_eq!(desk.settled(&lease, &complete(b"late")).await, Settled::Fenced);
    desk.claimed(&claim(unknown.key)).await;
}

/// What is known, or under way, is not for a resolver.
pub async fn what_is_known_or_under_way_is_not_resolved(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let first = claim(fresh_record());
    assert_eq!(resolved(&desk, &first.key, &Settlement::Release).await, Resolved::Absent);
    let (lease, _) = desk.claimed(&first).await;
    assert_eq!(resolved(&desk, &first.key, &Settlement::Release).await, Resolved::Refused);
    assert_eq!(desk.settled(&lease, &complete(b"done")).await, Settled::Done);
    assert_eq!(resolved(&desk, &first.key, &Settlement::Release).await, Resolved::Refused);
    let expected = RecordState::Completed { response: b"done".to_vec().into() };
    assert_eq!(desk.state(&first.key).await, Some(expected));
}

/// A purge forgets what is of its scope, within its bound, and leaves what is under way.
pub async fn a_purge_takes_its_scope_and_nothing_under_way(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let (scope, other) = (fresh_scope(), of(fresh_scope()));
    let (lease, _) = desk.claimed(&other).await;
    desk.settled(&lease, &complete(b"other")).await;
    let alive = of(scope);
    let (lease, _) = desk.claimed(&alive).await;
    for _ in 0..4 {
        let (lease, _) = desk.claimed(&of(scope)).await;
        desk.settled(&lease, &complete(b"done")).await;
    }
    let dead = Claim { lease: ttl(100), after_crash: CrashPolicy::Takeover, ..of(scope) };
    desk.claimed(&dead).await;
    lapsed(&desk, &dead.key).await;

    let purged = desk.records.purge(&scope, 3).await.unwrap();
    assert!(purged.removed == 3 && !purged.is_complete, "{purged:?}");
    let purged = desk.records.purge(&scope, 100).await.unwrap();
    assert!(purged.removed == 2 && purged.in_flight == 1 && purged.is_complete, "{purged:?}");
    let left = listed(&desk, RecordFilter::all().scope(scope)).await;
    assert_eq!(left.iter().map(|info| info.key).collect::<Vec<_>>(), [alive.key]);
    assert!(desk.state(&other.key).await.is_some(), "another's record stays");
    assert_eq!(desk.settled(&lease, &complete(b"done")).await, Settled::Done);
    assert_eq!(desk.state(&dead.key).await, None);
}
