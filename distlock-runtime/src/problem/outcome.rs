//! What is known about an execution.

/// What a handler knows about its execution, told by a response extension; it overrules a layer's own rule.
///
/// ```
/// # mod distlock { pub mod tower { pub use distlock_runtime::problem::Outcome; } }
/// use distlock::tower::Outcome;
/// // the order wasn't touched: the client may repeat the request under the same key
/// let response = http::Response::builder().status(503).extension(Outcome::NotStarted).body(());
/// ```
///
/// With feature `axum` it is a part of a response: `(Outcome::NotStarted, rejection)`. A [`Problem`](super::Problem) that was made
/// from a [`LockError`](crate::LockError) carries its outcome already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// This is the result, whatever its status: keep it.
    Final,
    /// Nothing happened: forget the record, the next request executes.
    NotStarted,
    /// It may or may not have happened: nothing runs again under this key.
    Unknown,
}
