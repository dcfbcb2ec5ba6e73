//! What a layer was told, shared by all its services.

use std::fmt;
use std::time::Duration;

use distlock_runtime::{LockError, LockKey, LockManager, Ttl};
use http::request::Parts;
use http::{Method, StatusCode};

use crate::responder::SharedResponder;

type KeyFn = dyn Fn(&Parts) -> Result<Option<LockKey>, LockError> + Send + Sync;

pub(crate) struct Config {
    pub(crate) locks: LockManager,
    pub(crate) key: Box<KeyFn>,
    pub(crate) methods: Option<Vec<Method>>,
    pub(crate) template: &'static str,
    pub(crate) ttl: Ttl,
    pub(crate) wait: Duration,
    pub(crate) busy_status: StatusCode,
    pub(crate) responder: SharedResponder,
    /// For gRPC calls.
    pub(crate) calls: SharedResponder,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("locks", &self.locks)
            .field("methods", &self.methods)
            .field("ttl", &self.ttl)
            .field("wait", &self.wait)
            .field("busy_status", &self.busy_status)
            .finish_non_exhaustive()
    }
}
