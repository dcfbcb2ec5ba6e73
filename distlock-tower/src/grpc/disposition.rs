//! What becomes of the record of a call, by its status.

use std::fmt;
use std::sync::Arc;

use distlock_runtime::problem::Outcome;
use http::response::Parts;
use http::{HeaderMap, StatusCode};

use super::code::Code;
use super::{status_of, word};
use crate::idempotency::{Disposition, Preset, judged};

type Judge = dyn Fn(Code, &HeaderMap) -> Disposition + Send + Sync;

/// The layer's rule for calls.
#[derive(Clone)]
pub(crate) enum CallRule {
    Preset(Preset),
    Custom(Arc<Judge>),
}

impl CallRule {
    /// Whether a response with this head has its status at its end.
    pub(crate) fn is_open(head: &Parts) -> bool {
        head.status == StatusCode::OK && !head.headers.contains_key("grpc-status")
    }

    /// What the head of a response says. Where the status is still to come, the response is one to store until its end says otherwise.
    /// A status other than 200 comes from something that doesn't speak gRPC.
    pub(crate) fn head(&self, head: &Parts) -> Disposition {
        match self.in_metadata(&head.headers) {
            Some(disposition) => disposition,
            None if head.status == StatusCode::OK => Disposition::Store,
            None => match self {
                Self::Preset(preset) => preset.classify(head.status),
                Self::Custom(_) => Preset::default().classify(head.status),
            },
        }
    }

    /// What the end of an open response says. Without a status it has been cut off.
    pub(crate) fn end(&self, trailers: Option<&HeaderMap>) -> Disposition {
        trailers.and_then(|trailers| self.in_metadata(trailers)).unwrap_or(Disposition::Unknown)
    }

    fn in_metadata(&self, metadata: &HeaderMap) -> Option<Disposition> {
        status_of(metadata).map(|code| self.ended(code, metadata))
    }

    fn ended(&self, code: Code, metadata: &HeaderMap) -> Disposition {
        match word::in_metadata(metadata) {
            Some(Outcome::Final) => Disposition::Store,
            Some(Outcome::NotStarted) => Disposition::Release,
            Some(_) => Disposition::Unknown,
            None => match self {
                Self::Preset(preset) => by_code(*preset, code),
                Self::Custom(rule) => judged(|| rule(code, metadata)),
            },
        }
    }
}

/// As the presets treat the statuses that `google.rpc.Code` relates to the codes, but for `FAILED_PRECONDITION` and `OUT_OF_RANGE`: those
/// are verdicts of a handler, not of an envelope as 400 is.
fn by_code(preset: Preset, code: Code) -> Disposition {
    match code {
        Code::Ok => Disposition::Store,
        // The handler was stopped half-way.
        Code::Cancelled => Disposition::Unknown,
        Code::DeadlineExceeded if preset == Preset::Azure => Disposition::Release,
        Code::DeadlineExceeded => Disposition::Unknown,
        _ if preset == Preset::SuccessOnly => Disposition::Release,
        Code::InvalidArgument
        | Code::PermissionDenied
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::Unimplemented => Disposition::Release,
        Code::DataLoss | Code::Internal | Code::Unavailable | Code::Unknown if preset == Preset::Azure => {
            Disposition::Release
        }
        _ => Disposition::Store,
    }
}

impl fmt::Debug for CallRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => preset.fmt(f),
            Self::Custom(_) => f.write_str("custom"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const STRIPE: CallRule = CallRule::Preset(Preset::Stripe);

    fn metadata(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut metadata = HeaderMap::new();
        for (name, value) in pairs {
            metadata.insert(*name, HeaderValue::from_static(value));
        }
        metadata
    }

    #[test]
    fn presets() {
        use Disposition::{Release, Store, Unknown};
        for (code, stripe, success_only, azure) in [
            (Code::Ok, Store, Store, Store),
            (Code::NotFound, Store, Release, Store),
            (Code::AlreadyExists, Store, Release, Store),
            (Code::FailedPrecondition, Store, Release, Store),
            (Code::Aborted, Store, Release, Store),
            (Code::OutOfRange, Store, Release, Store),
            (Code::InvalidArgument, Release, Release, Release),
            (Code::Unauthenticated, Release, Release, Release),
            (Code::ResourceExhausted, Release, Release, Release),
            (Code::Unimplemented, Release, Release, Release),
            (Code::Internal, Store, Release, Release),
            (Code::Unavailable, Store, Release, Release),
            (Code::Unknown, Store, Release, Release),
            (Code::DeadlineExceeded, Unknown, Unknown, Release),
            (Code::Cancelled, Unknown, Unknown, Unknown),
        ] {
            assert_eq!(by_code(Preset::Stripe, code), stripe, "stripe {code:?}");
            assert_eq!(by_code(Preset::SuccessOnly, code), success_only, "success_only {code:?}");
            assert_eq!(by_code(Preset::Azure, code), azure, "azure {code:?}");
        }
    }

    #[test]
    fn the_status_counts_wherever_it_is_and_its_absence_is_a_cut() {
        let of_head = |status, pairs| {
            let mut response = http::Response::builder().status(status).body(()).unwrap();
            *response.headers_mut() = metadata(pairs);
            let head = response.into_parts().0;
            (STRIPE.head(&head), CallRule::is_open(&head))
        };
        assert_eq!(of_head(200, &[("grpc-status", "3")]), (Disposition::Release, false));
        assert_eq!(of_head(200, &[]), (Disposition::Store, true));
        assert_eq!(of_head(504, &[]), (Disposition::Unknown, false));
        assert_eq!(of_head(401, &[]), (Disposition::Release, false));
        assert_eq!(STRIPE.end(Some(&metadata(&[("grpc-status", "0")]))), Disposition::Store);
        assert_eq!(STRIPE.end(Some(&metadata(&[("x-other", "0")]))), Disposition::Unknown);
        assert_eq!(STRIPE.end(None), Disposition::Unknown);
    }

    #[test]
    fn the_handlers_word_counts_more_than_the_code() {
        for (outcome, disposition) in [
            (Outcome::NotStarted, Disposition::Release),
            (Outcome::Final, Disposition::Store),
            (Outcome::Unknown, Disposition::Unknown),
        ] {
            let metadata = metadata(&[("grpc-status", "3"), (word::OUTCOME, word::outcome(outcome))]);
            assert_eq!(STRIPE.end(Some(&metadata)), disposition, "{outcome:?}");
        }
    }

    #[test]
    fn a_rule_of_ones_own_sees_code_and_metadata() {
        let rule = CallRule::Custom(Arc::new(|code, metadata| match code {
            Code::Unavailable if metadata.contains_key("x-queued") => Disposition::Tombstone,
            _ => Disposition::Release,
        }));
        let queued = metadata(&[("grpc-status", "14"), ("x-queued", "1")]);
        assert_eq!(rule.end(Some(&queued)), Disposition::Tombstone);
        assert_eq!(rule.end(Some(&metadata(&[("grpc-status", "0")]))), Disposition::Release);
    }
}
