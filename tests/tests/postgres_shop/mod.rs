//! An application with a table of its own in the Postgres of this run.
#![allow(dead_code, reason = "each suite uses its part")]

use std::time::Duration;

use distlock::LockManager;
use distlock::backend::postgres::PostgresOptions;
use distlock::postgres::TransactionalRecords;
use distlock_tests::server::{SharedPostgres, postgres_client};
use distlock_tests::wait;
use tokio_postgres::{Client, GenericClient};

/// No test waits longer than this for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) server: SharedPostgres,
    pub(crate) namespace: String,
    pub(crate) records: TransactionalRecords,
}

impl Shop {
    /// Nobody else's, with the tables of distlock's beside its own.
    pub(crate) async fn open() -> Self {
        let server = SharedPostgres::attach().unwrap();
        let namespace = format!("shop_{:016x}", fastrand::u64(..));
        let options = PostgresOptions::from_url(&format!("{}?namespace={namespace}", server.url())).unwrap();
        let records = TransactionalRecords::with_options(&options).unwrap();
        let shop = Self { server, namespace, records };
        shop.manager().await.ping().await.unwrap();
        let table = format!("create table {} (key text not null)", shop.namespace);
        shop.client().await.execute(&table, &[]).await.unwrap();
        shop
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?namespace={}", self.server.url(), self.namespace)
    }

    pub(crate) async fn manager(&self) -> LockManager {
        LockManager::connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        postgres_client(&self.server.url()).await.unwrap()
    }

    /// The business write: nothing in the table keeps it from being done twice.
    pub(crate) async fn write(&self, client: &impl GenericClient, key: &str) {
        client.execute(&format!("insert into {} values ($1)", self.namespace), &[&key]).await.unwrap();
    }

    pub(crate) async fn effects(&self, key: &str) -> i64 {
        let count = format!("select count(*) from {} where key = $1", self.namespace);
        self.client().await.query_one(&count, &[&key]).await.unwrap().get(0)
    }

    /// Waits until somebody waits for the end of a transaction that has this key.
    pub(crate) async fn somebody_waits(&self, key: &str) {
        let client = self.client().await;
        let record = self.records.record(key).unwrap().to_bytes();
        let waiting = "select from pg_locks l, hashtextextended(distlock.record_turn($1), hashtext($2)) h \
                       where l.locktype = 'advisory' and not l.granted \
                       and l.classid::bigint = (h >> 32) & 4294967295 and l.objid::bigint = h & 4294967295";
        wait::until("a claim that waits", LIMIT, async || {
            let found = client.query(waiting, &[&&record[..], &self.namespace]).await.unwrap();
            (!found.is_empty()).then_some(())
        })
        .await
        .unwrap();
    }
}
