//! What is done to the server while locks are held: stopped and resumed, scripts forgotten, rights taken away, passwords changed.

use distlock::{ErrorKind, LockEvent};
use distlock_tests::{
    server::{RedisOptions, RedisServer},
    wait,
};

use crate::{LIMIT, connect, ms, start};

/// Half a ttl costs nothing; two ttl cost the lock, and the holder stops in time.
#[tokio::test]
async fn a_stopped_server_costs_the_lock_only_after_the_deadline() {
    let server = start();
    let locks = connect(&server.url()).await;
    let ttl = ms(4_000);
    let guard = locks.mutex("stopped").ttl(ttl).lock().await.unwrap();
    for _ in 0..2 {
        server.pause().unwrap();
        tokio::time::sleep(ttl / 2).await;
        guard.check().unwrap();
        server.resume().unwrap();
        wait::renewal(LIMIT, || guard.remaining()).await.unwrap();
    }
    server.pause().unwrap();
    let lost = tokio::time::timeout(ttl + ms(1_500), guard.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    // Two ttl in all: how long the server stands still is what is under test.
    tokio::time::sleep(ttl).await;
    server.resume().unwrap();
    // The key is gone with its ttl, and the renewals that the server finds in its socket now don't bring it back.
    let next = locks.mutex("stopped").ttl(ttl).wait(LIMIT).lock().await.unwrap();
    assert!(!guard.is_valid());
    drop(guard);
    wait::renewal(LIMIT, || next.remaining()).await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let server = start();
    let (locks, rival) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut events = locks.events();
    let mut admin = server.admin().await.unwrap();
    let held = locks.mutex("held").ttl(ms(3_000)).lock().await.unwrap();
    let end = wait::Deadline::after(ms(4_000));
    let mut rounds = 0;
    while !end.is_past() {
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut admin).await.unwrap();
        let guard = locks.mutex("flushed").lock().await.unwrap();
        let waiter = tokio::spawn(rival.mutex("flushed").wait(LIMIT).lock());
        crate::waiters(&locks, "flushed", 1).await;
        redis::cmd("SCRIPT").arg("FLUSH").exec_async(&mut admin).await.unwrap();
        if rounds % 2 == 0 {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        waiter.await.unwrap().unwrap().release().await.unwrap();
        held.check().unwrap();
        rounds += 1;
    }
    assert!(rounds > 10, "only {rounds} rounds");
    held.release().await.unwrap();
    drop(locks);
    while let Some(event) = events.next().await {
        assert!(!matches!(event, LockEvent::Lost { .. } | LockEvent::RenewalFailed { .. }), "{event:?}");
    }
}

/// A right that is taken away is reported at once, tried again until the deadline, and got over when it is given back.
#[tokio::test]
async fn revoked_rights_are_reported_and_got_over() {
    let server = RedisServer::start(RedisOptions::new().user("lk on >sesame ~* &* +@all")).unwrap();
    let locks = connect(&server.url_with("lk", "sesame", 0)).await;
    let mut events = locks.events();
    let mut admin = server.admin().await.unwrap();
    let mut rights = async |rights: &str| {
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg("lk").arg(rights).exec_async(&mut admin).await.unwrap();
    };
    let ttl = ms(4_500);
    let guard = locks.mutex("rights").ttl(ttl).lock().await.unwrap();
    for round in 0..2 {
        rights("-pexpire").await;
        let failed = async {
            loop {
                if let Some(LockEvent::RenewalFailed { error, .. }) = events.next().await {
                    return error;
                }
            }
        };
        let error = tokio::time::timeout(LIMIT, failed).await.unwrap();
        assert!(error.contains("can't run this command"), "{error}");
        if round == 0 {
            guard.check().unwrap();
            rights("+pexpire").await;
            wait::renewal(LIMIT, || guard.remaining()).await.unwrap();
        }
    }
    assert_eq!(tokio::time::timeout(LIMIT, guard.lost()).await.unwrap().kind(), ErrorKind::Lost);
    rights("-set").await;
    let error = locks.mutex("other").wait(LIMIT).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    rights("+@all").await;
    locks.mutex("other").lock().await.unwrap().release().await.unwrap();
}

/// A rotated password matters to new connections: then it is `PERMISSION`, and what is held is lost at its deadline at the latest.
#[tokio::test]
async fn a_rotated_password_is_permission_once_connections_are_opened_anew() {
    let server = RedisServer::start(RedisOptions::new().user("lk on >sesame ~* &* +@all")).unwrap();
    let locks = connect(&server.url_with("lk", "sesame", 0)).await;
    let guard = locks.mutex("rotated").ttl(ms(4_000)).lock().await.unwrap();
    let mut admin = server.admin().await.unwrap();
    redis::cmd("ACL").arg(&["SETUSER", "lk", "resetpass", ">other"]).exec_async(&mut admin).await.unwrap();
    wait::renewal(LIMIT, || guard.remaining()).await.expect("open connections go on");
    redis::cmd("CLIENT").arg(&["KILL", "USER", "lk"]).exec_async(&mut admin).await.unwrap();
    let error = locks.mutex("else").wait(ms(3_000)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    let lost = tokio::time::timeout(LIMIT, guard.lost()).await.unwrap();
    assert_eq!(lost.kind(), ErrorKind::Lost);
    // And back, without a new manager.
    redis::cmd("ACL").arg(&["SETUSER", "lk", ">sesame"]).exec_async(&mut admin).await.unwrap();
    locks.mutex("else").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
}
