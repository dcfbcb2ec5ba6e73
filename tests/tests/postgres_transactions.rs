//! Records that commit with an application's own transaction: one effect for each key, whatever happens to the transactions.

mod postgres_shop;

use std::time::Duration;

use distlock::postgres::{Begun, SqlTransaction, SqlValue, TransactionalRecords};
use distlock::records::{Packing, RecordFilter, RecordScope, RecordStatus, Resolved, SealKeys, Settlement};
use distlock::{ErrorKind, LockError};
use distlock_tests::server::PgBouncer;
use distlock_tests::wait;
use tokio_postgres::{IsolationLevel, Transaction};

use postgres_shop::{LIMIT, Shop};

/// Claims, writes and keeps a response; the caller commits.
async fn pay(shop: &Shop, tx: &mut Transaction<'_>, key: &str) -> Result<String, LockError> {
    match shop.records.claim(key).begin(tx).await? {
        Begun::Completed(response) => Ok(String::from_utf8(response.bytes().to_vec()).unwrap()),
        Begun::Execute(claim) => {
            shop.write(tx, key).await;
            let receipt = format!("paid {key}");
            claim.complete(tx, receipt.clone()).await?;
            Ok(receipt)
        }
    }
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
