//! Count-down latches: a hash each, and those who wait are told by the same messages as the watchers of a record.

use std::sync::atomic::AtomicU32;

use async_trait::async_trait;
use redis::{Cmd, Value};

use super::calls::NAMES;
use super::script::Script;
use super::{RedisBackend, error, script};
use crate::backend::{BackendError, LatchSpec, LatchStore, RecordKey};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// Most managers that are told of one latch's opening; further ones ask.
const WATCHERS: u32 = 256;

#[async_trait]
impl LatchStore for RedisBackend {
    async fn count_down(&self, latch: &LatchSpec, token: OwnerToken, by: u32) -> Result<u32, BackendError> {
        self.asked("count down", &script::LATCH_COUNT_DOWN, || {
            let mut call = self.latch_call(&script::LATCH_COUNT_DOWN, latch, 5);
            call.arg(token.to_hex()).arg(by).arg(format!("r{}", self.bell(&latch.key).to_hex()));
            call
        })
        .await
    }

    async fn left(&self, latch: &LatchSpec) -> Result<u32, BackendError> {
        self.asked("look at a latch", &script::LATCH_LOOK, || self.latch_call(&script::LATCH_LOOK, latch, 2))
            .await
    }

    async fn opened(&self, latch: &LatchSpec, left: &AtomicU32) -> Result<(), BackendError> {
        let look = || {
            self.asked("wait for a latch", &script::LATCH_LOOK, || {
                let mut call = self.latch_call(&script::LATCH_LOOK, latch, 4);
                self.told_by(&mut call, self.namespace.lock(&latch.key).slot());
                call.arg(WATCHERS);
                call
            })
        };
        self.wakeups.opened(self.bell(&latch.key), latch, left, look).await
    }
}

impl RedisBackend {
    fn latch_call(&self, script: &Script, latch: &LatchSpec, arguments: usize) -> Cmd {
        let mut call = script.call(1, arguments, NAMES);
        self.namespace.lock(&latch.key).lock(&mut call);
        call.arg(latch.count).arg(latch.retain.as_millis());
        call
    }

    async fn asked(
        &self,
        operation: &str,
        script: &Script,
        call: impl Fn() -> Cmd + Send + Sync,
    ) -> Result<u32, BackendError> {
        let reply = self.connections.run(script, call).await?;
        match reply.value {
            Value::Int(left) => {
                u32::try_from(left).map_err(|_| error::unexpected(operation, &Value::Int(left)))
            }
            other => Err(error::unexpected(operation, &other)),
        }
    }

    /// What those who wait for this latch listen for.
    fn bell(&self, key: &LockKey) -> RecordKey {
        let prefix = if key.is_raw() { "" } else { self.namespace.prefix() };
        RecordKey::derive("distlock latch", &[prefix.as_bytes(), key.as_str().as_bytes()])
    }
}
