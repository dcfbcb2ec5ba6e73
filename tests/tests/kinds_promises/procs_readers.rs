//! Readers and writers.

use std::time::Duration;

use distlock_tests::{
    contend::{Contender, Held},
    naive::{KindFlaw, NaiveKinds},
    server::RedisServer,
    wait::{self, Deadline},
};

use super::*;

/// What a writer takes.
const EVERYTHING: u64 = 1 << 32;
/// How long a reader of the stream reads at most.
const READING: Duration = Duration::from_millis(300);

/// Waits to write, `rounds` times, while readers come and go all the time; the longest wait, or `None` if it was too long once.
async fn longest_wait(
    server: &RedisServer,
    kind: &str,
    rounds: u32,
    writes: impl Contender,
) -> Option<Duration> {
    let readers: Vec<_> = (0..3).map(|_| worker(server, "contend", kind, 4, READING)).collect();
    for reader in &readers {
        said(reader, "hold ").await;
    }
    let mut longest = Some(Duration::ZERO);
    for _ in 0..rounds {
        let (writer, took) = timed(tokio::time::timeout(2 * TTL, writes.acquire("key-0", TTL))).await;
        match writer {
            Ok(writer) => writer.unwrap().release().await.unwrap(),
            Err(_) => longest = None,
        }
        longest = longest.map(|longest| longest.max(took));
        if longest.is_none() {
            break;
        }
        // Until they read again.
        let before = readers.iter().map(holds).sum::<usize>();
        let again = async || (readers.iter().map(holds).sum::<usize>() > before + 6).then_some(());
        wait::until("the readers to read again", LIMIT, again).await.unwrap();
    }
    let history = recorded(&readers).await;
    let shares = history.check_shares(EVERYTHING, |_| 1);
    assert!(shares.most >= 6, "no stream of readers: {shares}");
    longest
}

fn holds(worker: &Worker) -> usize {
    worker.lines().iter().filter(|line| line.starts_with("hold ")).count()
}

struct Writes(LockManager);

struct Writing(distlock::WriteGuard);

impl Contender for Writes {
    type Hold = Writing;

    async fn acquire(&self, key: &str, ttl: Duration) -> anyhow::Result<Writing> {
        Ok(Writing(self.0.rw_lock(key).ttl(ttl).wait_forever().write().await?))
    }
}

impl Held for Writing {
    fn token(&self) -> Option<u64> {
        Some(self.0.fencing_token().get())
    }

    fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    async fn release(self) -> anyhow::Result<()> {
        self.0.release().await.map(|_| ()).map_err(Into::into)
    }
}

#[tokio::test]
async fn procs_a_stream_of_readers_keeps_no_writer_out() {
    let server = start();
    let waited = longest_wait(&server, "read", 15, Writes(connect(&server).await)).await;
    println!("{waited:?}");
    assert!(waited.is_some_and(|waited| waited <= TTL + SLACK), "{waited:?}");
    let naive = NaiveKinds::connect(&server.url(), KindFlaw::NoIntent, EVERYTHING, EVERYTHING).await.unwrap();
    server.flush().await.unwrap();
    let waited = longest_wait(&server, "naive-reader", 15, naive).await;
    assert!(waited.is_none_or(|waited| waited > TTL + SLACK), "a lock without intent: {waited:?}");
}

/// From the death of one reader to the grant of a writer, with another reader that reads on for so long; and how long that one
/// was gone by then.
async fn time_after_a_death(
    server: &RedisServer,
    kind: &str,
    other: Option<Duration>,
    writes: impl Contender,
) -> (Duration, Option<Duration>) {
    let dies = worker(server, "hold", kind, 1, Duration::ZERO);
    said(&dies, "holding").await;
    let lives = other.map(|_| worker(server, "hold", kind, 1, Duration::ZERO));
    if let Some(lives) = &lives {
        said(lives, "holding").await;
    }
    dies.kill().unwrap();
    let started = tokio::time::Instant::now();
    let writer = async {
        let writer = writes.acquire("key-0", TTL).await.unwrap();
        let at = tokio::time::Instant::now();
        writer.release().await.unwrap();
        at
    };
    let leaves = async {
        let (Some(lives), Some(other)) = (&lives, other) else { return None };
        // How long it reads on is what is under test.
        tokio::time::sleep(other).await;
        lives.close_input();
        said(lives, "gone").await;
        Some(tokio::time::Instant::now())
    };
    let (granted, gone) =
        tokio::time::timeout(LIMIT, async { tokio::join!(writer, leaves) }).await.expect("the writer");
    (granted - started, gone.map(|gone| granted.saturating_duration_since(gone)))
}

/// And one that lives keeps the dead one's lease no longer alive.
#[tokio::test]
async fn procs_a_dead_reader_is_waited_for_no_longer_than_its_ttl() {
    let server = start();
    let locks = connect(&server).await;
    for _ in 0..3 {
        let (took, _) = time_after_a_death(&server, "read", None, Writes(locks.clone())).await;
        println!("alone {took:?}");
        assert!(took <= TTL + SLACK, "{took:?}");
        // The last renewal was at most a third of the ttl and its jitter before.
        assert!(took >= TTL / 2, "a reader that may still act was passed by: {took:?}");
        let other = TTL * 3 / 2;
        let (took, behind) = time_after_a_death(&server, "read", Some(other), Writes(locks.clone())).await;
        println!("with another {took:?}, {behind:?}");
        assert!(took >= other, "a reader that lives was passed by: {took:?}");
        assert!(behind.unwrap() <= SLACK, "the dead one was still waited for: {behind:?}");
    }
    let naive =
        NaiveKinds::connect(&server.url(), KindFlaw::CommonLease, EVERYTHING, EVERYTHING).await.unwrap();
    server.flush().await.unwrap();
    let (_, behind) = time_after_a_death(&server, "naive-common-lease", Some(TTL * 3 / 2), naive).await;
    assert!(behind.unwrap() > SLACK, "one lease for all readers: {behind:?}");
}

/// Seen in the store: each renewal lengthens the lease of its own reader, and no other's.
#[tokio::test]
async fn procs_renewing_one_reader_never_renews_another() {
    let server = start();
    let (dies, lives) = (
        worker(&server, "hold", "read", 1, Duration::ZERO),
        worker(&server, "hold", "read", 1, Duration::ZERO),
    );
    said(&dies, "holding").await;
    said(&lives, "holding").await;
    dies.kill().unwrap();
    let mut admin = server.admin().await.unwrap();
    let mut ends = async || -> Vec<(String, u64)> {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("distlock!*!s:distlock:key-0").query_async(&mut admin).await.unwrap();
        let [key] = &keys[..] else { panic!("{keys:?}") };
        redis::cmd("ZRANGE").arg(key).arg(0).arg(-1).arg("WITHSCORES").query_async(&mut admin).await.unwrap()
    };
    let first = ends().await;
    assert_eq!(first.len(), 2);
    let (mut renewals, end) = (0, Deadline::after(TTL / 2));
    let mut last = first.clone();
    while !end.is_past() {
        let now = ends().await;
        let moved: Vec<_> = now.iter().filter(|share| !last.contains(share)).collect();
        assert!(moved.len() <= 1, "{last:?} {now:?}");
        renewals += moved.len();
        last = now;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let unmoved = first.iter().filter(|share| last.contains(share)).count();
    assert!(renewals >= 1 && unmoved == 1, "{renewals} renewals, {first:?} {last:?}");
}
