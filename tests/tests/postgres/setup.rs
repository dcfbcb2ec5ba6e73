//! Tables, rights, settings, and what is said when they don't fit.

use distlock::{ErrorKind, LockManager, backend::BackendErrorKind};
use distlock_runtime::backend::{
    AcquireRequest, Attempt, Released,
    postgres::{MIGRATION, PostgresOptions},
};
use distlock_tests::server::{PostgresOptions as ServerOptions, PostgresServer, postgres_client};
use tokio::task::JoinSet;

use crate::tools::{Corner, LIMIT, backend, granted, key, ms, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_start_together_make_the_tables_once() {
    let corner = Corner::new();
    let mut starts = JoinSet::new();
    for number in 0..12 {
        let url = corner.url();
        starts.spawn(async move {
            let locks = LockManager::connect(&url).await.unwrap();
            locks.mutex(format!("start-{number}")).lock().await.unwrap().release().await.unwrap();
        });
    }
    starts.join_all().await;
    assert_eq!(corner.count("migration").await, 1);
}

#[tokio::test]
async fn whoever_may_not_make_the_tables_is_told_how_they_are_made() {
    let corner = Corner::new();
    let admin = corner.admin().await;
    let role = format!("r{:016x}", fastrand::u64(..));
    admin.batch_execute(&format!("create role {role} login")).await.unwrap();
    let url = |more: &str| {
        let port = corner.server.port();
        format!("postgres://{role}@127.0.0.1:{port}/postgres?schema={}{more}", corner.schema)
    };

    let refused = backend(&url("&migrate=off"), "r").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config);
    assert!(refused.to_string().contains("PostgresOptions::migration"), "{refused}");
    let refused = backend(&url(""), "r").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Permission);
    assert!(refused.to_string().contains("PostgresOptions::migration"), "{refused}");

    // Twice: it may be run again.
    let migration = PostgresOptions::new("h").schema(&corner.schema).migration();
    for _ in 0..2 {
        admin.batch_execute(&migration).await.unwrap();
    }
    let refused = backend(&url(""), "r").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Permission, "without rights on the tables: {refused}");
    let schema = &corner.schema;
    admin
        .batch_execute(&format!(
            "grant usage on schema {schema} to {role}; \
             grant select, insert, update, delete on all tables in schema {schema} to {role}; \
             grant usage, select on all sequences in schema {schema} to {role}"
        ))
        .await
        .unwrap();
    let locks = LockManager::connect(&url("")).await.unwrap();
    locks.mutex("mine").lock().await.unwrap().release().await.unwrap();
    assert!(MIGRATION.contains("create schema distlock"), "the constant is for the default schema");
}

#[tokio::test]
async fn tables_of_a_newer_version_are_left_alone() {
    let corner = Corner::new();
    corner.backend("old").ping().await.unwrap();
    let mend = format!("update {}.migration set oldest = 1000, version = 1000", corner.schema);
    corner.admin().await.batch_execute(&mend).await.unwrap();
    let refused = corner.backend("old").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config);
    assert!(refused.to_string().contains("newer"), "{refused}");
}

/// Locks that were held and waited for through the functions of before, and one that was being acquired meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_the_first_version_are_brought_up_to_date_under_their_holders() {
    let corner = Corner::new();
    let schema = &corner.schema;
    let first = include_str!("migration_1.sql")
        .replace("distlock.", &format!("{schema}."))
        .replace("'distlock'", &format!("'{schema}'"))
        .replace("create schema distlock", &format!("create schema {schema}"));
    let admin = corner.admin().await;
    admin.batch_execute(&first).await.unwrap();
    let by_old_program = async |client: &tokio_postgres::Client, asked: &AcquireRequest| {
        let sql = format!(
            "select outcome from {schema}.acquire('distlock', $1, $2, 'old', 'excl', 1, 1, null, 30000, true, true, 3000, null, \
             3000, 100)"
        );
        let row = client.query_one(&sql, &[&asked.key.as_str(), &asked.owner.to_hex()]).await;
        row.map(|row| row.get::<_, String>(0))
    };
    let held = request(&key("held"), ms(30_000));
    let mut waits = request(&held.key, ms(30_000));
    waits.queue = true;
    assert_eq!(by_old_program(&admin, &held).await.unwrap(), "granted");
    assert_eq!(by_old_program(&admin, &waits).await.unwrap(), "queued");
    // The old function has begun, and goes on with its old text after the migration.
    let late = request(&key("late"), ms(30_000));
    let (mut blocker, old) = (corner.admin().await, corner.admin().await);
    let turn = blocker.transaction().await.unwrap();
    let lock = "select pg_advisory_xact_lock(hashtextextended($1, hashtext('distlock')))";
    turn.execute(lock, &[&late.key.as_str()]).await.unwrap();
    let store = corner.backend("new");
    let under_way = async {
        let outcome = by_old_program(&old, &late).await;
        (outcome, corner.count("lease where label = 'old' and name like 'late%'").await)
    };
    let meanwhile = async {
        corner.waiting(&admin, 1).await;
        let grant = granted(&*store, &request(&late.key, ms(30_000))).await;
        turn.commit().await.unwrap();
        grant
    };
    let ((outcome, leases), _grant) = tokio::join!(under_way, meanwhile);
    assert!(outcome.is_err() && leases == 0, "two holders: {outcome:?}, {leases}");

    assert_eq!(corner.count("migration").await, 2);
    let rival = request(&held.key, ms(30_000));
    assert!(matches!(store.try_acquire(&rival).await.unwrap(), Attempt::Busy(_)));
    assert_eq!(store.release(&held.lease(), None).await.unwrap(), Released::Confirmed);
    assert!(matches!(store.try_acquire(&rival).await.unwrap(), Attempt::Busy(_)), "it was handed on");
    assert!(matches!(store.try_acquire(&waits).await.unwrap(), Attempt::Granted(_)));
}

#[tokio::test]
async fn tables_that_are_dropped_are_made_again() {
    let corner = Corner::new();
    let (store, key) = (corner.backend("one"), key("dropped"));
    let before = crate::tools::granted(&*store, &request(&key, ms(30_000))).await;
    corner.admin().await.batch_execute(&format!("drop schema {} cascade", corner.schema)).await.unwrap();
    let after = crate::tools::granted(&*store, &request(&key, ms(30_000))).await;
    // All that was known of the lock is lost, and yet the token tells the two apart.
    assert!(after.token > before.token, "{after:?} after {before:?}");
}

#[tokio::test]
async fn a_session_that_sees_the_past_is_refused() {
    let corner = Corner::new();
    corner.backend("first").ping().await.unwrap();
    let url = format!("{}&options=-c%20default_transaction_isolation=repeatable\\%20read", corner.url());
    let store = backend(&url, "past");
    let refused = store.try_acquire(&request(&key("past"), ms(1_000))).await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config);
    assert!(refused.to_string().contains("read committed"), "{refused}");
    let warnings = store.check().await.unwrap();
    assert!(warnings.iter().any(|warning| warning.code == "ISOLATION" && warning.severe), "{warnings:?}");
}

#[tokio::test]
async fn timeouts_that_end_what_is_needed_are_told_at_start() {
    let corner = Corner::new();
    let url =
        format!("{}&options=-c%20statement_timeout=2000%20-c%20idle_session_timeout=60000", corner.url());
    for (url, told) in [(url, 2), (corner.url(), 0)] {
        let warnings = backend(&url, "asked").check().await.unwrap();
        assert_eq!(warnings.iter().filter(|warning| warning.code == "TIMEOUT").count(), told, "{warnings:?}");
    }
}

#[tokio::test]
async fn each_refusal_of_the_server_has_its_kind() {
    let server = PostgresServer::start(
        ServerOptions::new()
            .access("host all secret 127.0.0.1/32 scram-sha-256")
            .access("host all nobody 127.0.0.1/32 reject")
            .setting("max_connections=8")
            .setting("superuser_reserved_connections=3"),
    )
    .unwrap();
    let admin = server.admin().await.unwrap();
    admin.batch_execute("create role secret login password 'right'; create role plain login").await.unwrap();
    let kind = async |url: &str| {
        let failure = backend(url, "asked").ping().await.unwrap_err();
        assert!(!format!("{failure:?}").contains("hunter2"), "{failure:?}");
        (failure.kind(), failure.to_string())
    };
    let (wrong, text) = kind(&server.url_for("secret", "hunter2")).await;
    assert_eq!(wrong, BackendErrorKind::Permission, "{text}");
    let (rejected, text) = kind(&server.url_for("nobody", "")).await;
    assert_eq!(rejected, BackendErrorKind::Permission, "{text}");
    let (missing, text) =
        kind(&server.url().replace("/postgres", "/nowhere").replace("//nowhere", "//postgres")).await;
    assert_eq!(missing, BackendErrorKind::Config, "{text}");
    let (reader, text) =
        kind(&format!("{}?options=-c%20default_transaction_read_only=on", server.url())).await;
    assert_eq!(reader, BackendErrorKind::Unavailable, "{text}");
    assert!(text.contains("25006"), "{text}");
    let (closed, _) = kind("postgres://postgres@127.0.0.1:1/postgres").await;
    assert_eq!(closed, BackendErrorKind::Unavailable);

    let mut others = Vec::new();
    while others.len() < 4 {
        others.push(postgres_client(&server.url_for("plain", "")).await.unwrap());
    }
    let (full, text) = kind(&server.url_for("plain", "")).await;
    assert_eq!(full, BackendErrorKind::Unavailable, "{text}");
    assert!(text.contains("max_connections"), "{text}");
}

#[tokio::test]
async fn a_server_is_verified_before_it_is_trusted() {
    let server = PostgresServer::start(ServerOptions::new().tls()).unwrap();
    let files = server.tls().unwrap();
    let url = |host: &str, ca: &std::path::Path| {
        format!(
            "postgres://postgres@{host}:{}/postgres?sslmode=require&sslrootcert={}",
            server.port(),
            ca.display()
        )
    };
    let locks = LockManager::connect(&url("127.0.0.1", &files.ca)).await.unwrap();
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    let admin = server.admin().await.unwrap();
    let sql = "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) where s.ssl and a.application_name = 'distlock'";
    let encrypted: i64 = admin.query_one(sql, &[]).await.unwrap().get(0);
    assert!(encrypted > 0);

    let refused = backend(&url("127.0.0.1", &files.wrong_ca), "wrong").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config, "{refused}");
    let unknown = format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=require", server.port());
    let refused = backend(&unknown, "unknown").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config, "{refused}");
    let plain = PostgresServer::start(ServerOptions::new()).unwrap();
    let refused = backend(&format!("{}?sslmode=require", plain.url()), "plain").ping().await.unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config, "{refused}");
}

/// A schema's name stands in statements, and in a channel's name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_may_have_any_name_that_is_accepted() {
    let corner = Corner::new();
    let longest = format!("s{:0>54}", fastrand::u64(..));
    let transactions = distlock::postgres::TransactionalRecords::new;
    for schema in ["user", "table", "all", &longest] {
        for mode in ["row", "advisory"] {
            let url = format!("{}?schema={schema}&mode={mode}", corner.server.url());
            let (one, two) =
                (LockManager::connect(&url).await.unwrap(), LockManager::connect(&url).await.unwrap());
            let key = key("k");
            let held = one.mutex(&key).lock().await.unwrap();
            two.force_release(&key, "a test").await.unwrap();
            two.mutex(&key).wait(LIMIT).lock().await.unwrap().release().await.unwrap();
            drop(held);
        }
        let mut client = corner.admin().await;
        let mut tx = client.transaction().await.unwrap();
        let begun = transactions().schema(schema).claim("k").begin(&mut tx).await.unwrap();
        let distlock::postgres::Begun::Execute(claim) = begun else { panic!("new") };
        claim.complete(&mut tx, "done").await.unwrap();
    }
    let longer = format!("{longest}x");
    let options = PostgresOptions::from_url(&corner.server.url()).unwrap().schema(&longer);
    let refused = distlock::backend::postgres::open(&options, distlock::backend::Clock::System).unwrap_err();
    assert_eq!(refused.kind(), BackendErrorKind::Config, "{refused}");
    let refused = transactions().schema(&longer).claim("k").prepare().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Config, "{refused}");
}
