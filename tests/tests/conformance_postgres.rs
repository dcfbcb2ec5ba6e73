//! The conformance suite on Postgres, with leases as rows, as a role with the least rights.

mod postgres_store;

use distlock_runtime::backend::postgres::PostgresMode;
use postgres_store::Postgres;

distlock_runtime::testkit::conformance!(Postgres::direct(PostgresMode::Row).await);
