//! Transactions, sessions and poolers, and the statements by themselves.

use std::time::Duration;

use distlock::ErrorKind;
use distlock::postgres::{Begun, SqlTransaction, SqlValue, TransactionalRecords};
use distlock_tests::server::PgBouncer;

use super::{Shop, pay};

#[tokio::test]
async fn a_claim_belongs_to_its_transaction() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let mut tx = client.transaction().await.unwrap();
    // A savepoint that is rolled back takes the claim with it.
    let mut inner = tx.transaction().await.unwrap();
    let Begun::Execute(claim) = shop.records.claim("k").begin(&mut inner).await.unwrap() else {
        panic!("new")
    };
    inner.rollback().await.unwrap();
    let error = claim.complete(&mut tx, "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    // The key can be had by others meanwhile.
    let mut other = shop.client().await;
    let mut second = other.transaction().await.unwrap();
    assert_eq!(pay(&shop, &mut second, "k").await.unwrap(), "paid k");
    second.commit().await.unwrap();
    assert_eq!(pay(&shop, &mut tx, "k").await.unwrap(), "paid k");
    assert_eq!(shop.effects("k").await, 1);
}

/// What a transaction committed without settling is an unknown outcome for everybody, also for who still has its claim.
#[tokio::test]
async fn a_claim_ends_with_its_transaction() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let prepared = shop.records.claim("k").prepare().unwrap();
    let mut tx = client.transaction().await.unwrap();
    let answer = tx.fetch(prepared.statement()).await.unwrap();
    let again = tx.fetch(prepared.statement()).await.unwrap();
    assert_eq!(again, answer, "the same claim in the same transaction");
    let Begun::Execute(claim) = prepared.clone().read(answer).unwrap() else { panic!("new") };
    // Another claim of the same transaction isn't told that it had committed.
    let error = shop.records.claim("k").wait(Duration::ZERO).begin(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InFlight, "{error}");
    tx.commit().await.unwrap();

    let mut tx = client.transaction().await.unwrap();
    let error = prepared.clone().read(tx.fetch(prepared.statement()).await.unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    let error = claim.clone().forget(&mut tx).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    let error = claim.complete(&mut tx, "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Superseded, "{error}");
    tx.commit().await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let error = pay(&shop, &mut tx, "k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
}

/// A pooler may give each transaction another session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_works_behind_a_pooler() {
    let shop = Shop::open().await;
    let pooler = PgBouncer::start(shop.server.port(), 5).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (shop, url) = (shop.clone(), pooler.url());
        let mut client = distlock_tests::server::postgres_client(&url).await.unwrap();
        tasks.spawn(async move {
            for number in 0..10 {
                let key = format!("pooled-{number}");
                let mut tx = client.transaction().await.unwrap();
                assert_eq!(pay(&shop, &mut tx, &key).await.unwrap(), format!("paid {key}"));
                tx.commit().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    for number in 0..10 {
        assert_eq!(shop.effects(&format!("pooled-{number}")).await, 1);
    }
}

/// The session is ended by an administrator in the middle: nothing is left, and the next one executes.
#[tokio::test]
async fn a_session_that_ends_half_way_leaves_nothing() {
    let shop = Shop::open().await;
    let (mut client, admin) = (shop.client().await, shop.client().await);
    let mut tx = client.transaction().await.unwrap();
    let Begun::Execute(claim) = shop.records.claim("k").begin(&mut tx).await.unwrap() else { panic!("new") };
    shop.write(&tx, "k").await;
    let session: i32 = tx.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    admin.query("select pg_terminate_backend($1)", &[&session]).await.unwrap();
    let error = claim.complete(&mut tx, "late").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    drop(tx);
    let mut next = shop.client().await;
    let mut tx = next.transaction().await.unwrap();
    assert_eq!(pay(&shop, &mut tx, "k").await.unwrap(), "paid k");
    tx.commit().await.unwrap();
    assert_eq!(shop.effects("k").await, 1);
}

#[tokio::test]
async fn what_can_not_be_says_what_to_do() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    let mut tx = client.transaction().await.unwrap();
    let elsewhere = TransactionalRecords::new().schema("nowhere");
    let error = elsewhere.claim("k").begin(&mut tx).await.unwrap_err();
    assert!(
        error.kind() == ErrorKind::Config && error.to_string().contains("PostgresOptions::migration"),
        "{error}"
    );
    for wrong in ["", "No", "a-b", "a.b; drop table x"] {
        let error = TransactionalRecords::new().schema(wrong).claim("k").prepare().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{wrong}");
    }
    drop(tx);
    let mut reading = client.build_transaction().read_only(true).start().await.unwrap();
    let error = shop.records.claim("k").begin(&mut reading).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Config && error.to_string().contains("only reads"), "{error}");
}

/// For a client that isn't async: the statements by themselves.
#[tokio::test]
async fn the_statements_can_be_run_by_hand() {
    let shop = Shop::open().await;
    let mut client = shop.client().await;
    for round in 0..2 {
        let mut tx = client.transaction().await.unwrap();
        let prepared = shop.records.claim("k").prepare().unwrap();
        assert_eq!(prepared.statement().values().len(), prepared.statement().sql().matches('$').count());
        assert!(matches!(prepared.statement().values().next(), Some(SqlValue::Text(_))));
        let answer = tx.fetch(prepared.statement()).await.unwrap();
        match prepared.read(answer).unwrap() {
            Begun::Execute(claim) => {
                assert_eq!(round, 0);
                let completion = claim.completion("done").unwrap();
                let answer = tx.fetch(&completion).await.unwrap();
                claim.confirm(&answer).unwrap();
            }
            Begun::Completed(response) => assert_eq!((round, &response.bytes()[..]), (1, &b"done"[..])),
        }
        tx.commit().await.unwrap();
    }
}
