//! Everything at once on a few locks: plain locks that become more than that and plain again, while sessions end and rows are purged.

use std::sync::Arc;
use std::time::Duration;

use distlock::backend::{Backend, Mode};
use distlock_tests::server::{PgBouncer, PostgresOptions, PostgresServer};
use distlock_tests::wait::until;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_postgres::Client;

use crate::mixture::{KEYS, Seen, act, now, on};
use crate::tools::{LIMIT, backend, granted, ms, release};

/// Random operations of every kind of lock over a few keys, of three managers, while sessions are ended and what is over is purged:
/// never two who hold it, tokens that grow, no lease that is said to be gone before its time, and the tables agree at every moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_everything_at_once_on_a_few_locks() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let stores = connected(&server, &server.url()).await;
    let seen = mixture(&server, &stores, Duration::from_secs(4)).await;
    free(&stores).await;
    seen.assert_clean();
}

/// The same over a pooler, whose sessions are everybody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_everything_at_once_through_a_pooler() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let pooler = PgBouncer::start(server.port(), 8).unwrap();
    let stores =
        connected(&server, &format!("postgres://postgres@127.0.0.1:{}/postgres", pooler.port())).await;
    let seen = mixture(&server, &stores, Duration::from_secs(2)).await;
    free(&stores).await;
    seen.assert_clean();
}

/// The control: a plain way that doesn't ask whether there is more of a lock elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_plain_way_that_asks_less_is_caught() {
    let server = PostgresServer::start(PostgresOptions::new()).unwrap();
    let stores = connected(&server, &server.url()).await;
    let text = distlock_runtime::backend::postgres::PostgresOptions::new("h").migration();
    let broken = text.replace("and not p.elsewhere", "");
    assert_ne!(broken, text);
    server.admin().await.unwrap().batch_execute(&broken).await.unwrap();
    let seen = mixture(&server, &stores, Duration::from_secs(2)).await;
    seen.verdict().assert_caught();
    assert!(!seen.faults.lock().unwrap().is_empty());
}

async fn connected(server: &PostgresServer, url: &str) -> Vec<Arc<dyn Backend>> {
    let stores: Vec<_> = (0..3).map(|number| backend(url, &format!("m{number}"))).collect();
    for store in &stores {
        until("the server to answer", LIMIT, async || store.ping().await.ok()).await.unwrap();
    }
    assert!(server.admin().await.is_ok());
    stores
}

/// Nothing is stuck.
async fn free(stores: &[Arc<dyn Backend>]) {
    for number in 0..KEYS {
        let last = on(number, Mode::Exclusive);
        granted(&*stores[0], &last).await;
        release(&*stores[0], &last.lease()).await;
    }
}

async fn mixture(server: &PostgresServer, stores: &[Arc<dyn Backend>], span: Duration) -> Arc<Seen> {
    let seen = Arc::new(Seen::default());
    let mut serving = JoinSet::new();
    for store in stores {
        let store = store.clone();
        serving.spawn(async move { store.serve().await });
    }
    let end = now() + span;
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let (store, other) = (stores[number % 3].clone(), stores[(number + 1) % 3].clone());
        let seen = seen.clone();
        tasks.spawn(async move {
            while now() < end {
                act(&*store, &*other, number, &seen).await;
            }
        });
    }
    let admin = server.admin().await.unwrap();
    let mut round = 0_u32;
    while now() < end {
        look(&admin, &seen).await;
        round += 1;
        if round.is_multiple_of(20) {
            let sql = "select pg_terminate_backend(pid) from pg_stat_activity
                where pid <> pg_backend_pid() and backend_type = 'client backend' order by random() limit 1";
            admin.query(sql, &[]).await.unwrap();
        }
        if round.is_multiple_of(3) {
            let sql = "update distlock.plain set expires_at = expires_at - interval '10 minutes', elsewhere_until = '-infinity'
                where ctid = any (array(select p.ctid from distlock.plain p where p.owner = '' for update skip locked))";
            admin.batch_execute(sql).await.unwrap();
            admin.query("select distlock.purge_locks(1000::bigint, true)", &[]).await.unwrap();
        }
        sleep(ms(10)).await;
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    seen
}

/// That the tables agree.
async fn look(admin: &Client, seen: &Seen) {
    let sql = "select 'beside a plain one: ' || l::text from distlock.lease l join distlock.plain p using (namespace, name) where not p.elsewhere
        union all select 'without a row: ' || l::text from distlock.lease l left join distlock.plain p using (namespace, name) where p.name is null
        union all select 'waits without: ' || w::text from distlock.waiter w left join distlock.plain p using (namespace, name)
          where p.name is null or not p.elsewhere
        union all select 'owned elsewhere: ' || p::text from distlock.plain p where p.elsewhere and p.owner <> ''
        union all select 'twice: ' || l.name from distlock.held l where l.kind = 'excl' and l.expires_at > clock_timestamp()
          group by l.namespace, l.name having count(*) > 1
        union all select 'kinds: ' || l.name from distlock.held l where l.expires_at > clock_timestamp()
          group by l.namespace, l.name having count(distinct l.kind) > 1";
    for row in admin.query(sql, &[]).await.unwrap() {
        seen.fault(row.get(0));
    }
}
