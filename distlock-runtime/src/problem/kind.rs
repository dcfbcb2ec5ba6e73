//! The kinds of problem, with the status, the stable type URI and the title of each.

use http::StatusCode;

use super::Outcome;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $slug:literal, $title:literal, $outcome:expr;)*) => {
        /// What kind of [`Problem`](super::Problem) it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind { $($(#[$doc])* $name,)* }

        impl ProblemKind {
            /// Every kind, for tables and tests.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status it is answered with unless a layer was told another.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// The stable type URI, `urn:distlock:problem:…`.
            #[must_use]
            pub const fn type_uri(self) -> &'static str {
                match self { $(Self::$name => concat!("urn:distlock:problem:", $slug),)* }
            }

            /// What it says by itself about the execution, to an idempotency layer around it.
            #[must_use]
            pub const fn outcome(self) -> Option<Outcome> {
                match self { $(Self::$name => $outcome,)* }
            }

            /// The type URI's last part, for logs and labels.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$name => $slug,)* }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

const NOT_STARTED: Option<Outcome> = Some(Outcome::NotStarted);
const UNKNOWN: Option<Outcome> = Some(Outcome::Unknown);

kinds! {
    /// 413: the request body is longer than the layer takes. Nothing was executed.
    BodyTooLarge = PAYLOAD_TOO_LARGE, "body-too-large", "the request body is too large", NOT_STARTED;
    /// 400: the request body ended early or couldn't be read. Nothing was executed.
    BodyUnreadable = BAD_REQUEST, "body-unreadable", "the request body could not be read", NOT_STARTED;
    /// 500: the handler panicked; what it did before isn't known.
    HandlerPanicked = INTERNAL_SERVER_ERROR, "handler-panicked", "the request failed half-way", UNKNOWN;
    /// 409: a request with this key is being executed.
    InFlight = CONFLICT, "in-flight", "a request with this idempotency key is still in progress", None;
    /// 412: the key is older than any record that is still kept, so nobody knows whether its request was executed. Nothing was
    /// executed now.
    KeyExpired = PRECONDITION_FAILED, "key-expired", "the idempotency key is too old to know whether its request was executed", None;
    /// 400: the key header is there, but isn't a key.
    KeyInvalid = BAD_REQUEST, "key-invalid", "the idempotency key is not valid", NOT_STARTED;
    /// 400: this route requires a key.
    KeyMissing = BAD_REQUEST, "key-missing", "an idempotency key is required", NOT_STARTED;
    /// 422: the key was used for another request before.
    KeyReused = UNPROCESSABLE_ENTITY, "key-reused", "this idempotency key was used for a different request", None;
    /// 409: another request holds the lock. Not 503: contention says nothing about the server's health.
    /// Nothing was executed.
    LockBusy = CONFLICT, "lock-busy", "another request is being served; try again later", NOT_STARTED;
    /// 400: the request doesn't name what it would lock. Nothing was executed.
    LockKeyInvalid = BAD_REQUEST, "lock-key-invalid", "the request does not say what it is about", NOT_STARTED;
    /// 503: the lease was lost while the request was served; the handler was stopped.
    LockLost = SERVICE_UNAVAILABLE, "lock-lost", "the request was stopped half-way", UNKNOWN;
    /// 409: an earlier execution ended without a result; it may or may not have taken effect. Nothing runs again
    /// under this key.
    OutcomeUnknown = CONFLICT, "outcome-unknown", "the outcome of an earlier request with this key is not known", UNKNOWN;
    /// 429: the caller has as many idempotency records as it may. Nothing was executed.
    QuotaExceeded = TOO_MANY_REQUESTS, "quota-exceeded", "too many idempotency keys are in use", NOT_STARTED;
    /// 503: the stored record can't be read by this version. Nothing was executed.
    RecordUnreadable = SERVICE_UNAVAILABLE, "record-unreadable", "the stored result can not be read", None;
    /// 406: the stored response was made for other `Accept` headers than this request has. Nothing runs again under this key.
    RepresentationDiffers = NOT_ACCEPTABLE, "representation-differs", "the stored response is in a form that this request does not accept", None;
    /// 409: the request was executed, its response was not kept. Nothing runs again under this key.
    ResponseNotRetained = CONFLICT, "response-not-retained", "the request was executed, its response was not retained", None;
    /// 500: the scope of the key couldn't be determined. Nothing was executed.
    ScopeFailed = INTERNAL_SERVER_ERROR, "scope-failed", "the caller could not be determined", NOT_STARTED;
    /// 403: the request has no scope (no authenticated caller) for its key. Nothing was executed.
    ScopeMissing = FORBIDDEN, "scope-missing", "an idempotency key needs an authenticated caller", NOT_STARTED;
    /// 503: the store isn't reachable. Nothing was executed.
    StoreUnavailable = SERVICE_UNAVAILABLE, "store-unavailable", "the request can not be coordinated with others at the moment", NOT_STARTED;
    /// 409: this execution outlived its lease and was replaced; its result doesn't count.
    Superseded = CONFLICT, "superseded", "the request was taken over by a later one", None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_uri_and_an_error_status() {
        let uris: std::collections::HashSet<_> =
            ProblemKind::ALL.iter().map(|kind| kind.type_uri()).collect();
        assert_eq!(uris.len(), ProblemKind::ALL.len());
        for kind in ProblemKind::ALL {
            assert!(kind.status().is_client_error() || kind.status().is_server_error());
            assert!(kind.type_uri().ends_with(kind.slug()));
        }
    }
}
