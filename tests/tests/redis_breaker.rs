//! A server that is away costs few connections and little time, however many ask for locks, and its return needs no help.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use distlock::{ErrorKind, LockManager};
use distlock_tests::server::{RedisOptions, RedisServer};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

const LIMIT: Duration = Duration::from_secs(30);

/// Something that listens and isn't a Redis; it counts who connects.
struct Impostor {
    address: SocketAddr,
    attempts: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Impostor {
    /// Closes each connection at once, or keeps it and says nothing.
    async fn start(silent: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        let task = tokio::spawn(async move {
            let mut kept: Vec<TcpStream> = Vec::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                if silent {
                    kept.push(stream);
                }
            }
        });
        Self { address, attempts, task: task.abort_handle() }
    }

    fn locks(&self) -> LockManager {
        LockManager::builder()
            .connect_lazily(&format!("redis://{}/?connect_timeout=1s", self.address))
            .unwrap()
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[allow(clippy::disallowed_methods, reason = "measures what is promised")]
fn now() -> Instant {
    Instant::now()
}

/// A thousand that try, and a thousand that would wait: a handful of connections a second.
#[tokio::test]
async fn a_thousand_acquires_from_a_dead_server_cost_few_connections() {
    let dead = Impostor::start(false).await;
    let locks = dead.locks();
    let start = now();
    let mut asking = JoinSet::new();
    for n in 0..2_000 {
        let lock = locks.mutex(format!("k{n}")).wait(Duration::from_secs(if n % 2 == 0 { 0 } else { 3 }));
        asking.spawn(async move { lock.lock().await.map(drop) });
    }
    while let Some(outcome) = asking.join_next().await {
        let error = outcome.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }
    let told = locks.mutex("k").try_lock().await.unwrap_err().to_string();
    assert!(told.contains(" (away for ") && told.contains("connect to redis"), "{told}");
    // Five a second in front, what the background takes for its subscription, and the first looks.
    let (attempts, seconds) = (dead.attempts(), start.elapsed().as_secs_f64());
    assert!(attempts > 3, "it isn't looked for any more: {attempts}");
    assert!(attempts as f64 <= 7.0 * seconds + 25.0, "{attempts} connections in {seconds:.1} s");
}

/// Once it is known to be silent, a single try doesn't wait for it.
#[tokio::test]
async fn a_server_that_is_known_to_be_silent_is_not_waited_for() {
    let silent = Impostor::start(true).await;
    let locks = silent.locks();
    locks.mutex("k").wait(Duration::from_secs(2)).lock().await.unwrap_err();
    let start = now();
    for _ in 0..20 {
        let error = locks.mutex("k").try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "20 tries took {took:?}: each waited for it");
    assert!(silent.attempts() < 20, "{}", silent.attempts());
}

/// Who waits when it comes back gets the lock, and who comes then too.
#[tokio::test]
async fn all_who_have_the_patience_get_their_locks_when_it_is_back() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let locks = LockManager::connect(&server.url()).await.unwrap();
    for _ in 0..3 {
        server.kill().unwrap();
        let error = locks.mutex("gone").wait(Duration::from_millis(700)).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
        let mut waiting = JoinSet::new();
        for n in 0..200 {
            let lock = locks.mutex(format!("k{n}")).wait(LIMIT);
            waiting.spawn(async move { lock.lock().await?.release().await });
        }
        tokio::task::yield_now().await;
        server.restart().unwrap();
        let back = now();
        while let Some(outcome) = waiting.join_next().await {
            outcome.unwrap().unwrap();
        }
        let took = back.elapsed();
        assert!(took < Duration::from_secs(8), "its return was noticed after {took:?}");
        locks.mutex("k").try_lock().await.unwrap().release().await.unwrap();
    }
}
