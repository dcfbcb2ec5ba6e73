//! Waist: claims of idempotency records.

use std::sync::Arc;

use tokio::time::Instant;

use super::Store;
use super::tools::{eventually, in_time, ms, ttl};
use crate::backend::{
    Claim, ClaimOutcome, CrashPolicy, Fingerprint, Record, RecordKey, RecordLease, RecordNote, RecordState,
    RecordStore, Renewal, Settled, Settlement,
};
use crate::token::{FencingToken, OwnerToken};

/// A record store with its background work running.
pub(super) struct Desk {
    pub(super) records: Arc<dyn RecordStore>,
    serving: tokio::task::JoinHandle<()>,
}

impl Desk {
    /// `None` for a store without records, which the suite has checked elsewhere.
    pub(super) async fn open(store: &impl Store) -> Option<Self> {
        if !store.has_records() {
            return None;
        }
        let backend = store.backend("desk").await;
        let records = backend.clone().records().expect("the store says that it has records");
        Some(Self { records, serving: tokio::spawn(async move { backend.serve().await }) })
    }

    pub(super) async fn claimed(&self, claim: &Claim) -> (RecordLease, bool) {
        match self.records.claim(claim).await.unwrap() {
            ClaimOutcome::Claimed { fence, taken_over, .. } => (lease(claim, fence), taken_over),
            other => panic!("not claimed but {other:?}"),
        }
    }

    pub(super) async fn present(&self, claim: &Claim) -> Record {
        match self.records.claim(claim).await.unwrap() {
            ClaimOutcome::Present(record) => record,
            other => panic!("not present but {other:?}"),
        }
    }

    pub(super) async fn settled(&self, lease: &RecordLease, settlement: &Settlement) -> Settled {
        self.records.settle(lease, settlement).await.unwrap()
    }

    pub(super) async fn state(&self, key: &RecordKey) -> Option<RecordState> {
        Some(self.records.look_up(key).await.unwrap()?.state)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

pub(super) fn fresh_record() -> RecordKey {
    RecordKey::derive("conformance", &[&fastrand::u128(..).to_be_bytes()])
}

pub(super) fn claim(key: RecordKey) -> Claim {
    Claim {
        key,
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 3, digest: [7; 32] },
        lease: ttl(30_000),
        after_crash: CrashPolicy::Reject,
        retain: ms(3_600_000),
        note: RecordNote::new(),
    }
}

pub(super) fn lease(claim: &Claim, fence: FencingToken) -> RecordLease {
    RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease }
}

pub(super) fn complete(response: &[u8]) -> Settlement {
    Settlement::Complete { response: response.to_vec().into(), retain: ms(3_600_000) }
}

/// Waits until the lease of a record in flight has run out.
pub(super) async fn lapsed(desk: &Desk, key: &RecordKey) {
    eventually("the claim to lapse", async || {
        let RecordState::InFlight { remaining } = desk.state(key).await? else { panic!("not in flight") };
        remaining.is_zero().then_some(())
    })
    .await;
}

/// The first claim executes, the next sees it in flight with its fingerprint, and a repeat goes on as owner under the
/// same fence.
pub async fn one_claim_executes_and_others_see_it_in_flight(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let key = fresh_record();
    assert_eq!(desk.records.look_up(&key).await.unwrap(), None);
    let first = claim(key);
    let (lease, taken_over) = desk.claimed(&first).await;
    assert!(!taken_over);
    let record =
        desk.present(&Claim { fingerprint: Fingerprint { version: 9, digest: [0; 32] }, ..claim(key) }).await;
    assert_eq!(record.fingerprint, first.fingerprint, "that of the claim that executes");
    let RecordState::InFlight { remaining } = record.state else { panic!("{record:?}") };
    assert!(remaining > ms(15_000) && remaining <= ms(30_000), "{remaining:?}");
    assert_eq!(desk.claimed(&first).await, (lease, false), "a repeat continues");
    let looked = desk.records.look_up(&key).await.unwrap().unwrap();
    assert!(matches!(looked.state, RecordState::InFlight { .. }));
    assert_eq!(looked.fingerprint, first.fingerprint);
}

/// Of many claims at once, one executes.
pub async fn of_many_claims_at_once_one_executes(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    for _ in 0..5 {
        let key = fresh_record();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let records = desk.records.clone();
            tasks.spawn(async move { records.claim(&claim(key)).await.unwrap() });
        }
        let outcomes = tasks.join_all().await;
        let claimed =
            outcomes.iter().filter(|outcome| matches!(outcome, ClaimOutcome::Claimed { .. })).count();
        assert_eq!(claimed, 1);
    }
}

/// A claim lives for as long as it is renewed, and only the claim that executes can be renewed.
pub async fn a_renewed_claim_lives_on(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let first = Claim { lease: ttl(1_500), ..claim(fresh_record()) };
    let (held, _) = desk.claimed(&first).await;
    let stranger = RecordLease { owner: OwnerToken::random().unwrap(), ..held.clone() };
    let wrong_fence = RecordLease { fence: FencingToken::new(held.fence.get() + 1), ..held.clone() };
    let nothing = RecordLease { key: fresh_record(), ..held.clone() };
    let start = Instant::now();
    while start.elapsed() < ms(3_500) {
        let leases = [stranger.clone(), held.clone(), wrong_fence.clone(), nothing.clone()];
        let outcomes = desk.records.renew_claims(&leases).await;
        use Renewal::{Gone, Renewed};
        assert!(matches!(outcomes.as_slice(), [Gone, Renewed { .. }, Gone, Gone]), "{outcomes:?}");
        assert!(matches!(desk.present(&claim(first.key)).await.state, RecordState::InFlight { .. }));
        tokio::time::sleep(ms(100)).await;
    }
    assert_eq!(desk.state(&nothing.key).await, None, "a renewal makes no record");
    desk.settled(&held, &complete(b"x")).await;
    assert!(matches!(desk.records.renew_claims(&[held]).await.as_slice(), [Renewal::Gone]));
}

/// After a crash under `Takeover`, the next claim executes with a larger fence, and the late one is fenced off.
pub async fn a_lapsed_claim_is_taken_over_and_its_late_commit_is_fenced(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let takeover = |key| Claim { lease: ttl(100), after_crash: CrashPolicy::Takeover, ..claim(key) };
    let key = fresh_record();
    let (dead, _) = desk.claimed(&takeover(key)).await;
    lapsed(&desk, &key).await;
    let (heir, taken_over) = desk.claimed(&Claim { lease: ttl(30_000), ..takeover(key) }).await;
    assert!(taken_over && heir.fence > dead.fence);
    for settlement in [complete(b"late"), Settlement::Release, Settlement::Unknown { retain: ms(60_000) }] {
        assert_eq!(desk.settled(&dead, &settlement).await, Settled::Fenced);
    }
    assert!(matches!(
        desk.records.renew_claims(std::slice::from_ref(&dead)).await.as_slice(),
        [Renewal::Gone]
    ));
    assert!(matches!(desk.state(&key).await, Some(RecordState::InFlight { .. })));
    assert_eq!(desk.settled(&heir, &complete(b"heir")).await, Settled::Done);
    assert_eq!(desk.settled(&dead, &complete(b"late")).await, Settled::Fenced);
    assert_eq!(desk.state(&key).await, Some(RecordState::Completed { response: b"heir".to_vec().into() }));
}

/// A crash under `Takeover` is taken over by the same request only.
pub async fn a_lapsed_claim_is_not_taken_over_by_another_request(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let takeover = |key| Claim { lease: ttl(100), after_crash: CrashPolicy::Takeover, ..claim(key) };
    let key = fresh_record();
    let dead = takeover(key);
    desk.claimed(&dead).await;
    lapsed(&desk, &key).await;
    let other = Claim { fingerprint: Fingerprint { version: 3, digest: [8; 32] }, ..takeover(key) };
    assert_eq!(desk.present(&other).await.fingerprint, dead.fingerprint);
    assert!(desk.claimed(&takeover(key)).await.1);
}

/// A claim whose work was never begun can be withdrawn: as if it had never been. Withdrawing changes nothing of others and
/// nothing that is settled.
pub async fn a_withdrawn_claim_leaves_nothing(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let (key, never) = (fresh_record(), fresh_record());
    let first = claim(key);
    desk.claimed(&first).await;
    desk.records.withdraw(&first).await.unwrap();
    assert_eq!(desk.state(&key).await, None);
    let second = claim(key);
    let (lease, taken_over) = desk.claimed(&second).await;
    assert!(!taken_over);
    desk.records.withdraw(&first).await.unwrap();
    assert!(matches!(desk.state(&key).await, Some(RecordState::InFlight { .. })), "another's claim stays");
    assert_eq!(desk.settled(&lease, &complete(b"done")).await, Settled::Done);
    desk.records.withdraw(&second).await.unwrap();
    assert!(matches!(desk.state(&key).await, Some(RecordState::Completed { .. })), "what is settled stays");
    desk.records.withdraw(&claim(never)).await.unwrap();
    assert_eq!(desk.state(&never).await, None);
}

/// After a crash under `Reject`, nothing runs again: the record says that nobody knows.
pub async fn a_lapsed_claim_becomes_unknown_under_reject(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let key = fresh_record();
    let (dead, _) = desk.claimed(&Claim { lease: ttl(100), ..claim(key) }).await;
    lapsed(&desk, &key).await;
    for _ in 0..2 {
        assert_eq!(desk.present(&claim(key)).await.state, RecordState::Unknown);
    }
    assert_eq!(desk.settled(&dead, &complete(b"late")).await, Settled::Fenced);
    assert_eq!(desk.state(&key).await, Some(RecordState::Unknown));
    // Not even a claim that would take over a crashed one: this one is settled.
    let takeover = Claim { after_crash: CrashPolicy::Takeover, ..claim(key) };
    assert_eq!(desk.present(&takeover).await.state, RecordState::Unknown);
}

/// A record whose executor died and that nobody asks for is forgotten after its retention: stores don't fill up with them.
pub async fn a_lapsed_claim_is_forgotten_after_its_retention(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let key = fresh_record();
    desk.claimed(&Claim { lease: ttl(100), retain: ms(100), ..claim(key) }).await;
    eventually("the record to go", async || desk.state(&key).await.is_none().then_some(())).await;
    let (_, taken_over) = desk.claimed(&claim(key)).await;
    assert!(!taken_over, "nobody knows any more that there was another");
}

/// A claim that lapsed but that nobody took over is still its executor's to settle.
pub async fn a_lapsed_claim_that_nobody_took_can_be_settled(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let key = fresh_record();
    let (late, _) = desk.claimed(&Claim { lease: ttl(100), ..claim(key) }).await;
    lapsed(&desk, &key).await;
    assert_eq!(desk.settled(&late, &complete(b"late")).await, Settled::Done);
    assert_eq!(desk.state(&key).await, Some(RecordState::Completed { response: b"late".to_vec().into() }));
}

/// Who waits for a record is told when it is settled, and doesn't have to find out by asking now and then.
pub async fn who_waits_for_a_record_is_told(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let mut took = Vec::new();
    for n in 0..15 {
        let first = claim(fresh_record());
        let (lease, _) = desk.claimed(&first).await;
        let waited = async {
            while matches!(desk.state(&first.key).await, Some(RecordState::InFlight { .. })) {
                desk.records.changed(&first.key, ms(10_000)).await;
            }
            Instant::now()
        };
        let settle = async {
            tokio::time::sleep(ms(10)).await;
            let settlement = if n % 2 == 0 { complete(b"x") } else { Settlement::Release };
            let start = Instant::now();
            assert_eq!(desk.settled(&lease, &settlement).await, Settled::Done);
            start
        };
        let (end, start) = in_time("news of a record", async { tokio::join!(waited, settle) }).await;
        took.push(end - start);
    }
    took.sort();
    assert!(took[took.len() / 2] < ms(100), "half of the waits took longer: {took:?}");
    // Of what isn't in flight there is nothing to wait for.
    let start = Instant::now();
    desk.records.changed(&fresh_record(), ms(300)).await;
    assert!(start.elapsed() < ms(5_000));
}
