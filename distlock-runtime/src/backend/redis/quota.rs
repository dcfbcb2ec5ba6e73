//! Quotas of scopes: each has its places in keys of its own, in a slot of its own.

use redis::Value;

use super::calls::milliseconds;
use super::{RedisBackend, error, script};
use crate::backend::{BackendError, Charge, RecordScope, Reservation, Reserved};

impl RedisBackend {
    pub(super) async fn take_place(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        let (places, bytes) = self.namespace.places(&wanted.scope);
        let reply = self
            .connections
            .run(&script::QUOTA_RESERVE, || {
                let mut call = script::QUOTA_RESERVE.call(2, 4, 384);
                call.arg(&places).arg(&bytes).arg(wanted.key.to_hex()).arg(milliseconds(wanted.hold).max(1));
                call.arg(wanted.quota.keys).arg(wanted.quota.bytes);
                call
            })
            .await?;
        let Value::Array(parts) = &reply.value else {
            return Err(error::unexpected("reserve", &reply.value));
        };
        match &parts[..] {
            [Value::Int(1)] => Ok(Reserved::Granted),
            [Value::Int(0), Value::Int(keys), Value::BulkString(bytes)] => {
                let bytes = std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
                Ok(Reserved::Full { keys: keys.unsigned_abs(), bytes })
            }
            _ => Err(error::unexpected("reserve", &reply.value)),
        }
    }

    pub(super) async fn value_place(&self, charge: &Charge) -> Result<(), BackendError> {
        let (places, bytes) = self.namespace.places(&charge.scope);
        self.connections
            .run(&script::QUOTA_CHARGE, || {
                let mut call = script::QUOTA_CHARGE.call(2, 3, 320);
                call.arg(&places).arg(&bytes).arg(charge.key.to_hex());
                call.arg(charge.bytes).arg(milliseconds(charge.retain));
                call
            })
            .await?;
        Ok(())
    }

    /// Gives back all places of a scope whose records are gone.
    pub(super) async fn clear_places(&self, scope: &RecordScope) -> Result<(), BackendError> {
        let (places, bytes) = self.namespace.places(scope);
        self.connections
            .command("purge", || {
                let mut clear = redis::cmd("DEL");
                clear.arg(&places).arg(&bytes);
                clear
            })
            .await?;
        Ok(())
    }
}
