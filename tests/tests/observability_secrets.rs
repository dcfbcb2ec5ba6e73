//! Everything that can be logged is logged, and no secret is in it: neither the store's password nor a whole owner token, which would
//! let its reader release the lock.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock::LockManager;
use distlock_tests::server::{RedisOptions, RedisServer};
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

/// The only test of its program: the log is that of all threads.
#[tokio::test]
async fn no_secret_is_logged_even_at_trace() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone());
    subscriber.init();
    let server = RedisServer::start(RedisOptions::new().password(PASSWORD)).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    let mut seen = format!("{locks:?}");

    let guard = locks.mutex("secret:1").ttl(Duration::from_millis(900)).lock().await.unwrap();
    let value: String = redis::cmd("GET")
        .arg("distlock:secret:1")
        .query_async(&mut server.admin().await.unwrap())
        .await
        .unwrap();
    let owner = value.split(':').next().unwrap().to_owned();
    assert_eq!(owner.len(), 32, "{value}");
    seen += &format!("{guard:?} {:?}", locks.inspect("secret:1").await.unwrap());
    // Waited for, renewed, lost, forced, refused, without a server, and with wrong credentials.
    seen +=
        &format!("{:?}", locks.mutex("secret:1").wait(Duration::from_millis(400)).lock().await.unwrap_err());
    seen += &format!("{:?}", locks.force_release("secret:1", "test").await.unwrap());
    seen += &format!("{:?}", guard.release().await.unwrap_err());
    let guard = locks.mutex("secret:2").ttl(Duration::from_millis(900)).lock().await.unwrap();
    server.kill().unwrap();
    seen += &format!("{:?}", guard.lost().await);
    seen += &format!("{:?}", locks.mutex("secret:3").try_lock().await.unwrap_err());
    seen += &format!("{:?}", LockManager::connect(&server.url()).await.unwrap_err());
    server.restart().unwrap();
    let wrong = server.url().replace(PASSWORD, "hunter2-but-wrong");
    seen += &format!("{:?}", LockManager::connect(&wrong).await.unwrap_err());
    drop(guard);
    locks.shutdown(Duration::from_secs(2)).await;

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap() + &seen;
    assert!(log.contains("secret:1") && log.lines().count() > 30, "the log is there: {log}");
    for secret in ["hunter2", &owner, &owner[..16]] {
        let line = log.lines().find(|line| line.contains(secret));
        assert!(line.is_none(), "{secret} in: {line:?}");
    }
    // Enough of it to tell two holders apart.
    assert!(log.contains(&owner[..4]));
}
