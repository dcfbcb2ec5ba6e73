//! Ways into a Cluster, and what is said when there is none.

use distlock::{ErrorKind, LockManager};
use distlock_tests::server::{ClientCerts, ClusterGroup, PortLease, RedisOptions, RedisServer};

use super::{SECOND, manager, now};

/// One server of it is enough to find the others, and some of those named may be away, or be something else.
#[tokio::test]
async fn any_server_leads_to_all() {
    let group = ClusterGroup::start_with(2, 1, RedisOptions::new().password("secret"));
    let (nobody, stranger) = (PortLease::any().unwrap(), RedisServer::start(RedisOptions::new()).unwrap());
    let ports = [nobody.number(), stranger.port(), group.servers()[3].port()];
    let places = ports.map(|port| format!("127.0.0.1:{port}"));
    let locks = LockManager::connect(&format!("redis+cluster://:secret@{}", places.join(","))).await.unwrap();
    for server in [0, 1] {
        let guard = locks.mutex(group.name_at(server)).lock().await.unwrap();
        let key = format!("distlock:{}", guard.key());
        assert!(group.servers()[server].has(&key).await.unwrap());
        guard.release().await.unwrap();
    }

    for wrong in ["", ":wrong@"] {
        let error = LockManager::connect(&group.url_as(wrong, "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(!error.to_string().contains("wrong@"), "{error}");
    }
}

/// The servers' certificates are verified here too.
#[tokio::test]
async fn servers_speak_tls() {
    let group = ClusterGroup::start_with(1, 0, RedisOptions::new().tls(ClientCerts::Required));
    let files = group.servers()[0].tls().unwrap();
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    let locks = manager(&group, &format!("tls=on&ca={ca}&cert={cert}&key={key}")).await;
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    let error = LockManager::connect(&group.url("tls=on")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// TLS among the servers too, and over a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_failover_is_followed_over_tls() {
    let group = ClusterGroup::start_with(3, 1, RedisOptions::new().tls(ClientCerts::Required));
    let files = group.servers()[0].tls().unwrap();
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    let locks = manager(&group, &format!("tls=on&ca={ca}&cert={cert}&key={key}")).await;
    let name = group.name_at(0);
    let guard = locks.mutex(name.as_str()).ttl(40 * SECOND).lock().await.unwrap();
    group.replicated(0).await;
    group.servers()[0].kill().unwrap();
    group.failed_over(0).await;
    locks.mutex(format!("{name}:2")).wait(20 * SECOND).lock().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// Nobody there is an outage, a server that is no Cluster a mistake. Both are said soon.
#[tokio::test]
async fn an_outage_and_a_mistake_are_told_apart_and_soon() {
    let start = now();
    let nobody = [PortLease::any().unwrap(), PortLease::any().unwrap()];
    let url =
        format!("redis+cluster://:s3cret@127.0.0.1:{},127.0.0.1:{}", nobody[0].number(), nobody[1].number());
    let error = LockManager::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");

    let lone = RedisServer::start(RedisOptions::new()).unwrap();
    let error = LockManager::connect(&format!("redis+cluster://{}", lone.address())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    assert!(error.to_string().contains("cluster support disabled"), "{error}");
    assert!(now() - start < 5 * SECOND, "{:?}", now() - start);
}

/// The least that a user needs, with what a Cluster needs on top of it, is enough.
#[tokio::test]
async fn the_least_privileged_user_suffices() {
    let line = include_str!("../redis_backend/least-privilege.acl").trim();
    let line = line.strip_prefix("ACL SETUSER ").unwrap().replace('\n', " ");
    let more = "+cluster|slots +cluster|info +asking +spublish +ssubscribe +sunsubscribe &distlock!{*}!c:*";
    let group = ClusterGroup::start_with(2, 0, RedisOptions::new().user(format!("{line} {more}")));
    let url = group.url_as("locks:secret@", "");
    let connect = || LockManager::builder().detect_circles().connect(&url);
    let (one, two) = (connect().await.unwrap(), connect().await.unwrap());
    for server in [0, 1] {
        let name = group.name_at(server);
        let held = one.mutex(&name).lock().await.unwrap();
        let waiting = tokio::spawn(two.mutex(&name).wait(10 * SECOND).lock());
        super::until("somebody waits", async || one.inspect(name.as_str()).await.unwrap().waiters == 1).await;
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        drop(one.rw_lock(format!("{name}-rw")).read().await.unwrap());
        drop(two.semaphore(format!("{name}-sem"), 2).acquire().await.unwrap());
        assert_eq!(
            one.idempotent(format!("{name}-call"))
                .run(async { Ok::<_, distlock::LockError>(7) })
                .await
                .unwrap(),
            7
        );
    }
    drop(one.mutex_all(["a", "b", "c"]).lock().await.unwrap());
    for server in group.servers() {
        let mut admin = server.admin().await.unwrap();
        let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut admin).await.unwrap();
        // The check at start asks for what it may not know, and leaves it out.
        let refused: Vec<String> = refused.iter().map(|entry| format!("{entry:?}")).collect();
        let start =
            |entry: &&String| ["config|get", "\"info\"", "'info'"].iter().any(|word| entry.contains(word));
        assert!(refused.iter().all(|entry| start(&entry)), "{refused:#?}");
    }
}
