//! The conformance suite on Postgres behind a pooler that gives each transaction another session. Waiters can't be told there, so
//! they ask.

mod postgres_store;

use postgres_store::Postgres;

distlock_runtime::testkit::conformance!(Postgres::pooled().await);
