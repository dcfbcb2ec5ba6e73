//! What becomes of a claim: with its transaction, with its response, and later on.

use std::time::Duration;

use distlock::ErrorKind;
use distlock::postgres::Begun;
use distlock::records::{Packing, RecordFilter, RecordScope, RecordStatus, Resolved, SealKeys, Settlement};
use distlock_tests::wait;

use super::{LIMIT, Shop, pay};

#[tokio::test]
async fn what_was_committed_is_replayed() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    for _ in 0..3 {
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(pay(&shop, &mut tx, "k").await.unwrap(), "paid k");
        tx.commit().await.unwrap();
    }
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(pay(&shop, &mut tx, "other").await.unwrap(), "paid other");
    tx.commit().await.unwrap();
    assert_eq!((shop.effects("k").await, shop.effects("other").await), (1, 1));
}

/// Any bytes are a response.
#[tokio::test]
async fn responses_are_kept_byte_by_byte() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for (key, response) in [("empty", &[][..]), ("nul", b"\0"), ("all", &all)] {
        let mut tx = client.transaction().await.unwrap();
        let Begun::Execute(claim) = shop.records.claim(key).begin(&mut tx).await.unwrap() else {
            panic!("new")
        };
        claim.complete(&mut tx, response.to_vec()).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        let Begun::Completed(found) = shop.records.claim(key).begin(&mut tx).await.unwrap() else {
            panic!("kept")
        };
        assert!(found.bytes() == response, "{key}");
    }
}

#[tokio::test]
async fn a_rollback_and_a_dropped_transaction_leave_nothing() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    for ending in 0..3 {
        let mut tx = client.transaction().await.unwrap();
        pay(&shop, &mut tx, "k").await.unwrap();
        match ending {
            0 => tx.rollback().await.unwrap(),
            1 => drop(tx),
            // The statement fails, and with it the transaction.
            _ => drop(tx.execute("select 1 / 0", &[]).await.unwrap_err()),
        }
    }
    assert_eq!(shop.effects("k").await, 0);
    let mut tx = client.transaction().await.unwrap();
    let Begun::Execute(claim) = shop.records.claim("k").begin(&mut tx).await.unwrap() else {
        panic!("new again")
    };
    claim.complete(&mut tx, "done").await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn another_request_with_the_key_is_refused() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let claim = |cents: u64| shop.records.claim("k").fingerprint(&("card-7", cents));
    let mut tx = client.transaction().await.unwrap();
    let Begun::Execute(first) = claim(1250).begin(&mut tx).await.unwrap() else { panic!("new") };
    first.complete_with(&mut tx, &7).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let error = claim(1).begin(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::KeyReused, "{error}");
    let Begun::Completed(response) = claim(1250).begin(&mut tx).await.unwrap() else { panic!("done") };
    assert_eq!(response.value::<u64>().unwrap(), 7);
    assert_eq!(response.value::<String>().unwrap_err().kind(), ErrorKind::RecordUnreadable);
}

/// A transaction that commits without having settled its claim has run something: nothing runs again before somebody has looked.
#[tokio::test]
async fn a_commit_without_a_response_is_an_unknown_outcome() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let tx = {
        let mut tx = client.transaction().await.unwrap();
        let begun = shop.records.claim("k").begin(&mut tx).await.unwrap();
        assert!(matches!(begun, Begun::Execute(_)));
        shop.write(&tx, "k").await;
        tx
    };
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let error = pay(&shop, &mut tx, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    tx.commit().await.unwrap();
    // An operator finds out that it had no effect.
    let records = shop.manager().await.records().unwrap();
    let key = shop.records.record("k").unwrap();
    assert_eq!(records.resolve(&key, Settlement::Release).await.unwrap(), Resolved::Done);
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(pay(&shop, &mut tx, "k").await.unwrap(), "paid k");
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_claim_may_be_forgotten_or_settled_without_a_response() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let mut fences = Vec::new();
    for _ in 0..2 {
        let mut tx = client.transaction().await.unwrap();
        let Begun::Execute(claim) = shop.records.claim("k").begin(&mut tx).await.unwrap() else {
            panic!("new")
        };
        fences.push(claim.fence());
        claim.forget(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert!(fences[0] < fences[1]);
    let mut tx = client.transaction().await.unwrap();
    let Begun::Execute(claim) = shop.records.claim("k").begin(&mut tx).await.unwrap() else { panic!("new") };
    claim.complete_without(&mut tx, "too long").await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let error = pay(&shop, &mut tx, "k").await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::ResultNotRetained && error.to_string().contains("too long"),
        "{error}"
    );
}

#[tokio::test]
async fn a_record_ends_with_its_retention() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let claim = || shop.records.claim("k").retain(Duration::from_secs(1));
    let mut tx = client.transaction().await.unwrap();
    let Begun::Execute(first) = claim().begin(&mut tx).await.unwrap() else { panic!("new") };
    let fence = first.fence();
    first.complete(&mut tx, "done").await.unwrap();
    tx.commit().await.unwrap();
    let next = wait::until("the record to end", LIMIT, async || {
        let mut tx = client.transaction().await.unwrap();
        match claim().begin(&mut tx).await.unwrap() {
            Begun::Execute(claim) => Some(claim.fence()),
            Begun::Completed(_) => None,
        }
    });
    assert!(next.await.unwrap() > fence);
    let error = shop.records.claim("k").retain(Duration::ZERO).prepare().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}

#[tokio::test]
async fn responses_can_be_sealed() {
    let mut shop = Shop::open().await;
    shop.records = shop.records.packing(Packing::new().compress().seal(SealKeys::new(1, [7; 32])));
    let mut client = shop.client().await;
    for _ in 0..2 {
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(pay(&shop, &mut tx, "secret key").await.unwrap(), "paid secret key");
        tx.commit().await.unwrap();
    }
    let look = "select result, note from distlock.record where namespace = $1";
    let row = client.query_one(look, &[&shop.namespace]).await.unwrap();
    let (result, note): (Vec<u8>, String) = (row.get(0), row.get(1));
    assert!(!result.windows(6).any(|window| window == b"secret") && !note.contains("secret"));
    // Without the keys it counts as executed.
    shop.records = shop.records.packing(Packing::new());
    let mut tx = client.transaction().await.unwrap();
    let error = pay(&shop, &mut tx, "secret key").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RecordUnreadable, "{error}");
}

/// They are records like all others: listed, looked at and purged.
#[tokio::test]
async fn operators_see_them() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let scope = RecordScope::derive(&[b"tenant-7"]);
    let mut tx = client.transaction().await.unwrap();
    let claim = shop.records.claim("k").scope(scope).trace("00-ab-cd-01");
    let Begun::Execute(claim) = claim.begin(&mut tx).await.unwrap() else { panic!("new") };
    let records = shop.manager().await.records().unwrap();
    assert_eq!(records.list(&RecordFilter::all(), 10).await.unwrap(), [], "not before the commit");
    claim.complete(&mut tx, "done").await.unwrap();
    tx.commit().await.unwrap();
    let [info] = &records.list(&RecordFilter::all().scope(scope), 10).await.unwrap()[..] else {
        panic!("one")
    };
    assert_eq!(info.key, shop.records.record("k").unwrap());
    assert_eq!(info.status, RecordStatus::Completed { bytes: 4 });
    assert_eq!((info.note.label(), info.note.trace()), (Some("k"), Some("00-ab-cd-01")));
    assert_eq!(records.purge(&scope, 10).await.unwrap().removed, 1);
    let mut tx = client.transaction().await.unwrap();
    assert!(matches!(shop.records.claim("k").begin(&mut tx).await.unwrap(), Begun::Execute(_)));
}
