//! The conformance suite on Postgres, with leases as rows.

mod postgres_store;

use postgres_store::Postgres;

distlock_runtime::testkit::conformance!(Postgres::shared());
