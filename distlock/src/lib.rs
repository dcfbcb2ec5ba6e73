//! Run code in one place at a time across many servers.

#![forbid(unsafe_code)]

pub use distlock_macros::*;
pub use distlock_runtime::*;

#[cfg(feature = "tower")]
pub use distlock_tower as tower;

#[doc(hidden)]
pub use distlock_runtime::__private;
