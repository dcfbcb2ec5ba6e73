//! Idempotency records as the layers use them: claims that renew themselves, settlements that aren't forgotten, and functions
//! that run once for each key.

#[cfg(feature = "idempotent")]
mod call;
mod conclude;
mod executions;
mod fingerprints;
mod found;
mod guard;
mod obtain;
mod operators;
mod packing;
mod records;
#[cfg(feature = "postgres")]
mod transactional;
mod waiters;

#[cfg(feature = "idempotent")]
pub use call::{
    Argument, AsScope, CallArguments, CallSpec, DetachedCall, Idempotent, KeepsResult, KeepsValue, OnCancel,
    OnFailure, ReturnsResult, ReturnsValue, fingerprint_of, idempotent, idempotent_detached, scope_of,
};
#[cfg(all(feature = "idempotent", feature = "postgres"))]
use call::{Kept, kept_value};
pub use conclude::Standing;
pub use executions::{Executions, Running};
pub use fingerprints::Fingerprints;
pub use found::Found;
pub use guard::ClaimGuard;
pub use obtain::{Obtained, SHORTEST_WAIT, Seeker, obtain};
pub use packing::Packing;
#[cfg(feature = "seal")]
pub use packing::SealKeys;
pub use records::{ClaimRequest, Claimed, Records};
#[cfg(feature = "postgres")]
pub use transactional::{
    Begun, OpenClaim, PreparedClaim, Response, SqlTransaction, SqlValue, Statement, TransactionClaim,
    TransactionalRecords,
};
pub use waiters::{Waiters, Waiting};
