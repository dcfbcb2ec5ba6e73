//! Fencing tokens.

use distlock_runtime::backend::{Attempt, Backend as _};
use distlock_tests::server::{EtcdCluster, EtcdSetup};

use super::tools::{Client, eventually, key, queued, request};

/// 5000 grants of one key, ended by release, force, cancel, expiry and a restart of the store: each has a larger token than all
/// before. The control counts in the value of a name that goes with its lease, and begins anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_tokens_grow_over_5000_grants() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let clients = [Client::open(&cluster, "one"), Client::open(&cluster, "two")];
    let mut admin = cluster.client().await.unwrap();
    let lock = key("tokens");
    let (mut last, mut naive_last, mut naive_fell) = (0, 0, 0);
    for round in 0..5_000 {
        let client = &clients[round % 2];
        let expires = round % 500 == 250;
        let request = queued(&lock, if expires { 200 } else { 30_000 });
        let grant = eventually("a grant", async || match client.try_acquire(&request).await {
            Ok(Attempt::Granted(grant)) => Some(grant),
            // The store was restarted just now.
            Ok(_) | Err(_) => None,
        })
        .await;
        assert!(grant.token.get() > last, "round {round}: {} after {last}", grant.token);
        last = grant.token.get();
        if round % 50 == 0 {
            admin.put("naive", "", None).await.unwrap();
            let version = admin.get("naive", None).await.unwrap().kvs()[0].version();
            naive_fell += u32::from(version <= naive_last);
            naive_last = version;
        }
        match round % 10 {
            _ if expires => {
                let free = async || client.inspect(&lock).await.unwrap().holder.is_none().then_some(());
                eventually("the lease to lapse", free).await;
                admin.delete("naive", None).await.unwrap();
            }
            3 => drop(clients[1 - round % 2].force_release(&lock).await.unwrap()),
            6 => client.cancel(&request).await.unwrap(),
            _ => drop(client.release(&request.lease(), None).await.unwrap()),
        }
        if round % 2_000 == 1_999 {
            cluster.restart(0).await.unwrap();
            admin = cluster.client().await.unwrap();
        }
    }
    assert!(naive_fell > 0, "the naive counter never began anew");
}

/// A token is constant in a hold: repeats and renewals bring none, and `tokens` asks for a block in vain.
#[tokio::test]
async fn a_token_is_the_revision_of_the_name() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let one = Client::open(&cluster, "one");
    let request = distlock_runtime::backend::AcquireRequest { tokens: 64, ..request(&key("k"), 30_000) };
    let grant = one.granted(&request).await;
    assert_eq!(grant.tokens, 1);
    one.renew(&[request.lease()]).await;
    assert_eq!(one.granted(&request).await.token, grant.token);
    let name = format!("distlock/lock/k/{}", request.owner.to_hex());
    let found = cluster.client().await.unwrap().get(name, None).await.unwrap();
    assert_eq!(u64::try_from(found.kvs()[0].create_revision()).unwrap(), grant.token.get());
}
