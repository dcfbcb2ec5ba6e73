//! The transaction guard.

use distlock_runtime::backend::etcd::EtcdCompare;
use distlock_tests::server::{EtcdCluster, EtcdSetup};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};

use super::tools::{eventually, manager};

async fn write(client: &mut Client, lock: &EtcdCompare, value: &str) -> bool {
    let held = Compare::create_revision(lock.key(), CompareOp::Equal, lock.create_revision());
    let txn = Txn::new().when([held]).and_then([TxnOp::put("stock", value, None)]);
    client.txn(txn).await.unwrap().succeeded()
}

/// A transaction with the guard's comparison is applied while the lock is held, and not after, whoever has it then. The
/// control: a holder that lost its lock and compares nothing overwrites its successor.
#[tokio::test]
async fn a_write_under_a_lost_lock_is_not_applied() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let mut client = cluster.client().await.unwrap();
    let (one, two) = (manager(&cluster.url(), "one").await, manager(&cluster.url(), "two").await);
    let late = one.mutex("stock").ttl(std::time::Duration::from_secs(3)).lock().await.unwrap();
    let compare = late.etcd_compare().unwrap();
    assert_eq!(u64::try_from(compare.create_revision()).unwrap(), late.fencing_token().get());
    assert!(write(&mut client, &compare, "9").await);

    two.force_release("stock", "the test says so").await.unwrap();
    assert!(!write(&mut client, &compare, "8").await, "nobody holds it");
    let heir = two.mutex("stock").lock().await.unwrap();
    assert!(!write(&mut client, &compare, "8").await, "another holds it");
    assert!(write(&mut client, &heir.etcd_compare().unwrap(), "7").await);
    assert!(!write(&mut client, &compare, "8").await);
    let stock = client.get("stock", None).await.unwrap();
    assert_eq!(stock.kvs()[0].value(), b"7");

    client.put("stock", "8", None).await.unwrap();
    let stock = client.get("stock", None).await.unwrap();
    assert_eq!(stock.kvs()[0].value(), b"8", "what compares nothing is applied");

    eventually("the loss to be seen", async || late.etcd_compare().is_none().then_some(())).await;
    assert!(!format!("{compare:?}").contains(std::str::from_utf8(compare.key()).unwrap()));
}

/// It stays the same while the lease is renewed, lengthened and moved, and it ends with the hold.
#[tokio::test]
async fn the_comparison_outlasts_renewals_and_ends_with_the_release() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let mut client = cluster.client().await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let guard = locks.mutex("k").lock().await.unwrap();
    let compare = guard.etcd_compare().unwrap();
    for seconds in [30, 60, 90] {
        guard.extend(std::time::Duration::from_secs(seconds)).await.unwrap();
        assert_eq!(guard.etcd_compare().unwrap(), compare);
        assert!(write(&mut client, &compare, "x").await);
    }
    let kept = locks.mutex("kept").hold_at_least(std::time::Duration::from_secs(20)).lock().await.unwrap();
    let kept_compare = kept.etcd_compare().unwrap();
    kept.release().await.unwrap();
    guard.release().await.unwrap();
    for over in [compare, kept_compare] {
        assert!(!write(&mut client, &over, "y").await);
    }
}

/// A lock that is over for its holder has none, whatever the store says yet.
#[tokio::test]
async fn a_lock_that_is_held_for_too_long_has_none() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let most = std::time::Duration::from_secs(1);
    let guard = locks.mutex("k").max_hold(most).lock().await.unwrap();
    assert!(guard.etcd_compare().is_some());
    guard.lost().await;
    assert_eq!(guard.etcd_compare(), None);
}

/// Other stores have nothing to compare.
#[tokio::test]
async fn another_store_has_none() {
    let locks = manager("memory:", "one").await;
    assert_eq!(locks.mutex("k").lock().await.unwrap().etcd_compare(), None);
}
