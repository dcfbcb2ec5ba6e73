//! The least that a user needs (docs/wire.md) is enough for these kinds too.

use std::time::Duration;

use distlock::{ErrorKind, LockManager};
use distlock_tests::server::{RedisOptions, RedisServer};

use crate::LIMIT;

#[tokio::test]
async fn the_least_privileged_user_suffices() {
    let line =
        include_str!("../redis_backend/least-privilege.acl").trim().strip_prefix("ACL SETUSER ").unwrap();
    let server = RedisServer::start(RedisOptions::new().user(line.replace('\n', " "))).unwrap();
    let url = server.url_with("locks", "secret", 0);
    let connect = || LockManager::builder().detect_circles().connect(&url);
    let (one, two) = (connect().await.unwrap(), connect().await.unwrap());

    let both = one.mutex_all(["a", "b"]).lock().await.unwrap();
    let saga = one.mutex("order").owner("saga").lock().await.unwrap();
    let waiting = tokio::spawn(two.mutex("order").owner("other").wait(LIMIT).lock());
    drop(two.mutex("order").owner("saga").lock().await.unwrap());
    saga.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();

    let latch = one.latch("latch", 2).within(LIMIT);
    let opened = tokio::spawn(async move { latch.wait().await });
    assert_eq!(two.latch("latch", 2).count_down().await.unwrap(), 1);
    assert_eq!(two.latch("latch", 2).count_down().await.unwrap(), 0);
    opened.await.unwrap().unwrap();

    // Long enough to be published some times.
    let held = two.mutex("c").lock().await.unwrap();
    let error =
        both.run(one.mutex("c").wait(Duration::from_millis(1_300)).lock()).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    held.release().await.unwrap();
    both.release().await.unwrap();

    let mut admin = server.admin().await.unwrap();
    let refused: Vec<redis::Value> = redis::cmd("ACL").arg("LOG").query_async(&mut admin).await.unwrap();
    // The check at start asks for what it may not know, and leaves it out.
    let refused: Vec<String> = refused.iter().map(|entry| format!("{entry:?}")).collect();
    let start = |entry: &&String| {
        entry.contains("config|get") || entry.contains("\"info\"") || entry.contains("'info'")
    };
    assert!(refused.iter().all(|entry| start(&entry)), "{refused:#?}");
}
