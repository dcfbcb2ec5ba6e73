//! Everything that can be logged is logged, and no secret is in it: neither the store's password nor a whole owner token, which would
//! let its reader release the lock.

use std::{
    future::poll_fn,
    io::Write,
    sync::{Arc, Mutex},
    task::Poll,
    time::Duration,
};

use distlock::LockManager;
use distlock_tests::server::{EtcdCluster, EtcdSetup, RedisOptions, RedisServer};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

const PASSWORD: &str = "hunter2-and-more";

/// Waited for, renewed, forced, refused, kept beyond its release, and left in the middle: what is shown of it. `owner` reads the
/// token of the one who holds "secret:1" from the store.
async fn use_locks(locks: &LockManager, owner: impl AsyncFnOnce() -> String) -> (String, String) {
    let mut seen = format!("{locks:?}");
    let guard = locks.mutex("secret:1").ttl(Duration::from_millis(900)).lock().await.unwrap();
    let owner = owner().await;
    assert_eq!(owner.len(), 32, "{owner}");
    seen += &format!("{guard:?} {:?}", locks.inspect("secret:1").await.unwrap());
    seen +=
        &format!("{:?}", locks.mutex("secret:1").wait(Duration::from_millis(400)).lock().await.unwrap_err());
    seen += &format!("{:?}", locks.force_release("secret:1", "test").await.unwrap());
    seen += &format!("{:?}", guard.release().await.unwrap_err());
    let least = Duration::from_millis(500);
    locks.mutex("secret:4").hold_at_least(least).lock().await.unwrap().release().await.unwrap();
    drop(locks.mutex("secret:4").wait(Duration::from_secs(20)).lock().await.unwrap());
    let mut left = Box::pin(locks.mutex("secret:5").lock());
    let polled = poll_fn(|context| Poll::Ready(left.as_mut().poll(context))).await;
    assert!(polled.is_pending());
    drop(left);
    drop(locks.mutex("secret:5").wait(Duration::from_secs(20)).lock().await.unwrap());
    (seen, owner)
}

/// Lost, and without a server; what is shown of it.
async fn lose_locks(locks: &LockManager, kill: impl FnOnce()) -> String {
    let guard = locks.mutex("secret:2").ttl(Duration::from_millis(900)).lock().await.unwrap();
    kill();
    let mut seen = format!("{:?}", guard.lost().await);
    seen += &format!("{:?}", locks.mutex("secret:3").try_lock().await.unwrap_err());
    seen
}

async fn on_redis() -> (String, String) {
    let server = RedisServer::start(RedisOptions::new().password(PASSWORD)).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let owner = async || {
        let value: String = redis::cmd("GET")
            .arg("distlock:secret:1")
            .query_async(&mut server.admin().await.unwrap())
            .await
            .unwrap();
        value.split(':').next().unwrap().to_owned()
    };
    let (mut seen, owner) = use_locks(&locks, owner).await;
    seen += &lose_locks(&locks, || server.kill().unwrap()).await;
    seen += &format!("{:?}", LockManager::connect(&server.url()).await.unwrap_err());
    server.restart().unwrap();
    let wrong = server.url().replace(PASSWORD, "hunter2-but-wrong");
    seen += &format!("{:?}", LockManager::connect(&wrong).await.unwrap_err());
    locks.shutdown(Duration::from_secs(2)).await;
    (seen, owner)
}

async fn on_etcd() -> (String, String) {
    let cluster = EtcdCluster::start(EtcdSetup::new(1).auth()).await.unwrap();
    cluster.add_user("locks", PASSWORD, "distlock/").await.unwrap();
    let url = cluster.url_as("locks", PASSWORD);
    let locks = LockManager::connect(&url).await.unwrap();
    let owner = async || {
        let options = etcd_client::GetOptions::new().with_prefix();
        let mut client = cluster.client().await.unwrap();
        let found = client.get("distlock/lock/secret:1/", Some(options)).await.unwrap();
        found.kvs()[0].key_str().unwrap().rsplit_once('/').unwrap().1.to_owned()
    };
    let (mut seen, owner) = use_locks(&locks, owner).await;
    let wrong = cluster.url_as("locks", "hunter2-but-wrong");
    seen += &format!("{:?}", LockManager::connect(&wrong).await.unwrap_err());
    seen += &lose_locks(&locks, || cluster.kill(0).unwrap()).await;
    seen += &format!("{:?}", LockManager::connect(&url).await.unwrap_err());
    locks.shutdown(Duration::from_secs(2)).await;
    (seen, owner)
}

/// The only test of its program: the log is that of all threads.
#[tokio::test]
async fn no_secret_is_logged_even_at_trace() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone());
    subscriber.init();
    for (store, (seen, owner)) in [("Redis", on_redis().await), ("etcd", on_etcd().await)] {
        let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap() + &seen;
        assert!(log.contains("secret:1") && log.lines().count() > 30, "the log is there: {log}");
        for secret in ["hunter2", &owner, &owner[..16]] {
            let line = log.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{store}: {secret} in: {line:?}");
        }
        // Enough of it to tell two holders apart.
        assert!(log.contains(&owner[..4]), "{store}");
        // Nor any other: what a name ends with here is its owner.
        let token = |word: &str| word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        let whole = |line: &&str| line.split(|c: char| !c.is_ascii_alphanumeric()).any(token);
        let line = log.lines().filter(|line| line.contains("distlock")).find(whole);
        assert!(line.is_none(), "{store}: a whole token in {line:?}");
    }
}
