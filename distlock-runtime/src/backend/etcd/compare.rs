//! What a transaction of the user's own compares.

use std::fmt;

/// What must hold in a transaction on the same etcd for it to be applied only while a lock is held: the one use of a lock that
/// nothing can slip past, neither a pause nor a late message, since etcd itself looks at the lock in the same moment.
///
/// From [`Guard::etcd_compare`](crate::Guard::etcd_compare). It has the parts of a comparison, and no type of a client library: with
/// the crate `etcd-client` it is used so:
///
/// ```
/// # use distlock_runtime as distlock;
/// use distlock::backend::etcd::EtcdCompare;
/// use etcd_client::{Compare, CompareOp, Txn, TxnOp};
///
/// fn ship(lock: &EtcdCompare, order: &str) -> Txn {
///     let held = Compare::create_revision(lock.key(), CompareOp::Equal, lock.create_revision());
///     Txn::new().when([held]).and_then([TxnOp::put(order, "shipped", None)])
/// }
/// ```
///
/// Not applied, the lock is lost (or etcd was never asked): `succeeded()` of the answer says so.
///
/// It says that this hold stands, not how: taken by a writer it is true still when that has become a reader
/// ([`downgrade`](crate::WriteGuard::downgrade)), and each reader, and each permit, has one of its own that is true beside the others'.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct EtcdCompare {
    key: Vec<u8>,
    create_revision: i64,
}

impl EtcdCompare {
    pub(super) fn new(key: Vec<u8>, create_revision: i64) -> Self {
        Self { key, create_revision }
    }

    /// The name under which the lock is held, with nothing left out.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The revision at which that name was made. It has no other for as long as the lock is held.
    #[must_use]
    pub fn create_revision(&self) -> i64 {
        self.create_revision
    }
}

impl fmt::Debug for EtcdCompare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The name ends with the proof of ownership.
        f.debug_struct("EtcdCompare").field("create_revision", &self.create_revision).finish_non_exhaustive()
    }
}
