//! What becomes of the record when the handler has answered.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use distlock_runtime::problem::Outcome;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use http::response::Parts;

use crate::grpc::CallRule;

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

/// The layer's rule.
#[derive(Clone)]
pub(crate) enum Classifier {
    Preset(Preset),
    Custom(Arc<dyn Fn(&Parts) -> Disposition + Send + Sync>),
    Calls(CallRule),
}

impl Classifier {
    /// The handler's word first, then what can't be stored at all, then the rule.
    pub(crate) fn classify(&self, head: &Parts) -> Disposition {
        let wish = match head.extensions.get::<Outcome>() {
            Some(Outcome::NotStarted) => return Disposition::Release,
            Some(Outcome::Final) => Disposition::Store,
            // `Unknown`, or a word that isn't known here: to run nothing again is safe.
            Some(_) => return Disposition::Unknown,
            None => match self {
                Self::Preset(preset) => preset.classify(head.status),
                Self::Custom(rule) => rule(head),
                Self::Calls(rule) => rule.head(head),
            },
        };
        match wish {
            Disposition::Store | Disposition::StoreFor(_) if !can_be_told_again(head) => {
                Disposition::Tombstone
            }
            wish => wish,
        }
    }
}

impl Classifier {
    /// The rule for the end of a response with this head, where the head doesn't decide alone.
    pub(crate) fn for_the_end(&self, head: &Parts) -> Option<&CallRule> {
        match self {
            Self::Calls(rule) if head.extensions.get::<Outcome>().is_none() && CallRule::is_open(head) => {
                Some(rule)
            }
            _ => None,
        }
    }
}

fn can_be_told_again(head: &Parts) -> bool {
    let event_stream = || {
        head.headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream"))
    };
    !head.status.is_informational() && head.status != StatusCode::PARTIAL_CONTENT && !event_stream()
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => preset.fmt(f),
            Self::Custom(_) => f.write_str("custom"),
            Self::Calls(rule) => rule.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn by(preset: Preset, response: Response<()>) -> Disposition {
        Classifier::Preset(preset).classify(&response.into_parts().0)
    }

    fn status(code: u16) -> Response<()> {
        Response::builder().status(code).body(()).unwrap()
    }

    #[test]
    fn presets() {
        use Disposition::{Release, Store, Tombstone, Unknown};
        for (code, stripe, success_only, azure) in [
            (200, Store, Store, Store),
            (303, Store, Store, Store),
            (404, Store, Release, Store),
            (409, Store, Release, Store),
            (422, Store, Release, Store),
            (400, Release, Release, Release),
            (401, Release, Release, Release),
            (429, Release, Release, Release),
            (408, Unknown, Unknown, Unknown),
            (500, Store, Release, Release),
            (504, Unknown, Unknown, Release),
            (206, Tombstone, Tombstone, Tombstone),
            (101, Tombstone, Tombstone, Tombstone),
        ] {
            assert_eq!(by(Preset::Stripe, status(code)), stripe, "stripe {code}");
            assert_eq!(by(Preset::SuccessOnly, status(code)), success_only, "success_only {code}");
            assert_eq!(by(Preset::Azure, status(code)), azure, "azure {code}");
        }
    }

    #[test]
    fn the_handlers_word_counts_more_than_the_status() {
        let with = |code, outcome| {
            let mut response = status(code);
            response.extensions_mut().insert(outcome);
            by(Preset::Stripe, response)
        };
        assert_eq!(with(200, Outcome::NotStarted), Disposition::Release);
        assert_eq!(with(400, Outcome::Final), Disposition::Store);
        assert_eq!(with(200, Outcome::Unknown), Disposition::Unknown);
        assert_eq!(with(206, Outcome::Final), Disposition::Tombstone);
    }

    #[test]
    fn event_streams_are_not_stored() {
        let mut response = status(200);
        response.headers_mut().insert(CONTENT_TYPE, "Text/Event-Stream; charset=utf-8".parse().unwrap());
        assert_eq!(by(Preset::Stripe, response), Disposition::Tombstone);
    }
}
