//! What users and their data may get wrong: a clear, typed error each, and nothing of others is touched.

use std::{collections::HashSet, fmt, time::Duration};

use distlock::{ErrorKind, LockKey, LockManager};
use distlock_runtime::KeyWriter;
use distlock_tests::server::{ClientCerts, RedisOptions, RedisServer};

async fn refused(url: &str, kind: ErrorKind, words: &[&str]) {
    let error = LockManager::connect(url).await.expect_err(url);
    assert_eq!(error.kind(), kind, "{url}: {error}");
    let text = format!("{error} {error:?}");
    for word in words {
        assert!(text.contains(word), "{url}: no {word:?} in {text:?}");
    }
    assert!(!text.contains("hunter2"), "{text}");
}

#[tokio::test]
async fn urls_that_are_wrong_say_what_is_wrong() {
    for (url, words) in [
        ("", &["scheme"][..]),
        ("localhost", &["scheme"]),
        ("localhost:6379", &["localhost"]),
        ("hunter2@localhost:6379", &["no scheme"]),
        ("redis//hunter2@localhost:6379", &["no scheme"]),
        ("hunter2:6379@localhost", &["no scheme"]),
        ("http://localhost", &["http", "redis://"]),
        ("memory:?x=1", &["parameter"]),
        ("memory://a/b", &["memory"]),
        ("redis://", &["host"]),
        ("redis://:hunter2@", &[]),
        ("redis://:hunter2@localhost:99999", &[]),
        ("redis://localhost/not-a-number", &["not-a-number"]),
        ("redis://localhost/-1", &["-1"]),
        ("redis://localhost?colour=blue", &["colour", "namespace"]),
        ("redis://localhost?namespace=a&namespace=b", &["namespace"]),
        ("redis://localhost?namespace=", &["namespace"]),
        ("redis://localhost?namespace=a:b", &["namespace"]),
        ("redis://localhost?namespace=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &["namespace"]),
        ("redis://localhost?connect_timeout=soon", &["connect_timeout", "soon"]),
        ("redis://localhost?ca=/no/such/file", &["ca"]),
        ("rediss://localhost?ca=/no/such/file", &["/no/such/file"]),
        ("rediss://localhost?cert=/no/such/file", &["key"]),
        ("etcd://localhost?ttl=1", &["\"ttl\"", "namespace"]),
        (
            "zookeeper://locks:hunter2@localhost?color=red",
            &["\"color\"", "known: acl, ca, cert, connect_timeout"],
        ),
        ("zookeeper://locks:hunter2@localhost,", &["host"]),
        ("postgres://user:hunter2@localhost/db?color=red", &["color"]),
        ("redis+cluster://localhost/1", &["database 0"]),
    ] {
        refused(url, ErrorKind::Config, words).await;
    }
}

/// As in any URL. What stands behind the scheme stays as it is.
#[tokio::test]
async fn schemes_may_be_in_capitals() {
    let server = RedisServer::start(RedisOptions::new().password("Secret")).unwrap();
    for scheme in ["REDIS", "Redis"] {
        let url = server.url().replacen("redis", scheme, 1);
        LockManager::connect(&url).await.unwrap_or_else(|error| panic!("{error}"));
    }
    LockManager::connect("MEMORY:").await.unwrap();
    for (url, words) in [
        ("REDLOCK://a,b", "3 to 9"),
        ("Redis+Sentinel://a,b", "name of the primary"),
        ("REDIS+CLUSTER://a/1", "database 0"),
        ("HTTP://a", "unknown scheme"),
    ] {
        refused(url, ErrorKind::Config, &[words]).await;
    }
}

#[tokio::test]
async fn servers_that_say_no_say_why() {
    let server =
        RedisServer::start(RedisOptions::new().password("right").user("lk on >sesame ~* +ping")).unwrap();
    for url in [
        server.url_with("", "hunter2", 0),
        server.url_with("nobody", "hunter2", 0),
        server.url_with("", "", 0),
    ] {
        refused(&url, ErrorKind::Permission, &["user and password", "rights"]).await;
    }
    refused(&server.url_with("", "right", 99), ErrorKind::Config, &[]).await;
    refused("redis://127.0.0.1:1", ErrorKind::Connection, &["127.0.0.1:1"]).await;
    refused("redis://no-such-host.invalid", ErrorKind::Connection, &["no-such-host.invalid"]).await;
    // Rights that suffice to connect and not to lock.
    let locks = LockManager::connect(&server.url_with("lk", "sesame", 0)).await.unwrap();
    let error = locks.mutex("k").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");

    let server = RedisServer::start(RedisOptions::new().tls(ClientCerts::Required)).unwrap();
    let files = server.tls().unwrap();
    let with = |query: String| format!("{}?{query}", server.url());
    let (ca, cert, key) = (files.ca.display(), files.client_cert.display(), files.client_key.display());
    refused(&with(format!("ca={}", files.wrong_ca.display())), ErrorKind::Config, &["certificate"]).await;
    refused(&with(format!("ca={ca}")), ErrorKind::Config, &["CertificateRequired"]).await;
    refused(&server.url(), ErrorKind::Config, &["certificate"]).await;
    let locks = LockManager::connect(&with(format!("ca={ca}&cert={cert}&key={key}"))).await.unwrap();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
}

/// A value of a template, from whoever sent the request.
fn hostile_values() -> Vec<String> {
    let pieces = [
        "a",
        "b",
        "a:b",
        ":",
        "::",
        "{",
        "}",
        "{}",
        "{a}",
        "*",
        "?",
        "[a-z]",
        "\\",
        "%",
        "%3A",
        "%00",
        "\0",
        "\r\n",
        " ",
        "\t",
        "~",
        "/",
        "#",
        "<id>",
        "distlock:",
        "!f",
        "é",
        "e\u{301}",
        "ａ",
        "а",
        "A",
        "\u{202e}a",
        "🔒",
        "1",
        "01",
        "1.0",
        "-1",
        "'",
        "\"",
        "$1",
        "${a}",
        "null",
    ];
    let mut values: Vec<String> = pieces.iter().map(|piece| (*piece).to_owned()).collect();
    values.push("x".repeat(10 << 20));
    for length in [63, 120, 121, 200, 201, 5_000] {
        values.push("x".repeat(length));
        values.push("x".repeat(length - 1) + "y");
        values.push("é".repeat(length));
    }
    values
}

/// `order:<a>:<b>` as the attribute builds it.
fn key(a: &dyn fmt::Display, b: &dyn fmt::Display) -> LockKey {
    KeyWriter::new().literal("order:").value(a).literal(":").value(b).finish().unwrap()
}

#[tokio::test]
async fn hostile_values_are_distinct_bounded_locks() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let (locks, rival) = (
        LockManager::connect(&server.url()).await.unwrap(),
        LockManager::connect(&server.url()).await.unwrap(),
    );
    let values = hostile_values();
    let mut keys = HashSet::new();
    let mut guards = Vec::new();
    for value in &values {
        for key in [key(value, &"x"), key(&"x", value)] {
            // (x, x…) is the one pair that is the same both ways.
            if keys.insert(key.clone()) {
                assert!(key.as_str().len() <= 200, "{}", key.as_str().len());
                guards.push(locks.mutex(&key).try_lock().await.unwrap());
                assert_eq!(rival.mutex(&key).try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
            }
        }
    }
    assert_eq!(keys.len(), 2 * values.len(), "two different values, one key");
    // In the store, too, they are as many, and nothing else was touched.
    let stored = server.keys().await.unwrap();
    let held = stored.iter().filter(|name| name.starts_with("distlock:order:")).count();
    assert_eq!(held, keys.len());
    assert!(stored.iter().all(|name| name.len() <= 250 && name.starts_with("distlock")), "{stored:?}");
    assert_eq!(rival.list("order:").await.unwrap().len(), keys.len());
    drop(guards);
    let released = async || rival.list("order:").await.unwrap().is_empty().then_some(());
    distlock_tests::wait::until("all to be released", Duration::from_secs(20), released).await.unwrap();
}

/// Under a lock's name: what another program might have there.
#[tokio::test]
async fn what_is_somebody_elses_is_neither_taken_nor_deleted() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut admin = server.admin().await.unwrap();
    let foreign = [
        "SET distlock:theirs text",
        "SET distlock:theirs 0123456789abcdef0123456789abcdef",
        "SET distlock:theirs text PX 600000",
        "RPUSH distlock:theirs a b",
        "HSET distlock:theirs a b",
        "SADD distlock:theirs a",
        "ZADD distlock:theirs 1 a",
        "XADD distlock:theirs * a b",
    ];
    for command in foreign {
        let mut words = command.split(' ');
        let mut write = redis::cmd(words.next().unwrap());
        for word in words {
            write.arg(word);
        }
        write.exec_async(&mut admin).await.unwrap();
        let mut dump = redis::cmd("DUMP");
        dump.arg("distlock:theirs");
        let before: Vec<u8> = dump.query_async(&mut admin).await.unwrap();

        // A text may be a lock of another client: it is in the way. Anything else can't be one.
        let is_text = command.starts_with("SET");
        let expected = if is_text { ErrorKind::Busy } else { ErrorKind::KeyConflict };
        let error = locks.mutex("theirs").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), expected, "{command}: {error}");
        let error = locks.mutex("theirs").wait(Duration::from_millis(300)).lock().await.unwrap_err();
        let expected = if is_text { ErrorKind::Timeout } else { ErrorKind::KeyConflict };
        assert_eq!(error.kind(), expected, "{command}: {error}");
        let error = locks.force_release("theirs", "test").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyConflict, "{command}: {error}");
        assert!(locks.list("").await.unwrap().is_empty(), "{command}: listed as a lock");
        let _ = locks.inspect("theirs").await;

        assert_eq!(dump.query_async::<Vec<u8>>(&mut admin).await.unwrap(), before, "{command}");
        redis::cmd("DEL").arg("distlock:theirs").exec_async(&mut admin).await.unwrap();
    }
    // Once it is gone, the lock is to be had.
    locks.mutex("theirs").wait(Duration::from_secs(5)).lock().await.unwrap().release().await.unwrap();
}
