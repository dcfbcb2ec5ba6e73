//! Which errors of the transport are repeated.

/// Which errors of the transport are worth another try. Implemented by closures.
pub trait ErrorRule<E> {
    /// Whether the call is repeated after this error.
    fn repeats(&self, error: &E) -> bool;
}

/// The default [`ErrorRule`]: a transport that failed has given no answer, and with a key it is safe to ask again.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct EveryError;

impl<E> ErrorRule<E> for EveryError {
    fn repeats(&self, _: &E) -> bool {
        true
    }
}

impl<E, F: Fn(&E) -> bool> ErrorRule<E> for F {
    fn repeats(&self, error: &E) -> bool {
        self(error)
    }
}
