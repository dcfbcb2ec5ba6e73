//! Quotas of scopes: what each has in all is a row, which its reservations lock one after the other.

use tokio_postgres::types::Type;

use super::super::answer;
use super::super::connection::Parameter;
use super::super::locks::milliseconds;

use super::{Records, kept};
use crate::backend::{BackendError, Charge, Reservation, Reserved};

impl Records {
    pub(super) async fn take_place(&self, wanted: &Reservation) -> Result<Reserved, BackendError> {
        let (scope, key) = (wanted.scope.to_bytes(), wanted.key.to_bytes());
        let (keys, bytes) = (bounded(wanted.quota.keys), bounded(wanted.quota.bytes));
        let hold = kept(wanted.hold);
        let parameters: [Parameter<'_>; 6] = [
            (&self.namespace, Type::TEXT),
            (&&scope[..], Type::BYTEA),
            (&&key[..], Type::BYTEA),
            (&hold, Type::INT8),
            (&keys, Type::INT8),
            (&bytes, Type::INT8),
        ];
        let reply = self.connections.run("reserve", &self.statements.reserve, &parameters).await?;
        let row = answer::only("reserve", &reply)?;
        if answer::column(row, 0)? {
            return Ok(Reserved::Granted);
        }
        let [keys, bytes] = [1, 2].map(|place| answer::column::<i64>(row, place));
        Ok(Reserved::Full { keys: keys?.unsigned_abs(), bytes: bytes?.unsigned_abs() })
    }

    pub(super) async fn value_place(&self, charge: &Charge) -> Result<(), BackendError> {
        let (scope, key) = (charge.scope.to_bytes(), charge.key.to_bytes());
        let (bytes, retain) = (bounded(charge.bytes), milliseconds(charge.retain));
        let parameters: [Parameter<'_>; 5] = [
            (&self.namespace, Type::TEXT),
            (&&scope[..], Type::BYTEA),
            (&&key[..], Type::BYTEA),
            (&bytes, Type::INT8),
            (&retain, Type::INT8),
        ];
        self.connections.run("charge", &self.statements.charge, &parameters).await?;
        Ok(())
    }
}

fn bounded(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
