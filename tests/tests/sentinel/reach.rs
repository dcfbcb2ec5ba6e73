//! Ways to the primary, and what is said when there is none.

use distlock::{ErrorKind, LockManager};
use distlock_tests::server::{ClientCerts, GROUP, PortLease, RedisOptions, SentinelGroup};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{SECOND, manager, now};

/// Password of the Sentinels, passwords of the servers, and TLS on either side.
#[tokio::test]
async fn sentinels_and_servers_have_their_own_credentials_and_tls() {
    let group = SentinelGroup::start_with(
        1,
        1,
        RedisOptions::new().password("servers"),
        RedisOptions::new().password("sentinels"),
    );
    let locks = manager(&group, "sentinel_password=sentinels").await;
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    for parameters in ["", "sentinel_password=wrong"] {
        let error = LockManager::connect(&group.url(parameters)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(error.to_string().contains("Sentinel"), "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }

    let options = RedisOptions::new();
    let group = SentinelGroup::start_with(0, 1, options.clone().tls(ClientCerts::Ignored), options.clone());
    let ca = group.servers()[0].tls().unwrap().ca.display().to_string();
    let locks = manager(&group, &format!("tls=on&sentinel_tls=off&ca={ca}")).await;
    drop(locks.mutex("k").lock().await.unwrap());

    let group = SentinelGroup::start_with(0, 1, options.clone(), options.tls(ClientCerts::Required));
    let files = group.sentinels()[0].tls().unwrap();
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    let locks = manager(&group, &format!("sentinel_tls=on&ca={ca}&cert={cert}&key={key}")).await;
    drop(locks.mutex("k").lock().await.unwrap());
}

/// TLS everywhere, and over a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_failover_is_followed_over_tls() {
    let tls = RedisOptions::new().tls(ClientCerts::Required);
    let group = SentinelGroup::start_with(1, 1, tls.clone(), tls);
    let files = group.servers()[0].tls().unwrap();
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    let locks = manager(&group, &format!("tls=on&ca={ca}&cert={cert}&key={key}")).await;
    let guard = locks.mutex("k").ttl(40 * SECOND).lock().await.unwrap();
    group.replicated("distlock:k").await;
    group.servers()[0].kill().unwrap();
    assert_eq!(group.failed_over().await, 1);
    locks.mutex("other").wait(20 * SECOND).lock().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// A wrong name is a mistake, no Sentinel an outage. Both are said soon.
#[tokio::test]
async fn a_wrong_name_and_an_outage_are_told_apart_and_soon() {
    let group = SentinelGroup::start_with(0, 1, RedisOptions::new(), RedisOptions::new());
    let start = now();
    let url = group.url("").replace(&format!("/{GROUP}"), "/carts");
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("\"carts\""), "{error}");

    let nobody = [PortLease::any().unwrap(), PortLease::any().unwrap()];
    let url = format!(
        "redis+sentinel://:s3cret@127.0.0.1:{},127.0.0.1:{}/{GROUP}",
        nobody[0].number(),
        nobody[1].number()
    );
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("Sentinel") && !error.to_string().contains("s3cret"), "{error}");
    assert!(now() - start < 10 * SECOND, "{:?}", now() - start);

    // One that is gone doesn't matter.
    let url = group.url("").replacen("://", &format!("://127.0.0.1:{},", nobody[0].number()), 1);
    drop(LockManager::connect(&url).await.unwrap().mutex("k").lock().await.unwrap());
}

/// Answers every question with this port on this machine.
async fn sentinel_that_says(port: u16) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut question = [0; 1024];
                while client.read(&mut question).await.is_ok_and(|length| length > 0) {
                    let answer =
                        format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.to_string().len());
                    client.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    own
}

/// A Sentinel that is behind the times names a replica: the next one is asked.
#[tokio::test]
async fn a_replica_is_not_taken_for_the_primary() {
    let group = SentinelGroup::start_with(1, 1, RedisOptions::new(), RedisOptions::new());
    let behind = sentinel_that_says(group.servers()[1].port()).await;
    let url = group.url("").replacen("://", &format!("://127.0.0.1:{behind},"), 1);
    let locks = LockManager::connect(&url).await.unwrap();
    drop(locks.mutex("k").lock().await.unwrap());

    // With nobody who knows better it is an outage.
    let url = format!("redis+sentinel://127.0.0.1:{behind}/{GROUP}?connect_timeout=500ms");
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("is a replica"), "{error}");
}
