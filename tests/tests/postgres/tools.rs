//! What the tests share.

use std::{sync::Arc, time::Duration};

use distlock::{
    FencingToken, LockKey, LockManager,
    backend::{AcquireRequest, Attempt, Backend, Clock, Grant, LeaseHandle, Mode, postgres},
};
use distlock_runtime::{OwnerToken, Ttl, backend::postgres::PostgresOptions};
use distlock_tests::{
    naive::{NaivePostgres, PostgresFlaw},
    server::{SharedPostgres, postgres_client},
    wait::until,
};
use tokio_postgres::Client;

/// How long anything that must happen may take on a machine that is busy with other tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The server of this run, with a schema of the test's own.
pub(crate) struct Corner {
    pub(crate) server: SharedPostgres,
    pub(crate) schema: String,
}

impl Corner {
    pub(crate) fn new() -> Self {
        let schema = format!("t{:016x}", fastrand::u64(..));
        Self { server: SharedPostgres::attach().unwrap(), schema }
    }

    pub(crate) fn url(&self) -> String {
        format!("{}?schema={}", self.server.url(), self.schema)
    }

    pub(crate) async fn admin(&self) -> Client {
        postgres_client(&self.server.url()).await.unwrap()
    }

    pub(crate) async fn manager(&self, label: &str) -> LockManager {
        manager(&self.url(), label).await
    }

    pub(crate) fn backend(&self, label: &str) -> Arc<dyn Backend> {
        backend(&self.url(), label)
    }

    /// A statement that makes all others wait who want to begin with this key.
    pub(crate) fn entry(&self, key: &LockKey) -> String {
        format!(
            "insert into {}.plain (namespace, name, owner, label, expires_at, elsewhere, elsewhere_until) \
             values ('distlock', '{key}', '', '', clock_timestamp(), false, '-infinity') \
             on conflict (namespace, name) do update set label = ''",
            self.schema
        )
    }

    /// Until so many statements of this schema wait for another.
    pub(crate) async fn waiting(&self, admin: &Client, count: usize) {
        let sql =
            "select from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'";
        until("statements to wait", LIMIT, async || {
            (admin.query(sql, &[&self.schema]).await.unwrap().len() == count).then_some(())
        })
        .await
        .unwrap();
    }

    /// How many rows a table of this schema has.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("select count(*) from {}.{table}", self.schema);
        self.admin().await.query_one(&sql, &[]).await.unwrap().get(0)
    }
}

pub(crate) async fn manager(url: &str, label: &str) -> LockManager {
    LockManager::builder().label(label).connect(url).await.unwrap()
}

/// The naive lock as it is mostly written: a row with an expiry that its client says.
pub(crate) const ROW: PostgresFlaw = PostgresFlaw::ClientClock { ahead: Duration::ZERO };

/// A naive lock with a connection of its own.
pub(crate) async fn naive(url: &str, flaw: PostgresFlaw) -> NaivePostgres {
    NaivePostgres::connect(url, flaw).await.unwrap()
}

pub(crate) fn backend(url: &str, label: &str) -> Arc<dyn Backend> {
    let options = PostgresOptions::from_url(url).unwrap().label(label);
    postgres::open(&options, Clock::System).unwrap()
}

pub(crate) fn key(name: &str) -> LockKey {
    LockKey::new(format!("{name}-{:016x}", fastrand::u64(..))).unwrap()
}

pub(crate) fn request(key: &LockKey, ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        owner: OwnerToken::random().unwrap(),
        ttl: Ttl::new(ttl).unwrap(),
        mode: Mode::Exclusive,
        fair: false,
        queue: false,
        tokens: 1,
    }
}

/// Asks until it is granted.
pub(crate) async fn granted(backend: &dyn Backend, request: &AcquireRequest) -> Grant {
    let asking = async {
        loop {
            match backend.try_acquire(request).await {
                Ok(Attempt::Granted(grant)) => return grant,
                Ok(_) => tokio::time::sleep(ms(2)).await,
                Err(failure) => {
                    assert!(failure.is_transient(), "{failure:?}");
                    tokio::time::sleep(ms(5)).await;
                }
            }
        }
    };
    tokio::time::timeout(LIMIT, asking).await.expect("granted in time")
}

pub(crate) async fn release(backend: &dyn Backend, lease: &LeaseHandle) {
    backend.release(lease, None).await.unwrap();
}

/// That each is larger than the one before.
pub(crate) fn first_fall(tokens: &[FencingToken]) -> Option<usize> {
    tokens.windows(2).position(|pair| pair[1] <= pair[0])
}
