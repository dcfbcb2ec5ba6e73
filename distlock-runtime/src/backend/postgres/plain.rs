//! The plain way of an exclusive lock: alone in one statement of its own, among others in one that they share.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio_postgres::types::Type;

use super::connection::{Ask, Lane, Op, Told};
use super::locks::{LIVE, LONGEST_LINE, block, claim, fencing, milliseconds, ttl};
use super::{PostgresBackend, answer, error};
use crate::backend::{AcquireRequest, Attempt, BackendError, Grant};
use crate::clock::Moment;
use crate::key::LockKey;
use crate::token::OwnerToken;

impl PostgresBackend {
    /// Together with others if there are some, unless it has waited already: then it isn't a plain matter.
    pub(super) async fn ask_plainly(
        &self,
        request: &AcquireRequest,
        may_join: bool,
    ) -> Result<Attempt, BackendError> {
        if may_join
            && let Some(lane) = self.connections.ready()
            && let Some(told) =
                self.join(&lane, &request.key, request.owner, |told| Ask::Take(ttl(request.ttl), told)).await
            && let Some((token, sent)) = told?
        {
            let token = fencing(token).ok_or_else(|| error::unexpected("acquire", "no token"))?;
            return Ok(Attempt::Granted(Grant { sent, token, tokens: block(request.mode, request.tokens) }));
        }
        let owner = request.owner.to_hex();
        let reply = self
            .connections
            .run_hot(
                "acquire",
                &self.statements.acquire_plain,
                &[
                    (&self.namespace_of(&request.key), Type::TEXT),
                    (&request.key.as_str(), Type::TEXT),
                    (&owner, Type::TEXT),
                    (&self.label, Type::TEXT),
                    (&ttl(request.ttl), Type::INT8),
                    (&request.fair, Type::BOOL),
                    (&request.queue, Type::BOOL),
                    (&claim(request), Type::INT8),
                    (&self.told_by(), Type::TEXT),
                    (&milliseconds(LIVE), Type::INT8),
                    (&LONGEST_LINE, Type::INT8),
                ],
            )
            .await?;
        answer::attempt(request.mode, request.tokens, &reply)
    }

    /// Sends it with what else is under way; `None` if nothing is, and then nothing was sent. Without a value it takes more than this.
    pub(super) async fn join(
        &self,
        lane: &Lane,
        key: &LockKey,
        owner: OwnerToken,
        ask: impl FnOnce(oneshot::Sender<Told>) -> Ask,
    ) -> Option<Result<Option<(i64, Moment)>, BackendError>> {
        let joined = lane.join()?;
        let (tell, told) = oneshot::channel();
        joined.send(self.op(key, owner, ask(tell)));
        let told = told.await;
        joined.landed();
        let address = self.connections.address();
        Some(match told {
            Ok(Told::Done(value, sent)) => Ok(Some((value, sent))),
            Ok(Told::NotPlain) => Ok(None),
            Ok(Told::Lost(Some(failure))) => Err(error::statement("acquire or release", address, &failure)),
            // The connection's task ends with its runtime.
            Ok(Told::Lost(None)) | Err(_) => Err(error::silent("acquire or release", address)),
        })
    }

    pub(super) fn op(&self, key: &LockKey, owner: OwnerToken, ask: Ask) -> Op {
        Op {
            several: Arc::clone(&self.statements.several),
            namespace: self.namespace_of(key).to_owned(),
            name: key.as_str().to_owned(),
            owner: owner.to_hex(),
            ask,
        }
    }
}
