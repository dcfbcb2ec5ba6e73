//! One Postgres, as the conformance suite wants it.

use std::sync::Arc;

use distlock_runtime::{
    Clock,
    backend::{
        Backend,
        postgres::{self, PostgresOptions},
    },
    testkit::conformance::Store,
};
use distlock_tests::server::SharedPostgres;

/// The server of this run, by some URL.
pub(crate) struct Postgres {
    url: String,
}

impl Postgres {
    pub(crate) fn at(url: String) -> Self {
        Self { url }
    }

    #[allow(dead_code, reason = "one suite needs it")]
    pub(crate) fn shared() -> Self {
        Self::at(SharedPostgres::attach().unwrap().url())
    }
}

#[async_trait::async_trait]
impl Store for Postgres {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let options = PostgresOptions::from_url(&self.url).unwrap().label(label);
        postgres::open(&options, Clock::System).unwrap()
    }
}
