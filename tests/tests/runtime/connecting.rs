//! The words of a failure to connect.

use distlock::LockManager;

use super::start;

#[tokio::test]
async fn a_failure_to_connect_says_what_and_why_once() {
    let server = start();
    let with_wrong_password = server.url().replace("redis://", "redis://:wr0ng@");
    let wrong_database = format!("{}/77", server.url());
    for (url, code, words) in [
        ("redis://127.0.0.1:1", "CONNECTION", "Connection refused"),
        ("etcd://127.0.0.1:1", "CONNECTION", "at http://127.0.0.1:1"),
        ("zookeeper://127.0.0.1:1", "CONNECTION", "127.0.0.1:1"),
        ("postgres://127.0.0.1:1/db", "CONNECTION", "127.0.0.1:1"),
        ("redis+unix:///nowhere.sock", "CONNECTION", "No such file or directory"),
        (&*with_wrong_password, "PERMISSION", "Password authentication failed (check user and password"),
        (&*wrong_database, "CONFIG", "DB index is out of range"),
        ("redis://h/?ttl=5s", "CONFIG", "unknown parameter \"ttl\""),
        ("rediss://h/?ca=/nowhere.pem", "CONFIG", "ca=/nowhere.pem: No such file"),
        ("127.0.0.1:6379", "CONFIG", "no scheme (write redis://127.0.0.1:6379)"),
        ("reddis://h", "CONFIG", "unknown scheme \"reddis\" in the store's URL (use memory:, redis://, "),
        (
            "redis://s3cret@h",
            "CONFIG",
            "user without password; for a password alone write redis://:password@host",
        ),
        ("memory:?ttl=5s", "CONFIG", "memory: takes no parameters"),
    ] {
        let error = LockManager::connect(url).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        let text = error.to_string();
        assert!(text.starts_with("connect: ") && text.contains(words), "{text}");
        assert!(
            !text.contains("wr0ng") && !text.contains("Server(") && !text.contains("lock's state"),
            "{text}"
        );
        let whole_chain = format!("{:#}", anyhow::Error::from(error));
        assert_eq!(whole_chain, text, "the text has all of it");
    }
}

#[tokio::test]
async fn a_release_of_a_lost_lock_gives_the_reason_once() {
    let server = start();
    let locks = super::connect(&server.url()).await;
    let guard = locks.mutex("k").lock().await.unwrap();
    locks.force_release("k", "the test takes it").await.unwrap();
    guard.lost().await;
    let error = format!("{:#}", anyhow::Error::from(guard.release().await.unwrap_err()));
    assert_eq!(error.matches("for key").count(), 1, "{error}");
    assert_eq!(error.matches("taken by force").count(), 1, "{error}");
    assert!(
        error.ends_with("(check what was done since, with the fencing token at the resource)"),
        "{error}"
    );
}
