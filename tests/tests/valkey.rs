//! Giving locks back by value, on a server that has a command for that.

use std::time::Duration;

use distlock::{ErrorKind, LockManager};
use distlock_tests::server::{RedisOptions, RedisServer};

const LIMIT: Duration = Duration::from_secs(20);

fn start(options: RedisOptions) -> RedisServer {
    RedisServer::start(options).unwrap()
}

/// How often the server has been given this command, refused calls not counted.
async fn calls(server: &RedisServer, command: &str) -> u64 {
    let mut admin = server.admin().await.unwrap();
    let text: String = redis::cmd("INFO").arg("commandstats").query_async(&mut admin).await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split_once(',')).map_or(0, |(calls, _)| calls.parse().unwrap())
}

/// Until every release has arrived.
async fn gone(locks: &LockManager, key: &str) {
    let free = async || locks.inspect(key).await.unwrap().holder.is_none().then_some(());
    distlock_tests::wait::until("the key to be free", LIMIT, free).await.unwrap();
}

#[tokio::test]
async fn a_lock_is_given_back_by_a_command_of_the_server() {
    let server = start(RedisOptions::valkey());
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let scripts = calls(&server, "evalsha").await;
    for _ in 0..10 {
        locks.mutex("k").lock().await.unwrap().release().await.unwrap();
        drop(locks.mutex("k").lock().await.unwrap());
    }
    gone(&locks, "k").await;
    assert_eq!(calls(&server, "delifeq").await, 20);
    // Looks at the key, that's all.
    assert!(calls(&server, "evalsha").await - scripts < 10);
}

#[tokio::test]
async fn who_waits_is_told_all_the_same() {
    let server = start(RedisOptions::valkey());
    let (one, two) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    for (round, awaited) in [true, false, true, false].into_iter().enumerate() {
        // A key that this manager has not seen anybody wait for.
        let key = format!("k-{round}");
        let guard = one.mutex(&key).lock().await.unwrap();
        let waiting = tokio::spawn(two.mutex(&key).wait(LIMIT).lock());
        let stands = async || (one.inspect(&key).await.unwrap().waiters == 1).then_some(());
        distlock_tests::wait::until("somebody to wait", LIMIT, stands).await.unwrap();
        let told = calls(&server, "publish").await;
        if awaited {
            guard.release().await.unwrap();
        } else {
            drop(guard);
        }
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(calls(&server, "publish").await, told + 1, "told, not found by asking");
    }
    assert!(calls(&server, "delifeq").await >= 4);
}

#[tokio::test]
async fn what_others_put_there_is_never_deleted() {
    let server = start(RedisOptions::valkey());
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut admin = server.admin().await.unwrap();
    for put in ["SET", "RPUSH"] {
        let guard = locks.mutex(put).lock().await.unwrap();
        let key = format!("distlock:{put}");
        redis::cmd("DEL").arg(&key).exec_async(&mut admin).await.unwrap();
        redis::cmd(put).arg(&key).arg("theirs").exec_async(&mut admin).await.unwrap();
        let error = guard.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotHeld, "{error}");
        let there: bool = redis::cmd("EXISTS").arg(&key).query_async(&mut admin).await.unwrap();
        assert!(there, "{put}");
    }
}

/// The documented rights and the one for `INFO`, by which the version is known, but not the one for the command.
#[tokio::test]
async fn a_user_who_may_not_gives_back_by_script() {
    let rights =
        include_str!("redis_backend/least-privilege.acl").trim().strip_prefix("ACL SETUSER ").unwrap();
    let rights = rights.replace('\n', " ");
    for (more, native) in [("+info", 0), ("+info +delifeq", 3)] {
        let server = start(RedisOptions::valkey().user(format!("{rights} {more}")));
        let locks = LockManager::connect(&server.url_with("locks", "secret", 0)).await.unwrap();
        for _ in 0..3 {
            locks.mutex("k").lock().await.unwrap().release().await.unwrap();
        }
        assert_eq!(calls(&server, "delifeq").await, native);
        gone(&locks, "k").await;
        let mut admin = server.admin().await.unwrap();
        let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut admin).await.unwrap();
        let refused: Vec<String> = refused.iter().map(|entry| format!("{entry:?}")).collect();
        let tries = refused.iter().filter(|entry| entry.contains("delifeq")).count();
        assert_eq!(tries, usize::from(native == 0), "asked once, not again: {refused:#?}");
    }
}

/// As after a failover to a server of another version.
#[tokio::test]
async fn a_server_without_the_command_is_given_the_script() {
    let server = start(RedisOptions::valkey());
    let port = server.port();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    assert_eq!(calls(&server, "delifeq").await, 1);
    drop(server);
    let server = start(RedisOptions::new().port(port));
    for _ in 0..3 {
        let guard = locks.mutex("k").wait(LIMIT).lock().await.unwrap();
        guard.release().await.unwrap();
    }
    drop(locks.mutex("k").wait(LIMIT).lock().await.unwrap());
    gone(&locks, "k").await;
    assert!(calls(&server, "evalsha").await >= 4);
}
