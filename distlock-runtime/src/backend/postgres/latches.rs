//! Count-down latches: a row each, and those who wait are told by the same messages as the watchers of a record.

use std::sync::atomic::AtomicU32;

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::locks::milliseconds;
use super::{PostgresBackend, answer, error};
use crate::backend::{BackendError, BackendErrorKind, LatchSpec, LatchStore, RecordKey};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// Most managers that are told of one latch's opening; further ones ask.
const WATCHERS: i32 = 256;

#[async_trait]
impl LatchStore for PostgresBackend {
    async fn count_down(&self, latch: &LatchSpec, token: OwnerToken, by: u32) -> Result<u32, BackendError> {
        self.use_latch("count down", latch, Some((token, by)), false).await
    }

    async fn left(&self, latch: &LatchSpec) -> Result<u32, BackendError> {
        self.use_latch("look at a latch", latch, None, false).await
    }

    async fn opened(&self, latch: &LatchSpec, left: &AtomicU32) -> Result<(), BackendError> {
        let look = || self.use_latch("wait for a latch", latch, None, true);
        self.wakeups.opened(self.bell(&latch.key), latch, left, look).await
    }
}

impl PostgresBackend {
    async fn use_latch(
        &self,
        operation: &str,
        latch: &LatchSpec,
        count: Option<(OwnerToken, u32)>,
        wait: bool,
    ) -> Result<u32, BackendError> {
        let (owner, by) = count.map(|(token, by)| (token.to_hex(), i64::from(by))).unzip();
        let message = format!("r{}", self.bell(&latch.key).to_hex());
        let reply = self
            .connections
            .run(
                operation,
                &self.statements.latch,
                &[
                    (&self.namespace_of(&latch.key), Type::TEXT),
                    (&latch.key.as_str(), Type::TEXT),
                    (&i64::from(latch.count), Type::INT8),
                    (&milliseconds(latch.retain.as_duration()), Type::INT8),
                    (&owner, Type::TEXT),
                    (&by, Type::INT8),
                    (&wait, Type::BOOL),
                    (&self.told_by(), Type::TEXT),
                    (&message, Type::TEXT),
                    (&WATCHERS, Type::INT4),
                ],
            )
            .await?;
        let row = answer::only(operation, &reply)?;
        let remaining: Option<i64> = answer::column(row, 1)?;
        let remaining = remaining.and_then(|left| u32::try_from(left).ok());
        match (answer::outcome(row)?, remaining) {
            ("left", Some(left)) => Ok(left),
            ("conflict", _) => Err(BackendError::key_in_use()),
            ("limit", Some(count)) => Err(BackendError::refused(
                BackendErrorKind::LimitMismatch,
                format!("the latch counts from {count}, not {}", latch.count),
            )),
            (other, _) => Err(error::unexpected(operation, other)),
        }
    }

    /// What those who wait for this latch listen for.
    fn bell(&self, key: &LockKey) -> RecordKey {
        let parts = [self.namespace_of(key).as_bytes(), key.as_str().as_bytes()];
        RecordKey::derive("distlock latch", &parts)
    }
}
