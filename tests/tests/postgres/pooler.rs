//! A pooler in front that gives each transaction another session.

use distlock::{ErrorKind, LockManager, backend::BackendErrorKind};
use distlock_tests::{
    arena::Duel,
    naive::PostgresFlaw,
    server::{PgBouncer, postgres_client},
    wait::until,
};

use crate::tools::{Corner, LIMIT, backend, key, ms, naive};

fn through(pooler: &PgBouncer, corner: &Corner) -> String {
    format!("{}?schema={}", pooler.url(), corner.schema)
}

/// How long a waiter waits for a release.
async fn woken(corner: &Corner, holder: &LockManager, waiter: &LockManager) -> std::time::Duration {
    let key = key("woken");
    let guard = holder.mutex(&key).lock().await.unwrap();
    let waiting = tokio::spawn(waiter.mutex(&key).wait(LIMIT).lock());
    let admin = corner.admin().await;
    // Each question lengthens its place in the line.
    let place = format!("select live_until::text from {}.waiter where name = $1", corner.schema);
    let asked = async || Some(admin.query_opt(&place, &[&key.as_str()]).await.unwrap()?.get::<_, String>(0));
    let first = until("the waiter", LIMIT, &asked).await.unwrap();
    // The pause behind the first question is short.
    until("its second question", LIMIT, async || asked().await.filter(|again| *again != first))
        .await
        .unwrap();
    let start = tokio::time::Instant::now();
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_told_over_a_direct_connection_if_there_is_one() {
    let corner = Corner::new();
    let pooler = PgBouncer::start(corner.server.port(), 3).unwrap();
    let url = format!("{}&listen=127.0.0.1:{}", through(&pooler, &corner), corner.server.port());
    let (one, two) = (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    let admin = corner.admin().await;
    // A channel for each, on sessions that aren't the pooler's.
    let listening =
        "select count(*) from pg_stat_activity where application_name = 'distlock' and query like 'listen %'";
    until("both to listen", LIMIT, async || {
        let _ = woken(&corner, &one, &two).await;
        let count: i64 = admin.query_one(listening, &[]).await.unwrap().get(0);
        (count >= 2).then_some(())
    })
    .await
    .unwrap();
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(woken(&corner, &one, &two).await);
    }
    times.sort();
    assert!(times[2] < ms(100), "{times:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_one_they_ask_and_no_session_is_left_listening() {
    let corner = Corner::new();
    let pooler = PgBouncer::start(corner.server.port(), 3).unwrap();
    let url = through(&pooler, &corner);
    let (one, two) = (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
    for _ in 0..3 {
        assert!(woken(&corner, &one, &two).await < ms(2_000));
    }
    let channels = postgres_client(&pooler.url()).await.unwrap();
    for _ in 0..6 {
        let count = channels.simple_query("select count(*) from pg_listening_channels()").await.unwrap();
        let row = count.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(row, Some("0"), "a session that others get is left listening");
    }
}

/// A pooler has one code for all that it says itself.
#[tokio::test]
async fn wrong_credentials_are_told_there_too() {
    let corner = Corner::new();
    let pooler = PgBouncer::start_with_password(corner.server.port(), 2, "right").unwrap();
    let url = |user: &str, password: &str| {
        format!("postgres://{user}:{password}@127.0.0.1:{}/postgres?schema={}", pooler.port(), corner.schema)
    };
    for (user, password) in [("postgres", "wrong"), ("nobody", "right")] {
        let refused = backend(&url(user, password), "pooled").ping().await.unwrap_err();
        assert_eq!(refused.kind(), BackendErrorKind::Permission, "{refused}");
        assert!(refused.to_string().contains("wrong user or password"), "{refused}");
        assert!(!refused.to_string().contains("right"), "{refused}");
    }
    backend(&url("postgres", "right"), "pooled").ping().await.unwrap();
}

/// Statements have names on sessions that are ours alone; on these they'd be others', too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_statement_has_a_name_there() {
    let corner = Corner::new();
    let pooler = PgBouncer::start(corner.server.port(), 1).unwrap();
    let locks = LockManager::connect(&through(&pooler, &corner)).await.unwrap();
    for _ in 0..20 {
        locks.mutex("pooled").lock().await.unwrap().release().await.unwrap();
    }
    let other = postgres_client(&pooler.url()).await.unwrap();
    let rows = other
        .simple_query("select count(*), current_setting('lock_timeout') from pg_prepared_statements")
        .await;
    let found = rows.unwrap().iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some((row.get(0).map(str::to_owned), row.get(1).map(str::to_owned)))
        }
        _ => None,
    });
    assert_eq!(found, Some((Some("0".to_owned()), Some("0".to_owned()))), "the session is as it was");
}

/// The control: what advisory locks would be worth behind a pooler.
#[tokio::test]
async fn behind_a_pooler_two_clients_get_one_advisory_lock() {
    let corner = Corner::new();
    let pooler = PgBouncer::start(corner.server.port(), 1).unwrap();
    let (one, two) = (
        naive(&pooler.url(), PostgresFlaw::Advisory).await,
        naive(&pooler.url(), PostgresFlaw::Advisory).await,
    );
    let duel = Duel::begin(&one, key("pooled").as_str(), LIMIT).await;
    // This is why they are refused.
    duel.end(&two, LIMIT).await.assert_caught();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_locks_are_refused_there() {
    let corner = Corner::new();
    // One session, several of them, and some that have been used by others before.
    for sessions in [1, 2, 5] {
        let pooler = PgBouncer::start(corner.server.port(), sessions).unwrap();
        let url = format!("{}&mode=advisory", through(&pooler, &corner));
        let failure = match LockManager::connect(&url).await {
            Ok(locks) => locks.mutex("k").try_lock().await.unwrap_err(),
            Err(failure) => failure,
        };
        assert_eq!(failure.kind(), ErrorKind::Config, "{failure}");
        assert!(failure.to_string().contains("mode=row"), "{failure}");
        // The way out that the text names.
        let direct =
            LockManager::connect(&format!("{url}&listen=127.0.0.1:{}", corner.server.port())).await.unwrap();
        direct.mutex(key("direct")).lock().await.unwrap().release().await.unwrap();
    }
}
