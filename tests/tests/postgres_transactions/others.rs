//! Several transactions that claim at once, or wait for each other.

use std::time::Duration;

use distlock::ErrorKind;
use distlock::postgres::Begun;
use distlock::records::{Resolved, Settlement};
use distlock_tests::wait;
use tokio_postgres::{IsolationLevel, Transaction};

use super::{LIMIT, Shop, pay};

#[tokio::test]
async fn who_does_not_wait_is_told_and_its_transaction_goes_on() {
    let shop = Shop::open().await;
    let (mut one, mut other) = (shop.client().await, shop.client().await);
    let mut first = one.transaction().await.unwrap();
    pay(&shop, &mut first, "k").await.unwrap();
    let mut second = other.transaction().await.unwrap();
    for wait in [Duration::ZERO, Duration::from_millis(50)] {
        let error = shop.records.claim("k").wait(wait).begin(&mut second).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InFlight, "{error}");
    }
    let limit = second.query_one("show lock_timeout", &[]).await.unwrap();
    assert_eq!(limit.get::<_, &str>(0), "0", "the transaction's own setting is as it was");
    assert_eq!(pay(&shop, &mut second, "other").await.unwrap(), "paid other");
    second.commit().await.unwrap();
    first.commit().await.unwrap();
    assert_eq!((shop.effects("k").await, shop.effects("other").await), (1, 1));
}

/// The second waits; if the first commits, it gets its response, and if the first rolls back, it executes.
#[tokio::test]
async fn who_waits_goes_on_as_the_first_one_ends() {
    let shop = Shop::open().await;
    let (mut one, mut other) = (shop.client().await, shop.client().await);
    for (key, commits) in [("committed", true), ("rolled back", false)] {
        let mut first = one.transaction().await.unwrap();
        pay(&shop, &mut first, key).await.unwrap();
        let mut second = other.transaction().await.unwrap();
        let waiting = async {
            let claim = shop.records.claim(key).wait(LIMIT);
            let begun = claim.begin(&mut second).await.unwrap();
            assert_eq!(matches!(begun, Begun::Completed(_)), commits, "{begun:?}");
            if let Begun::Execute(claim) = begun {
                shop.write(&second, key).await;
                claim.complete(&mut second, "by the second").await.unwrap();
            }
        };
        let ending = async {
            shop.somebody_waits(key).await;
            if commits { first.commit().await.unwrap() } else { first.rollback().await.unwrap() }
        };
        tokio::join!(waiting, ending);
        second.commit().await.unwrap();
        assert_eq!(shop.effects(key).await, 1, "{key}");
    }
}

/// Longer than the server can count: it waits for as long as that can.
#[tokio::test]
async fn any_wait_can_be_waited() {
    let shop = Shop::open().await;
    let (mut one, mut other) = (shop.client().await, shop.client().await);
    for wait in [Duration::MAX, Duration::from_secs(30 * 86_400)] {
        let mut first = one.transaction().await.unwrap();
        pay(&shop, &mut first, "k").await.unwrap();
        let mut second = other.transaction().await.unwrap();
        let waiting = async { shop.records.claim("k").wait(wait).begin(&mut second).await };
        let ending = async {
            shop.somebody_waits("k").await;
            first.rollback().await.unwrap();
        };
        let begun = tokio::select! {
            begun = waiting => begun,
            () = async { ending.await; std::future::pending().await } => unreachable!(),
        };
        assert!(matches!(begun.unwrap(), Begun::Execute(_)));
    }
}

/// The control looks for its record before it writes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_hundred_duplicates_one_has_its_effect() {
    let shop = Shop::open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (shop, mut client) = (shop.clone(), shop.client().await);
        tasks.spawn(async move {
            for _ in 0..10 {
                let mut tx = client.transaction().await.unwrap();
                let claim = shop.records.claim("storm").fingerprint(&("card-7", 1250));
                let receipt: (String, u64) = match claim.begin(&mut tx).await.unwrap() {
                    Begun::Completed(response) => response.value().unwrap(),
                    Begun::Execute(claim) => {
                        shop.write(&tx, "storm").await;
                        let receipt = ("paid".to_owned(), 1250);
                        claim.complete_with(&mut tx, &receipt).await.unwrap();
                        receipt
                    }
                };
                assert_eq!(receipt, ("paid".to_owned(), 1250));
                tx.commit().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(shop.effects("storm").await, 1);

    naive_table(&shop).await;
    let both = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let (shop, mut client, both) = (shop.clone(), shop.client().await, both.clone());
        tasks.spawn(async move {
            let tx = client.transaction().await.unwrap();
            pay_naively(&shop, &tx, "naive", async {
                both.wait().await;
            })
            .await;
            tx.commit().await.unwrap();
        });
    }
    tasks.join_all().await;
    assert_eq!(shop.effects("naive").await, 2, "the naive one must be caught");
}

/// A transaction whose snapshot is older than the record is refused as by any write, and sees it when it is run again. The
/// control sees the past.
#[tokio::test]
async fn under_an_older_snapshot_nothing_runs_twice() {
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        let shop = Shop::open().await;
        let (mut one, mut other) = (shop.client().await, shop.client().await);
        let mut late = one.build_transaction().isolation_level(level).start().await.unwrap();
        late.query("select 1", &[]).await.unwrap();
        let mut first = other.transaction().await.unwrap();
        pay(&shop, &mut first, "k").await.unwrap();
        first.commit().await.unwrap();
        let error = pay(&shop, &mut late, "k").await.unwrap_err();
        assert!(error.kind() == ErrorKind::Connection && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("run the transaction again"), "{error}");
        drop(late);
        let mut again = one.build_transaction().isolation_level(level).start().await.unwrap();
        assert_eq!(pay(&shop, &mut again, "k").await.unwrap(), "paid k");
        again.commit().await.unwrap();
        assert_eq!(shop.effects("k").await, 1);

        naive_table(&shop).await;
        let late = one.build_transaction().isolation_level(level).start().await.unwrap();
        late.query("select 1", &[]).await.unwrap();
        let first = other.transaction().await.unwrap();
        pay_naively(&shop, &first, "naive", async {}).await;
        first.commit().await.unwrap();
        pay_naively(&shop, &late, "naive", async {}).await;
        let committed = late.commit().await;
        let effects = shop.effects("naive").await;
        assert_eq!((committed.is_ok(), effects), (true, 2), "the naive one must be caught under {level:?}");
    }
}

/// Two that wait for each other's keys: the database ends one of them, which says that it may be run again.
#[tokio::test]
async fn two_that_wait_for_each_other_are_seen() {
    let shop = Shop::open().await;
    let (mut one, mut other) = (shop.client().await, shop.client().await);
    let (mut first, mut second) = (one.transaction().await.unwrap(), other.transaction().await.unwrap());
    pay(&shop, &mut first, "a").await.unwrap();
    pay(&shop, &mut second, "b").await.unwrap();
    let crossed = async |mut tx: Transaction<'_>, key: &str| {
        let claim = shop.records.claim(key).wait(LIMIT);
        match claim.begin(&mut tx).await {
            Ok(Begun::Execute(claim)) => {
                shop.write(&tx, key).await;
                claim.complete(&mut tx, "by the other").await.unwrap();
                tx.commit().await.unwrap();
                true
            }
            Ok(begun) => panic!("{begun:?}"),
            Err(error) => {
                assert!(error.kind() == ErrorKind::Connection && error.is_retryable(), "{error}");
                tx.rollback().await.unwrap();
                false
            }
        }
    };
    let ended = tokio::join!(crossed(first, "b"), crossed(second, "a"));
    assert_ne!(ended.0, ended.1, "one of them");
    assert_eq!((shop.effects("a").await, shop.effects("b").await), (1, 1));
}

/// A long transaction isn't waited for by an operator, whose statements go over the connection that all locks of the process use.
#[tokio::test]
async fn who_resolves_waits_for_no_transaction() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let claim = || shop.records.claim("k").retain(Duration::from_secs(1));
    let mut tx = client.transaction().await.unwrap();
    assert!(matches!(claim().begin(&mut tx).await.unwrap(), Begun::Execute(_)));
    tx.commit().await.unwrap();
    let records = shop.manager().await.records().unwrap();
    let key = shop.records.record("k").unwrap();
    // Its retention is over: another transaction has it.
    let mut tx = client.transaction().await.unwrap();
    wait::until("the record to end", LIMIT, async || match claim().begin(&mut tx).await {
        Ok(begun) => matches!(begun, Begun::Execute(_)).then_some(()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
            None
        }
    })
    .await
    .unwrap();
    assert_eq!(records.resolve(&key, Settlement::Release).await.unwrap(), Resolved::Refused);
    tx.rollback().await.unwrap();
}

/// The naive record: looks for it, and writes it with the effect. `looked` is when it has looked.
async fn pay_naively(shop: &Shop, tx: &Transaction<'_>, key: &str, looked: impl Future<Output = ()>) {
    let table = format!("{}_naive", shop.namespace);
    let look = format!("select from {table} where key = $1 limit 1");
    let is_new = tx.query_opt(&look, &[&key]).await.unwrap().is_none();
    looked.await;
    if is_new {
        shop.write(tx, key).await;
        tx.execute(&format!("insert into {table} values ($1)"), &[&key]).await.unwrap();
    }
}

async fn naive_table(shop: &Shop) {
    let create = format!("create table {}_naive (key text not null)", shop.namespace);
    shop.client().await.batch_execute(&create).await.unwrap();
}
