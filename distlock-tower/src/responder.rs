//! Who makes the responses of refusals.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use distlock_runtime::problem::Problem;
use http::Response;

/// Turns problems into responses. The default is [`ProblemJson`].
///
/// ```
/// use bytes::Bytes;
/// # mod distlock { pub use distlock_runtime::*; pub use distlock_tower as tower; }
/// use distlock::tower::{Problem, Responder};
///
/// struct Plain;
/// impl Responder for Plain {
///     fn respond(&self, problem: &Problem) -> http::Response<Bytes> {
///         let mut response = http::Response::new(Bytes::from(problem.to_string()));
///         *response.status_mut() = problem.status_code();
///         response
///     }
/// }
/// ```
///
/// The problem's [`Outcome`](crate::Outcome) is added to the response's extensions, unless the responder has set one itself.
pub trait Responder: Send + Sync + 'static {
    /// The response for this problem.
    fn respond(&self, problem: &Problem) -> Response<Bytes>;
}

impl<F> Responder for F
where
    F: Fn(&Problem) -> Response<Bytes> + Send + Sync + 'static,
{
    fn respond(&self, problem: &Problem) -> Response<Bytes> {
        self(problem)
    }
}

/// The default [`Responder`]: `application/problem+json`, as [`Problem::to_response`] makes it.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct ProblemJson;

impl ProblemJson {
    /// The responder.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Responder for ProblemJson {
    fn respond(&self, problem: &Problem) -> Response<Bytes> {
        problem.to_response()
    }
}

/// A responder that layers share.
#[derive(Clone)]
pub(crate) struct SharedResponder(Arc<dyn Responder>);

impl SharedResponder {
    pub(crate) fn new(responder: impl Responder) -> Self {
        Self(Arc::new(responder))
    }

    pub(crate) fn respond(&self, problem: &Problem) -> Response<Bytes> {
        let mut response = self.0.respond(problem);
        if let Some(outcome) = problem.known_outcome() {
            response.extensions_mut().get_or_insert(outcome);
        }
        response
    }
}

impl Default for SharedResponder {
    fn default() -> Self {
        Self::new(ProblemJson::new())
    }
}

impl fmt::Debug for SharedResponder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Responder")
    }
}

#[cfg(test)]
mod tests {
    use distlock_runtime::problem::{Outcome, ProblemKind};

    use super::*;

    #[test]
    fn a_responder_of_ones_own_keeps_the_outcome() {
        let told = |responder: SharedResponder| {
            let response = responder.respond(&Problem::new(ProblemKind::LockBusy));
            response.extensions().get::<Outcome>().copied()
        };
        let plain = |problem: &Problem| Response::new(Bytes::from(problem.to_string()));
        assert_eq!(told(SharedResponder::new(plain)), Some(Outcome::NotStarted));
        let wiser = |problem: &Problem| {
            let mut response = problem.to_response();
            response.extensions_mut().insert(Outcome::Final);
            response
        };
        assert_eq!(told(SharedResponder::new(wiser)), Some(Outcome::Final));
    }
}
