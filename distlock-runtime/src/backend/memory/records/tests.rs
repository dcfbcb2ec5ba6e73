use super::*;
use crate::token::OwnerToken;

fn claim(key: u8, retain: Duration) -> Claim {
    Claim {
        key: RecordKey::derive("test", &[&[key]]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [7; 32] },
        lease: Ttl::new(Ttl::MIN).unwrap(),
        after_crash: CrashPolicy::Takeover,
        retain,
        note: RecordNote::new(),
    }
}

fn outcome(records: &mut Records, claim: &Claim, now: Moment) -> Result<ClaimOutcome, BackendErrorKind> {
    records.claim(claim, now).map_err(|error| error.kind())
}

#[test]
fn a_full_table_refuses_what_is_new_and_answers_repeats() {
    let mut records = Records { capacity: 2, ..Records::default() };
    let now = Moment::from_nanos(0);
    let (first, second) = (claim(1, Duration::from_secs(60)), claim(2, Duration::from_secs(3600)));
    for claim in [&first, &second] {
        let Ok(ClaimOutcome::Claimed { fence, .. }) = outcome(&mut records, claim, now) else { panic!() };
        let lease = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
        let done = Settlement::Complete { response: "done".into(), retain: claim.retain };
        assert_eq!(records.settle(&lease, &done, now), Settled::Done);
    }
    let third = claim(3, Duration::from_secs(60));
    let refused = outcome(&mut records, &third, now);
    assert!(matches!(refused, Err(BackendErrorKind::OutOfMemory)), "{refused:?}");
    for key in [1, 2] {
        let repeat = outcome(&mut records, &claim(key, Duration::from_secs(60)), now);
        assert!(matches!(repeat, Ok(ClaimOutcome::Present(_))), "{repeat:?}");
    }
    // The first one's retention is over.
    let later = now + Duration::from_secs(61);
    assert!(matches!(outcome(&mut records, &third, later), Ok(ClaimOutcome::Claimed { .. })));
    // One that lapsed needs no room of its own to be taken over.
    let taken = outcome(&mut records, &claim(3, Duration::from_secs(60)), later + Duration::from_secs(1));
    assert!(matches!(taken, Ok(ClaimOutcome::Claimed { taken_over: true, .. })), "{taken:?}");
}
