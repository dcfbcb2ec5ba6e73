//! What holders wait for: rows beside each lock that is held meanwhile, forgotten within seconds unless it is said again.

use async_trait::async_trait;
use tokio_postgres::types::Type;

use super::{PostgresBackend, answer, error};
use crate::backend::{BackendError, HolderWait, PublishedWait, WaitBoard};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// How long a wait stands that isn't published again.
const LIFE_MS: i64 = 3_000;
/// How many waits stand beside one lock.
const MOST: i64 = 100;

#[async_trait]
impl WaitBoard for PostgresBackend {
    async fn publish(&self, wait: &PublishedWait) -> Result<(), BackendError> {
        let (namespaces, names) = self.places(wait);
        let owners: Vec<String> = wait.under.iter().map(|held| held.owner.to_hex()).collect();
        let id = wait.id.to_hex();
        self.connections
            .run(
                "publish a wait",
                &self.statements.publish_wait,
                &[
                    (&namespaces, Type::TEXT_ARRAY),
                    (&names, Type::TEXT_ARRAY),
                    (&owners, Type::TEXT_ARRAY),
                    (&id, Type::TEXT),
                    (&i64::from(wait.beat), Type::INT8),
                    (&wait.key.is_raw(), Type::BOOL),
                    (&wait.key.as_str(), Type::TEXT),
                    (&wait.who, Type::TEXT),
                    (&LIFE_MS, Type::INT8),
                    (&MOST, Type::INT8),
                ],
            )
            .await
            .map(drop)
    }

    async fn withdraw(&self, wait: &PublishedWait) -> Result<(), BackendError> {
        let (namespaces, names) = self.places(wait);
        let id = wait.id.to_hex();
        self.connections
            .run(
                "withdraw a wait",
                &self.statements.withdraw_wait,
                &[(&namespaces, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY), (&id, Type::TEXT)],
            )
            .await
            .map(drop)
    }

    async fn waits_of_holders(&self, key: &LockKey) -> Result<Vec<HolderWait>, BackendError> {
        let reply = self
            .connections
            .run(
                "look for waits",
                &self.statements.waits,
                &[(&self.namespace_of(key), Type::TEXT), (&key.as_str(), Type::TEXT)],
            )
            .await?;
        let mut waits = Vec::with_capacity(reply.rows.len());
        for row in &reply.rows {
            let owner_token = |place| {
                let text: &str = answer::column(row, place)?;
                OwnerToken::from_hex(text).ok_or_else(|| error::unexpected("look for waits", "an owner"))
            };
            let (raw, wanted): (bool, &str) = (answer::column(row, 3)?, answer::column(row, 4)?);
            let wanted = if raw { LockKey::raw(wanted) } else { LockKey::new(wanted) };
            waits.push(HolderWait {
                id: owner_token(0)?,
                beat: u32::try_from(answer::column::<i64>(row, 1)?).unwrap_or_default(),
                owner: owner_token(2)?,
                key: wanted.map_err(|_| error::unexpected("look for waits", "a key"))?,
                who: answer::column(row, 5)?,
            });
        }
        Ok(waits)
    }
}

impl PostgresBackend {
    fn places<'a>(&'a self, wait: &'a PublishedWait) -> (Vec<&'a str>, Vec<&'a str>) {
        wait.under.iter().map(|held| (self.namespace_of(&held.key), held.key.as_str())).unzip()
    }
}
