//! Waist: how records are settled, and for how long they stay.

use super::Store;
use super::records::{Desk, claim, complete, fresh_record};
use super::tools::{eventually, ms};
use crate::backend::{RecordState, Settled, Settlement};

/// A completed record gives back its bytes, whatever they are, to claims and look-ups.
pub async fn a_completed_record_is_replayed_byte_by_byte(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let all: Vec<u8> = (0..=255).collect();
    for response in [&b""[..], b"\0", b"\r\n$-1\r\n", &all, &vec![b'x'; 1 << 20]] {
        let first = claim(fresh_record());
        let (lease, _) = desk.claimed(&first).await;
        assert_eq!(desk.settled(&lease, &complete(response)).await, Settled::Done);
        let expected = RecordState::Completed { response: response.to_vec().into() };
        for _ in 0..2 {
            let record = desk.present(&claim(first.key)).await;
            assert!(record.state == expected, "{} bytes", response.len());
            assert_eq!(record.fingerprint, first.fingerprint);
        }
        assert!(desk.state(&first.key).await == Some(expected));
        // Its own executor, too, finds it done.
        assert!(matches!(desk.present(&first).await.state, RecordState::Completed { .. }));
    }
}

/// A settlement that is tried again says `Done` and changes nothing; another one is refused.
pub async fn a_settlement_may_be_repeated_and_not_changed(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let retain = ms(3_600_000);
    let tombstone = Settlement::Tombstone { reason: "too large".to_owned(), retain };
    let settlements = [complete(b"a"), tombstone, Settlement::Unknown { retain }];
    for (n, settlement) in settlements.iter().enumerate() {
        let first = claim(fresh_record());
        let (lease, _) = desk.claimed(&first).await;
        assert_eq!(desk.settled(&lease, settlement).await, Settled::Done);
        let state = desk.state(&first.key).await.unwrap();
        match n {
            0 => assert_eq!(state, RecordState::Completed { response: b"a".to_vec().into() }),
            1 => assert_eq!(state, RecordState::Tombstone { reason: "too large".to_owned() }),
            _ => assert_eq!(state, RecordState::Unknown),
        }
        assert_eq!(desk.settled(&lease, settlement).await, Settled::Done, "{settlement:?} again");
        for (m, other) in settlements.iter().enumerate() {
            if m != n {
                assert_eq!(
                    desk.settled(&lease, other).await,
                    Settled::Fenced,
                    "{other:?} after {settlement:?}"
                );
            }
        }
        assert_eq!(desk.settled(&lease, &Settlement::Release).await, Settled::Fenced);
        assert_eq!(desk.state(&first.key).await, Some(state));
    }
}

/// A released record is forgotten: the next claim executes, under a larger fence.
pub async fn a_released_record_is_forgotten(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let first = claim(fresh_record());
    let (lease, _) = desk.claimed(&first).await;
    assert_eq!(desk.settled(&lease, &Settlement::Release).await, Settled::Done);
    assert_eq!(desk.state(&first.key).await, None);
    assert_eq!(
        desk.settled(&lease, &Settlement::Release).await,
        Settled::Done,
        "a repeat has what it wanted"
    );
    assert_eq!(desk.settled(&lease, &complete(b"late")).await, Settled::Fenced);
    assert_eq!(desk.state(&first.key).await, None, "a late commit makes no record");
    let (next, taken_over) = desk.claimed(&claim(first.key)).await;
    assert!(next.fence > lease.fence && !taken_over);
    assert_eq!(
        desk.settled(&lease, &Settlement::Release).await,
        Settled::Fenced,
        "another's claim is left alone"
    );
    assert!(matches!(desk.state(&first.key).await, Some(RecordState::InFlight { .. })));
}

/// Retention counts from the settlement; then the record is forgotten and may be claimed anew.
pub async fn a_settled_record_is_forgotten_after_its_retention(store: &impl Store) {
    let Some(desk) = Desk::open(store).await else { return };
    let retain = ms(300);
    let settlements = [
        Settlement::Complete { response: b"x".to_vec().into(), retain },
        Settlement::Tombstone { reason: "r".to_owned(), retain },
        Settlement::Unknown { retain },
    ];
    for settlement in settlements {
        let first = claim(fresh_record());
        let (lease, _) = desk.claimed(&first).await;
        let start = tokio::time::Instant::now();
        assert_eq!(desk.settled(&lease, &settlement).await, Settled::Done);
        let gone = async || desk.state(&first.key).await.is_none().then_some(());
        eventually("the record to be forgotten", gone).await;
        assert!(start.elapsed() >= retain, "{settlement:?} was kept for {:?}", start.elapsed());
        let (next, taken_over) = desk.claimed(&claim(first.key)).await;
        assert!(next.fence > lease.fence && !taken_over);
        assert_eq!(desk.settled(&lease, &settlement).await, Settled::Fenced);
    }
}
