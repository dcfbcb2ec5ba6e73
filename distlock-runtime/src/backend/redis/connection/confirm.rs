//! What replicas have of that which was written on a connection.
//!
//! `WAIT` speaks of the writes of its own connection: on another one it answers for nothing. It also holds up what comes behind it,
//! so one is under way at a time, and stands for all who asked before it was sent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::Mutex;

use super::super::error;
use super::lane::{Lane, SendError};
use crate::backend::BackendError;
use crate::clock::{Moment, within};

/// How long a caller waits at least for the round that is under way.
const PATIENCE: Duration = Duration::from_millis(250);

/// The rounds of one connection.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    asked: AtomicU64,
    last: Mutex<Round>,
}

/// One `WAIT`, and how many of those who asked it stands for.
#[derive(Debug, Default)]
struct Round {
    covers: u64,
    replicas: u64,
}

impl Lane {
    /// How many replicas have everything that was answered on this connection before: at least `wanted`, or what there is after
    /// `limit`, or as many as are connected if that is less. Cancel safe.
    pub(in super::super) async fn replicated(
        &self,
        wanted: u32,
        limit: Duration,
        now: impl Fn() -> Moment,
    ) -> Result<u64, BackendError> {
        let confirmations = self.confirmations();
        let turn = confirmations.asked.fetch_add(1, Ordering::AcqRel) + 1;
        // Whoever asks may not be polled any more: nobody waits for longer than the answer takes, and asks for itself then.
        let Some(mut last) = within(limit.max(PATIENCE), confirmations.last.lock()).await else {
            return self.ask(&mut Round::default(), turn, wanted, limit, now).await;
        };
        if last.covers >= turn {
            return Ok(last.replicas);
        }
        let covers = confirmations.asked.load(Ordering::Acquire);
        self.ask(&mut last, covers, wanted, limit, now).await
    }

    async fn ask(
        &self,
        last: &mut Round,
        covers: u64,
        wanted: u32,
        limit: Duration,
        now: impl Fn() -> Moment,
    ) -> Result<u64, BackendError> {
        // Nobody has to wait for replicas that aren't there. As long as there are enough, the question is saved.
        if last.replicas < u64::from(wanted) {
            let connected = connected(&self.one(redis::cmd("ROLE"), now()).await?);
            if let Some(connected) = connected.filter(|connected| *connected < u64::from(wanted)) {
                *last = Round { covers, replicas: connected };
                return Ok(connected);
            }
        }
        let mut wait = redis::cmd("WAIT");
        wait.arg(wanted).arg(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        match self.one(wait, now()).await? {
            Value::Int(replicas) => {
                *last = Round { covers, replicas: replicas.unsigned_abs() };
                Ok(last.replicas)
            }
            Value::ServerError(failure) => Err(super::refused("WAIT", self, &failure)),
            other => Err(error::unexpected("WAIT", &other)),
        }
    }

    async fn one(&self, command: redis::Cmd, now: Moment) -> Result<Value, BackendError> {
        match self.send(command.into(), now).await {
            Ok([value, _]) => Ok(value),
            Err(SendError::NotSent) => Err(error::lost("WAIT", "its connection", None)),
            Err(SendError::Lost(why)) => Err(error::lost("WAIT", "its connection", why.as_ref())),
        }
    }
}

/// How many replicas this reply to `ROLE` names; `None` if it tells of none, since it is another's or an error.
fn connected(role: &Value) -> Option<u64> {
    let Value::Array(parts) = role else { return None };
    match parts.as_slice() {
        [_, _, Value::Array(replicas)] => Some(replicas.len() as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_counted() {
        let role = |replicas| {
            let master = Value::BulkString(b"master".to_vec());
            Value::Array(vec![master, Value::Int(9), Value::Array(vec![Value::Nil; replicas])])
        };
        assert_eq!(connected(&role(0)), Some(0));
        assert_eq!(connected(&role(2)), Some(2));
        assert_eq!(connected(&Value::Nil), None);
    }
}
