//! The tables and functions in the database: shipped as SQL, run by whoever may, and looked for at the first use.

use std::fmt;

use super::connection::{Failure, Lane};
use super::error;
use super::options::PostgresOptions;
use crate::backend::settings::config;
use crate::backend::{BackendError, BackendErrorKind};

/// The SQL that makes the tables of the [default schema](PostgresOptions::DEFAULT_SCHEMA), or brings them up to date. It may be run
/// again. For another schema see [`PostgresOptions::migration`].
pub const MIGRATION: &str = concat!(
    include_str!("sql/base.sql"),
    include_str!("sql/tables.sql"),
    include_str!("sql/plain.sql"),
    include_str!("sql/locks.sql"),
    include_str!("sql/admin.sql"),
    include_str!("sql/latches.sql"),
    include_str!("sql/waits.sql"),
    include_str!("sql/advisory.sql"),
    include_str!("sql/purge.sql"),
    include_str!("sql/records.sql"),
    include_str!("sql/quotas.sql"),
    include_str!("sql/transactions.sql"),
    include_str!("sql/version.sql"),
);

/// The number of the last part of [`MIGRATION`].
const VERSION: i32 = 3;

/// Held while a migration runs, so that processes that start at the same time do it one after the other.
const EXCLUSION: i64 = 0x6469_7374_6c6f_636b;

/// Looks after the tables of one schema.
#[derive(Clone)]
pub(super) struct Migration {
    schema: String,
    allowed: bool,
}

impl Migration {
    pub(super) fn new(schema: &str, allowed: bool) -> Self {
        Self { schema: schema.to_owned(), allowed }
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }

    /// SQL that is written for the default schema, for this one.
    pub(super) fn sql(&self, text: &str) -> String {
        in_schema(text, &self.schema)
    }

    /// Sees to it that the tables are there.
    pub(super) async fn prepare(&self, lane: &Lane, address: &str) -> Result<(), BackendError> {
        match self.found(lane, address).await? {
            Found::Fitting => Ok(()),
            Found::Newer(oldest) => Err(config(format!(
                "the tables in the schema \"{}\" are those of a newer distlock, which needs at least migration {oldest}, and this \
                 one knows {VERSION}: update it",
                self.schema
            ))),
            Found::Missing if !self.allowed => Err(error::missing(&self.schema)),
            Found::Missing => self.migrate(lane, address).await,
        }
    }

    async fn found(&self, lane: &Lane, address: &str) -> Result<Found, BackendError> {
        let look =
            self.sql("select coalesce(max(version), 0), coalesce(max(oldest), 0) from distlock.migration");
        let rows = match lane.rows(&look, &[]).await {
            Ok(rows) => rows,
            Err(Failure::Failed(failure)) if error::is_missing(&failure) => return Ok(Found::Missing),
            Err(failure) => return Err(error::of_lane("look for the tables", address, failure)),
        };
        let versions = rows
            .first()
            .and_then(|row| Some((row.try_get::<_, i32>(0).ok()?, row.try_get::<_, i32>(1).ok()?)));
        match versions {
            Some((_, oldest)) if oldest > VERSION => Ok(Found::Newer(oldest)),
            Some((version, _)) if version >= VERSION => Ok(Found::Fitting),
            Some(_) => Ok(Found::Missing),
            None => Err(error::unexpected("look for the tables", "no version")),
        }
    }

    async fn migrate(&self, lane: &Lane, address: &str) -> Result<(), BackendError> {
        tracing::info!(schema = self.schema, version = VERSION, "making the tables of distlock in postgres");
        let text = self.sql(MIGRATION);
        // One text is one transaction, and leaves nothing behind in a session that others use too.
        let whole = format!("select pg_advisory_xact_lock({EXCLUSION}); {text}");
        match lane.batch(&whole).await {
            Ok(()) => Ok(()),
            Err(failure) => {
                let failure = error::of_lane("make the tables", address, failure);
                match failure.kind() {
                    BackendErrorKind::Permission => Err(BackendError::refused(
                        BackendErrorKind::Permission,
                        format!(
                            "{failure}; let somebody who may run the SQL that PostgresOptions::migration gives, or grant create"
                        ),
                    )),
                    _ => Err(failure),
                }
            }
        }
    }
}

enum Found {
    Fitting,
    Missing,
    Newer(i32),
}

/// The whole migration for a schema.
pub(super) fn text(schema: &str) -> String {
    in_schema(MIGRATION, schema)
}

fn in_schema(text: &str, schema: &str) -> String {
    if schema == PostgresOptions::DEFAULT_SCHEMA {
        return text.to_owned();
    }
    // It may be a reserved word.
    text.replace("distlock.", &format!("\"{schema}\"."))
        .replace("'distlock'", &format!("'\"{schema}\"'"))
        .replace("create schema distlock", &format!("create schema \"{schema}\""))
}

impl fmt::Debug for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Migration").field("schema", &self.schema).field("allowed", &self.allowed).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_schema_has_everything_and_the_default_one_nothing() {
        let moved = in_schema(MIGRATION, "elsewhere");
        let code = moved.lines().filter(|line| !line.trim_start().starts_with("--"));
        for line in code {
            // A setting of the session has nothing to do with the schema.
            assert!(!line.replace("distlock_session", "").contains("distlock"), "{line}");
        }
        assert!(moved.contains("create schema \"elsewhere\";"));
        assert!(moved.contains("to_regnamespace('\"elsewhere\"')"));
        assert_eq!(text("distlock"), MIGRATION);
    }

    /// Programs look at the version only: with another text under the same one they would go on with what stands in the database.
    #[test]
    fn the_text_changes_with_the_version_only() {
        use sha2::{Digest as _, Sha256};

        let digest: String =
            Sha256::digest(MIGRATION).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            (VERSION, &*digest),
            (3, "93f2b67bbaac99a2"),
            "raise VERSION and the number in version.sql, and write down the new digest here"
        );
    }

    #[test]
    fn the_last_part_records_the_version() {
        let recorded = format!("insert into distlock.migration (version, oldest) values ({VERSION}, ");
        assert!(MIGRATION.trim_end().lines().last().unwrap().starts_with(&recorded));
    }
}
