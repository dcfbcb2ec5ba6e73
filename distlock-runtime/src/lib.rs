//! The engine of distlock: keys, leases, guards, backends and idempotency records.
//!
//! Users depend on the `distlock` crate, which re-exports this one. Rooms, ground floor first: `key`, `ttl`, `token`,
//! `error`, `clock`; [`backend`]; `lease`; `queue`; `engine`; `lock`, `record`; `manager`. A room imports only from
//! floors below.

#![forbid(unsafe_code)]

pub mod backend;
mod clock;
mod error;
mod key;
mod lease;
mod queue;
mod token;
mod ttl;

pub use clock::{Clock, Moment};
pub use error::{ErrorKind, Holder, LockError};
pub use key::{KeyWriter, LockKey, MAX_KEY_BYTES, MAX_RAW_KEY_BYTES};
pub use token::{FencingToken, OwnerToken};
pub use ttl::{Ttl, Wait};
