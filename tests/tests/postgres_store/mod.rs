//! One Postgres, as the conformance suite wants it.

use std::sync::Arc;

use distlock_runtime::{
    Clock,
    backend::{
        Backend,
        postgres::{self, PostgresMode, PostgresOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::{PgBouncer, SharedPostgres, postgres_client};

/// What the operator guide says that the role needs.
const RIGHTS: &str = "
    do $$ begin
      if to_regrole('locks') is null then
        create role locks login nosuperuser nocreatedb nocreaterole;
      end if;
    end $$;
    grant usage on schema distlock to locks;
    grant select, insert, update, delete on all tables in schema distlock to locks;
    grant usage, select on all sequences in schema distlock to locks;
";

/// The server of this run, used by a role that may do no more than it must.
pub(crate) struct Postgres {
    url: String,
    mode: PostgresMode,
    _pooler: Option<PgBouncer>,
}

impl Postgres {
    /// Directly.
    #[allow(dead_code, reason = "some suites need it")]
    pub(crate) async fn direct(mode: PostgresMode) -> Self {
        let server = prepared().await;
        Self { url: url(server.port()), mode, _pooler: None }
    }

    /// Through a pooler, which gives each transaction another of a few sessions.
    #[allow(dead_code, reason = "one suite needs it")]
    pub(crate) async fn pooled() -> Self {
        let server = prepared().await;
        let pooler = PgBouncer::start(server.port(), 4).unwrap();
        Self { url: url(pooler.port()), mode: PostgresMode::Row, _pooler: Some(pooler) }
    }
}

fn url(port: u16) -> String {
    format!("postgres://locks@127.0.0.1:{port}/postgres?migrate=off")
}

/// With the tables and the role, which the first test of a run makes.
async fn prepared() -> SharedPostgres {
    let server = SharedPostgres::attach().unwrap();
    let admin = postgres_client(&server.url()).await.unwrap();
    let migration = PostgresOptions::new("h").migration();
    // One at a time, and what is there already isn't made again.
    let there = admin.query("select from pg_roles where rolname = 'locks'", &[]).await.unwrap();
    if there.is_empty() {
        admin.batch_execute(&format!("select pg_advisory_xact_lock(1); {migration} {RIGHTS}")).await.unwrap();
    }
    server
}

#[async_trait::async_trait]
impl Store for Postgres {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = PostgresOptions::from_url(&self.url).unwrap().mode(self.mode).label(label);
        postgres::open(&options, Clock::System).unwrap()
    }

    fn has_latches(&self) -> bool {
        self.mode == PostgresMode::Row
    }
}
