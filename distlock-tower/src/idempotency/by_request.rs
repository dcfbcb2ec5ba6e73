//! A setting that is the same for all requests, or that a closure finds for each.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;

#[derive(Clone)]
pub(crate) enum ByRequest<T> {
    Always(T),
    By(Arc<dyn Fn(&Parts) -> T + Send + Sync>),
}

impl<T: Copy> ByRequest<T> {
    pub(crate) fn by(rule: impl Fn(&Parts) -> T + Send + Sync + 'static) -> Self {
        Self::By(Arc::new(rule))
    }

    pub(crate) fn of(&self, parts: &Parts) -> T {
        match self {
            Self::Always(value) => *value,
            Self::By(rule) => rule(parts),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ByRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(value) => value.fmt(f),
            Self::By(_) => f.write_str("by request"),
        }
    }
}
