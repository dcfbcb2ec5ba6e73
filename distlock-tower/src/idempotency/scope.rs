//! Whose key it is: a client's key means nothing outside the scope that the server knows.

use std::fmt;
use std::sync::Arc;

use distlock_runtime::{RecordKey, RecordScope};
use http::request::Parts;

use super::key::IdempotencyKey;
use super::subject::original_uri;

/// Names the record layout of keys: another layout must never meet the records of this one.
const SCOPED: &str = "distlock.idempotency.1.scoped";
const ANONYMOUS: &str = "distlock.idempotency.1.anonymous";

/// The owner of a key: principal, tenant, route, whatever keeps one client's keys from another's.
///
/// Take it from the *resolved* identity, not from the raw `Authorization` header: a token refreshed between two tries
/// would make two executions of one request.
///
/// ```
/// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
/// use distlock::tower::Scope;
/// let scope = Scope::new("tenant-7").and("user-42");
/// assert_ne!(scope, Scope::new("tenant-7user-42"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Scope(Vec<u8>);

impl Scope {
    /// A scope named by this part.
    #[must_use]
    pub fn new(part: impl AsRef<[u8]>) -> Self {
        Self(Vec::new()).and(part)
    }

    /// Narrowed by another part. Parts are kept apart by their lengths; no choice of text shifts a border.
    #[must_use]
    pub fn and(mut self, part: impl AsRef<[u8]>) -> Self {
        let part = part.as_ref();
        self.0.extend_from_slice(&u64::try_from(part.len()).expect("a length fits in 64 bits").to_be_bytes());
        self.0.extend_from_slice(part);
        self
    }
}

impl Scope {
    /// The scope as records have it: for operators who list or purge what is somebody's.
    #[must_use]
    pub fn record_scope(&self) -> RecordScope {
        RecordScope::of_framed(&self.0)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").finish_non_exhaustive()
    }
}

/// What a scope closure may return: a [`Scope`], an `Option` of it (`None` is refused with 403), or a `Result`
/// (an error is logged and refused with 500). There is no shared bucket to fall into.
#[diagnostic::on_unimplemented(
    message = "`{Self}` doesn't say whose key it is",
    label = "the closure must return a `Scope`, an `Option` or a `Result` of it",
    note = "make one with `Scope::new(…)` of the caller's identity"
)]
pub trait IntoScope {
    /// The scope, or why there is none.
    ///
    /// # Errors
    /// [`NoScope`] where the request must be refused.
    fn into_scope(self) -> Result<Scope, NoScope>;
}

/// Why a request with a key has no scope.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoScope {
    /// Determining it failed; the text goes to the log, not to the client.
    Failed(String),
    /// There is no caller to name.
    Missing,
}

impl IntoScope for Scope {
    fn into_scope(self) -> Result<Scope, NoScope> {
        Ok(self)
    }
}

impl<T: IntoScope> IntoScope for Option<T> {
    fn into_scope(self) -> Result<Scope, NoScope> {
        self.map_or(Err(NoScope::Missing), T::into_scope)
    }
}

impl<T: IntoScope, E: fmt::Display> IntoScope for Result<T, E> {
    fn into_scope(self) -> Result<Scope, NoScope> {
        self.map_or_else(|error| Err(NoScope::Failed(error.to_string())), T::into_scope)
    }
}

type ScopeFn = dyn Fn(&Parts) -> Result<Scope, NoScope> + Send + Sync;

/// How the layer finds the record of a request.
#[derive(Clone)]
pub(crate) enum Scoping {
    Anonymous,
    By(Arc<ScopeFn>),
}

impl Scoping {
    pub(crate) fn by<T: IntoScope>(scope: impl Fn(&Parts) -> T + Send + Sync + 'static) -> Self {
        Self::By(Arc::new(move |parts| scope(parts).into_scope()))
    }

    pub(crate) fn record_key(
        &self,
        parts: &Parts,
        key: &IdempotencyKey,
        per_route: bool,
    ) -> Result<(RecordKey, Option<RecordScope>), NoScope> {
        let route = [parts.method.as_str().as_bytes(), original_uri(parts).path().as_bytes()];
        let route = if per_route { &route[..] } else { &[] };
        let key = key.as_str().as_bytes();
        match self {
            Self::Anonymous => Ok((RecordKey::derive(ANONYMOUS, &[&[key], route].concat()), None)),
            Self::By(scope) => {
                let scope = scope(parts)?;
                let record = RecordKey::derive(SCOPED, &[&[&scope.0, key], route].concat());
                Ok((record, Some(scope.record_scope())))
            }
        }
    }
}

impl fmt::Debug for Scoping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "anonymous",
            Self::By(_) => "by request",
        })
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::idempotency::key::KeySyntax;

    fn key(text: &'static str) -> IdempotencyKey {
        let name = HeaderName::from_static("k");
        let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_static(text))]);
        KeySyntax::Lenient.find(&headers, &name).unwrap().unwrap()
    }

    fn parts() -> Parts {
        http::Request::new(()).into_parts().0
    }

    #[test]
    fn borders_between_scope_and_key_cannot_be_shifted() {
        let record = |scope: &'static str, text| {
            Scoping::by(move |_| Scope::new(scope)).record_key(&parts(), &key(text), false).unwrap().0
        };
        assert_eq!(record("ab", "c"), record("ab", "c"));
        assert_ne!(record("ab", "c"), record("a", "bc"));
        assert_ne!(Scope::new("a").and("b"), Scope::new("ab"));
        assert_ne!(record("", "c"), Scoping::Anonymous.record_key(&parts(), &key("c"), false).unwrap().0);
    }

    #[test]
    fn operators_name_a_scope_by_its_parts() {
        let scope = Scope::new("tenant-7").and("user-42");
        assert_eq!(scope.record_scope(), RecordScope::derive(&[b"tenant-7", b"user-42"]));
    }

    #[test]
    fn no_scope_is_an_error_never_a_shared_bucket() {
        let missing = Scoping::by(|_| None::<Scope>).record_key(&parts(), &key("k"), false);
        assert!(matches!(missing, Err(NoScope::Missing)));
        let failed = Scoping::by(|_| Err::<Scope, _>("db down")).record_key(&parts(), &key("k"), false);
        assert!(matches!(failed, Err(NoScope::Failed(text)) if text == "db down"));
    }
    #[test]
    fn a_key_is_one_record_or_one_for_each_route() {
        let record = |uri: &str, per_route| {
            let parts = http::Request::post(uri).body(()).unwrap().into_parts().0;
            Scoping::Anonymous.record_key(&parts, &key("k"), per_route).unwrap().0
        };
        assert_eq!(record("/a", false), record("/b", false));
        assert_ne!(record("/a", true), record("/b", true));
        assert_eq!(record("/a?x=1", true), record("/a?x=2", true));
    }
}
