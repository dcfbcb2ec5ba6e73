//! The conformance suite on Postgres' advisory locks.

mod postgres_store;

use distlock_runtime::backend::postgres::PostgresMode;
use postgres_store::Postgres;

distlock_runtime::testkit::conformance!(Postgres::direct(PostgresMode::Advisory).await);
