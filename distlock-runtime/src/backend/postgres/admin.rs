//! Looking at locks, and changing what others hold.

use tokio_postgres::types::Type;

use super::{PostgresBackend, answer, error};
use crate::backend::{BackendError, HolderState, LockState};
use crate::key::LockKey;

impl PostgresBackend {
    pub(super) async fn look_at(&self, key: &LockKey) -> Result<LockState, BackendError> {
        let most = i64::try_from(LockState::MOST_HOLDERS).unwrap_or(i64::MAX);
        let names = [key.as_str()];
        let reply = self
            .connections
            .run(
                "inspect",
                &self.statements.state,
                &[
                    (&self.namespace_of(key), Type::TEXT),
                    (&names.as_slice(), Type::TEXT_ARRAY),
                    (&most, Type::INT8),
                ],
            )
            .await?;
        answer::state(key.clone(), &reply.rows)
    }

    pub(super) async fn held(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let (limit, most) = (number(limit), number(LockState::MOST_LISTED));
        let reply = self
            .connections
            .run(
                "list",
                &self.statements.list,
                &[
                    (&self.namespace, Type::TEXT),
                    (&prefix, Type::TEXT),
                    (&limit, Type::INT8),
                    (&most, Type::INT8),
                ],
            )
            .await?;
        let mut states = answer::states(&reply.rows)?;
        // What ended between the two looks of the statement.
        states.retain(|state| state.holder.is_some());
        Ok(states)
    }

    pub(super) async fn take_away(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        let reply = self
            .connections
            .run(
                "force_release",
                &self.statements.force_release,
                &[(&self.namespace_of(key), Type::TEXT), (&key.as_str(), Type::TEXT)],
            )
            .await?;
        answer::taken(&reply)
    }

    pub(super) async fn change_limit(&self, key: &LockKey, limit: u32) -> Result<bool, BackendError> {
        let reply = self
            .connections
            .run(
                "resize",
                &self.statements.resize,
                &[
                    (&self.namespace_of(key), Type::TEXT),
                    (&key.as_str(), Type::TEXT),
                    (&i64::from(limit), Type::INT8),
                ],
            )
            .await?;
        match answer::column(answer::only("resize", &reply)?, 0)? {
            "changed" => Ok(true),
            "free" => Ok(false),
            "conflict" => Err(BackendError::key_in_use()),
            other => Err(error::unexpected("resize", other)),
        }
    }
}
