//! A standby takes over from its primary.

use std::{sync::Arc, time::Duration};

use distlock::{
    ErrorKind, Fault, LockManager, Promise,
    backend::postgres::{AdvisoryBackend, PostgresBackend},
};
use distlock_tests::{
    arena::{Contest, Duel},
    naive::PostgresFlaw,
    server::{PostgresOptions, PostgresServer},
    wait::until,
};

use crate::tools::{LIMIT, ROW, backend, granted, key, ms, naive, release, request};
use crate::wire::Wire;

/// Renewed after a third of it: until then its holder asks nobody.
const TTL: Duration = Duration::from_secs(30);

struct Pair {
    primary: PostgresServer,
    standby: PostgresServer,
}

impl Pair {
    /// With tables, and a standby that has them.
    async fn start(synchronous: bool) -> Self {
        let names =
            if synchronous { "synchronous_standby_names=second" } else { "synchronous_standby_names=" };
        let primary = PostgresServer::start(PostgresOptions::new().setting(names)).unwrap();
        let standby = primary.standby("second", PostgresOptions::new()).await.unwrap();
        let pair = Self { primary, standby };
        let store = backend(&pair.url(), "first");
        store.ping().await.unwrap();
        let lag = store.check().await.unwrap().iter().any(|warning| warning.code == "ASYNC_STANDBY");
        assert_eq!(lag, !synchronous, "the look at start tells them apart");
        pair.standby.catch_up(&pair.primary).await.unwrap();
        pair
    }

    /// Both, as a service that survives a failover names them.
    fn url(&self) -> String {
        let (first, second) = (self.primary.port(), self.standby.port());
        format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres")
    }

    async fn fail_over(&self) {
        self.primary.kill().unwrap();
        self.standby.promote().await.unwrap();
    }
}

/// Where it says that two may hold a lock, they do; and a standby that lags by more than 32 grants hands out tokens once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_standby_that_lags_lets_two_in_and_repeats_tokens() {
    let pair = Pair::start(false).await;
    let (one, two) =
        (LockManager::connect(&pair.url()).await.unwrap(), LockManager::connect(&pair.url()).await.unwrap());
    one.mutex("k").lock().await.unwrap().release().await.unwrap();
    pair.standby.catch_up(&pair.primary).await.unwrap();
    pair.standby.hold_back().await.unwrap();

    let (store, other) = (backend(&pair.url(), "others"), key("other"));
    for _ in 0..70 {
        let request = request(&other, ms(20_000));
        granted(&*store, &request).await;
        release(&*store, &request.lease()).await;
    }
    let first = one.mutex("k").ttl(TTL).lock().await.unwrap();
    pair.fail_over().await;
    let second = two.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(first.is_valid() && second.is_valid(), "both believe it with good reason");
    assert!(second.fencing_token() < first.fencing_token(), "the sequence is behind");
    let lost = tokio::time::timeout(TTL, first.lost()).await.expect("at its next renewal");
    assert_eq!(lost.kind(), ErrorKind::Lost);

    second.release().await.unwrap();
    let key = distlock::LockKey::new("k").unwrap();
    let mut tokens = Vec::new();
    while tokens.last().is_none_or(|last| *last < first.fencing_token()) {
        let request = request(&key, ms(20_000));
        tokens.push(granted(&*store, &request).await.token);
        release(&*store, &request.lease()).await;
    }
    assert_eq!(
        tokens.last(),
        Some(&first.fencing_token()),
        "the same token, for another holder of the same lock"
    );
    assert_eq!(PostgresBackend::promises().under(Fault::Failover), Promise::Violated);

    // What the operators' guide says to do about it.
    let raise = "select setval('distlock.token', greatest(last_value, (extract(epoch from clock_timestamp()) * 1000)::bigint * 1024)) from distlock.token";
    let raised: i64 = pair.standby.admin().await.unwrap().query_one(raise, &[]).await.unwrap().get(0);
    let next = one.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(next.fencing_token().get() > u64::try_from(raised).unwrap());
    assert!(next.fencing_token() > first.fencing_token());
}

/// The same with a few grants only since it was cut off: two hold the lock, and the token tells them apart, since the sequence is
/// written ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_standby_that_lags_a_little_has_larger_tokens() {
    let pair = Pair::start(false).await;
    let locks = LockManager::connect(&pair.url()).await.unwrap();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    pair.standby.catch_up(&pair.primary).await.unwrap();
    pair.standby.hold_back().await.unwrap();
    let first = locks.mutex("k").ttl(TTL).lock().await.unwrap();
    pair.fail_over().await;
    let rival = LockManager::connect(&pair.url()).await.unwrap();
    let second = rival.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(first.is_valid() && second.is_valid());
    assert!(second.fencing_token() > first.fencing_token());
}

/// A commit that a synchronous standby has isn't lost: the holder renews at the new primary, and nobody comes between. The
/// control's lock is its session's, which the old one knew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_synchronous_standby_knows_every_lock() {
    let pair = Pair::start(true).await;
    let (one, two) =
        (LockManager::connect(&pair.url()).await.unwrap(), LockManager::connect(&pair.url()).await.unwrap());
    let guard = one.mutex("k").ttl(TTL).lock().await.unwrap();
    let (old, new) = (pair.primary.url(), pair.standby.url());
    let duel = Duel::begin(&one, "duel", TTL).await;
    let control = Duel::begin(&naive(&old, PostgresFlaw::Advisory).await, "duel", TTL).await;
    pair.fail_over().await;
    let admin = pair.standby.admin().await.unwrap();
    let until_when = async || {
        let sql = "select extract(epoch from max(expires_at))::float8 from distlock.held where name = 'k'";
        admin.query_one(sql, &[]).await.unwrap().get::<_, Option<f64>>(0)
    };
    let known = until_when().await.expect("the lease stands in the standby");
    until("a renewal at the new primary", TTL, async || {
        match two.mutex("k").try_lock().await {
            Ok(_) => panic!("another one has it, while it is held"),
            Err(refused) => {
                assert!(matches!(refused.kind(), ErrorKind::Busy | ErrorKind::Connection), "{refused}");
            }
        }
        assert!(guard.is_valid());
        (until_when().await? > known).then_some(())
    })
    .await
    .unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = two.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(next.fencing_token() > token);
    let naive = naive(&new, PostgresFlaw::Advisory).await;
    let (verdict, control) = tokio::join!(duel.end(&two, ms(500)), control.end(&naive, LIMIT));
    verdict.assert_clean(2);
    control.assert_caught();
}

/// Many who contend while a synchronous standby takes over: never two inside, and tokens grow. The control looks for a row, and writes
/// one in the next statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_under_contention_a_synchronous_failover_lets_nobody_in_twice() {
    let pair = Pair::start(true).await;
    let mut managers = Vec::new();
    for _ in 0..4 {
        managers.push(Arc::new(LockManager::connect(&pair.url()).await.unwrap()));
    }
    let mut naives = Vec::new();
    for _ in 0..4 {
        naives.push(Arc::new(naive(&pair.primary.url(), PostgresFlaw::LooksFirst).await));
    }
    let turns = Contest::begin(&managers, 4, "k", ms(10_000));
    let control = Contest::begin(&naives, 4, "k", ms(10_000));
    turns.more(20).await;
    pair.fail_over().await;
    turns.more(20).await;
    turns.end().await.assert_clean(40);
    control.end().await.assert_caught();
}

/// An old primary that nobody stopped can't grant without its synchronous standby, nor keep a lock: its holder stops before the next
/// one is let in by the new primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_old_primary_that_lives_on_grants_nothing() {
    const TTL: Duration = Duration::from_secs(6);
    let pair = Pair::start(true).await;
    let old = LockManager::connect(&pair.primary.url()).await.unwrap();
    let duel = Duel::begin(&old, "k", TTL).await;
    let control = Duel::begin(&naive(&pair.primary.url(), ROW).await, "k", TTL).await;
    pair.standby.promote().await.unwrap();
    let new = LockManager::connect(&pair.standby.url()).await.unwrap();
    let naive = naive(&pair.standby.url(), ROW).await;
    let (verdict, control, refused) = tokio::join!(
        duel.end(&new, LIMIT),
        control.end(&naive, LIMIT),
        old.mutex("another").wait(ms(3_000)).lock()
    );
    verdict.assert_clean(2);
    control.assert_caught();
    let refused = refused.expect_err("nobody confirms it");
    assert_eq!(refused.kind(), ErrorKind::Connection, "{refused}");
}

/// An advisory lock is the session's, and no standby knows sessions: whoever is cut off from the old primary believes in its lock for a
/// while, as the next one has it from the new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_no_standby_knows_advisory_locks() {
    let pair = Pair::start(true).await;
    let wire = Wire::to(pair.primary.port()).await;
    let one = LockManager::connect(&format!("{}?mode=advisory", wire.url())).await.unwrap();
    let first = one.mutex("k").ttl(TTL).lock().await.unwrap();
    wire.cut();
    pair.standby.promote().await.unwrap();
    let two = LockManager::connect(&format!("{}?mode=advisory", pair.standby.url())).await.unwrap();
    let second = two.mutex("k").wait(LIMIT).lock().await.unwrap();
    assert!(first.is_valid() && second.is_valid(), "both believe it with good reason");
    assert!(second.fencing_token() > first.fencing_token());
    pair.primary.kill().unwrap();
    wire.heal();
    let lost = tokio::time::timeout(TTL, first.lost()).await.expect("the end of its connection is seen");
    assert_eq!(lost.kind(), ErrorKind::Lost);
    assert_eq!(AdvisoryBackend::promises().under(Fault::Failover), Promise::Violated);
}

/// The first host's machine takes connections and says nothing, or is gone without a word: the second one is used, from then on without
/// waiting for the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_silent_first_host_is_got_past() {
    let pair = Pair::start(true).await;
    let locks = LockManager::connect(&pair.url()).await.unwrap();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    pair.primary.pause().unwrap();
    pair.standby.promote().await.unwrap();
    locks.mutex("k").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    let again = locks.clone();
    let other = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { again.mutex("k").try_lock().await?.release().await })
    });
    other.await.unwrap().expect("the host that answered is asked first");
    for mode in ["row", "advisory"] {
        let fresh = LockManager::builder().connect_lazily(&format!("{}?mode={mode}", pair.url())).unwrap();
        fresh.mutex("fresh").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    }
}
