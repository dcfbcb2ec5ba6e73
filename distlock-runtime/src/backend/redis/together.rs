//! Several exclusive locks in one step.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::calls::NAMES;
use super::connection::{Lane, Reply};
use super::{RedisBackend, error, script, value};
use crate::backend::{AcquireRequest, AttemptAll, BackendError, Blocked, Grant, Mode};
use crate::token::FencingToken;

/// How many locks one script takes: enough for whoever names them, few enough not to hold up others.
const TOGETHER: usize = 200;

impl RedisBackend {
    /// With the connection that answered, if one was asked.
    pub(super) async fn attempt_all(
        &self,
        requests: &[AcquireRequest],
    ) -> Result<(AttemptAll, Option<Arc<Lane>>), BackendError> {
        // One server has every key; where keys are spread over servers, only those of one slot go together.
        let plain = |request: &AcquireRequest| request.mode == Mode::Exclusive && !request.fair;
        let slot = |request: &AcquireRequest| self.namespace.lock(&request.key).slot();
        let spread = || {
            self.connections.cluster().is_some()
                && requests.iter().any(|request| slot(request) != slot(&requests[0]))
        };
        if requests.is_empty() || requests.len() > TOGETHER || !requests.iter().all(plain) || spread() {
            return Ok((AttemptAll::Apart, None));
        }
        let reply = self
            .connections
            .run(self.drawing(&script::ACQUIRE_ALL), || self.acquire_all_call(requests))
            .await?;
        let lane = Arc::clone(&reply.lane);
        Ok((answered(requests, reply)?, Some(lane)))
    }

    fn acquire_all_call(&self, requests: &[AcquireRequest]) -> Cmd {
        let count = requests.len();
        let mut call = self.drawing(&script::ACQUIRE_ALL).call(3 * count, 3 * count, NAMES * count);
        for request in requests {
            let names = self.namespace.lock(&request.key);
            names.lock(&mut call);
            names.counter(&mut call);
            names.tombstones(&mut call);
        }
        for request in requests {
            value::write(&mut call, &request.owner.to_hex(), &self.label);
        }
        for request in requests {
            call.arg(request.ttl.as_millis());
        }
        for request in requests {
            call.arg(request.tokens.max(1));
        }
        call
    }
}

fn answered(
    requests: &[AcquireRequest],
    Reply { sent, value, .. }: Reply,
) -> Result<AttemptAll, BackendError> {
    let unexpected = |value: &Value| error::unexpected("acquire", value);
    let parts = match &value {
        Value::Int(-1) => {
            return Err(BackendError::cancelled());
        }
        Value::Array(parts) => parts.as_slice(),
        other => return Err(unexpected(other)),
    };
    if let [Value::Int(index), Value::BulkString(holder), Value::Int(remaining)] = parts {
        let index = usize::try_from(*index - 1).map_err(|_| unexpected(&value))?;
        let blocked = Blocked { holder: Some(value::holder(holder, *remaining)) };
        return Ok(AttemptAll::Busy { index, blocked });
    }
    let grant = |(request, token): (&AcquireRequest, &Value)| match token {
        Value::Int(token @ 1..) => {
            let token = FencingToken::new(token.unsigned_abs());
            Ok(Grant { sent, token, tokens: request.tokens.max(1) })
        }
        other => Err(unexpected(other)),
    };
    if parts.len() != requests.len() {
        return Err(unexpected(&value));
    }
    requests.iter().zip(parts).map(grant).collect::<Result<_, _>>().map(AttemptAll::Granted)
}
