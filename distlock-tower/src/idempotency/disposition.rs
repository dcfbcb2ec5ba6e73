//! What becomes of the record when the handler has answered.

use std::time::Duration;

use http::StatusCode;

/// What becomes of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Disposition {
    /// Forget the record; the next request with the key executes.
    Release,
    /// Keep the response for the layer's retention and replay it.
    Store,
    /// Keep the response for this long and replay it.
    StoreFor(Duration),
    /// It happened; the response isn't kept, and nothing runs again.
    Tombstone,
    /// It may or may not have happened; nothing runs again.
    Unknown,
}

/// Ready-made rules by status. In all of them a 408 is an unknown outcome (a timeout stops a handler half-way), and
/// 206, 1xx and event streams leave a tombstone, since such a response can't be told again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// Keeps whatever came of an execution, a 500 too, but not the statuses that speak of the request's envelope
    /// (400, 401, 403, 405, 411, 413, 414, 415, 421, 425, 429, 431): those are forgotten. 504 is an unknown outcome. 422 is
    /// kept: that of an extractor wants a [mark](super#what-has-not-begun).
    #[default]
    Stripe,
    /// Keeps 2xx and 3xx; everything else is forgotten and may run again, but 504, whose outcome is unknown.
    SuccessOnly,
    /// As [`Stripe`](Self::Stripe), but 5xx are forgotten and may run again.
    Azure,
}

impl Preset {
    pub(crate) fn classify(self, status: StatusCode) -> Disposition {
        match self {
            _ if status == StatusCode::REQUEST_TIMEOUT => Disposition::Unknown,
            Self::Azure if status.is_server_error() => Disposition::Release,
            _ if status == StatusCode::GATEWAY_TIMEOUT => Disposition::Unknown,
            Self::SuccessOnly if status.is_client_error() || status.is_server_error() => Disposition::Release,
            _ if is_about_the_envelope(status) => Disposition::Release,
            _ => Disposition::Store,
        }
    }
}

fn is_about_the_envelope(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 401 | 403 | 405 | 411 | 413 | 414 | 415 | 421 | 425 | 429 | 431)
}

/// What becomes of a response that sets a cookie. A cookie is bound to one client's session and is never told again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetCookie {
    /// The response is kept without it.
    #[default]
    Strip,
    /// The response isn't kept: repeats are answered with the problem `response-not-retained`.
    DontKeep,
}

/// What becomes of the record when the handler panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// Its outcome is unknown: repeats are refused with 409.
    #[default]
    Unknown,
    /// The 500 that its client gets is kept and replayed.
    Store,
}
