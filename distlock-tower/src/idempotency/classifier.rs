//! The rules of a layer about responses, errors and trailers.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use distlock_runtime::problem::Outcome;
use http::header::{CONTENT_TYPE, SET_COOKIE};
use http::response::Parts;
use http::{HeaderMap, StatusCode};

use super::disposition::{Disposition, Preset, SetCookie};
use crate::grpc::CallRule;

/// What a rule makes of something; `None` if it has nothing to say.
type Rating<T> = dyn Fn(&T) -> Option<Disposition> + Send + Sync;

/// The layer's rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classifier {
    pub(crate) rule: Rule,
    pub(crate) errors: ErrorRule,
    pub(crate) trailers: TrailerRule,
    pub(crate) cookies: SetCookie,
}

/// By status and head.
#[derive(Clone)]
pub(crate) enum Rule {
    Preset(Preset),
    Custom(Arc<dyn Fn(&Parts) -> Disposition + Send + Sync>),
    Calls(CallRule),
}

/// By the error of a service that failed without a response.
#[derive(Clone, Default)]
pub(crate) struct ErrorRule(Option<Arc<Rating<dyn Any>>>);

/// By the trailers of a response that was to be kept.
#[derive(Clone, Default)]
pub(crate) struct TrailerRule(Option<Arc<Rating<HeaderMap>>>);

impl Classifier {
    /// The handler's word first, then what can't be stored at all, then the rule.
    pub(crate) fn classify(&self, head: &Parts) -> Disposition {
        let wish = match head.extensions.get::<Outcome>() {
            Some(Outcome::NotStarted) => return Disposition::Release,
            Some(Outcome::Final) => Disposition::Store,
            // `Unknown`, or a word that isn't known here: to run nothing again is safe.
            Some(_) => return Disposition::Unknown,
            None => match &self.rule {
                Rule::Preset(preset) => preset.classify(head.status),
                Rule::Custom(rule) => judged(|| rule(head)),
                Rule::Calls(rule) => rule.head(head),
            },
        };
        let hides_a_cookie = self.cookies == SetCookie::DontKeep && head.headers.contains_key(SET_COOKIE);
        match wish {
            Disposition::Store | Disposition::StoreFor(_) if !can_be_told_again(head) || hides_a_cookie => {
                Disposition::Tombstone
            }
            wish => wish,
        }
    }

    /// The rule for the end of a call's response, where its head doesn't decide alone.
    pub(crate) fn for_the_end(&self, head: &Parts) -> Option<&CallRule> {
        match &self.rule {
            Rule::Calls(rule) if head.extensions.get::<Outcome>().is_none() && CallRule::is_open(head) => {
                Some(rule)
            }
            _ => None,
        }
    }

    /// There is no response to store: whoever wants one stored gets what is nearest to it.
    pub(crate) fn classify_error(&self, error: &dyn Any) -> Disposition {
        match self.errors.0.as_ref().and_then(|rule| rated(|| rule(error))) {
            None | Some(Disposition::Store | Disposition::StoreFor(_)) => Disposition::Unknown,
            Some(wish) => wish,
        }
    }

    /// What the end of a response says about it; `None` leaves it at what its head said.
    pub(crate) fn classify_trailers(&self, trailers: &HeaderMap) -> Option<Disposition> {
        self.trailers.0.as_ref().and_then(|rule| rated(|| rule(trailers)))
    }
}

impl ErrorRule {
    pub(crate) fn new<E: 'static>(rule: impl Fn(&E) -> Disposition + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(move |error| error.downcast_ref().map(&rule))))
    }
}

impl TrailerRule {
    pub(crate) fn new(rule: impl Fn(&HeaderMap) -> Option<Disposition> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(rule)))
    }
}

/// What a rule of the user's says. One that panics doesn't know the outcome; the claim mustn't stay in flight for it.
pub(crate) fn judged(rule: impl FnOnce() -> Disposition) -> Disposition {
    catch_unwind(AssertUnwindSafe(rule)).unwrap_or(Disposition::Unknown)
}

fn rated(rule: impl FnOnce() -> Option<Disposition>) -> Option<Disposition> {
    catch_unwind(AssertUnwindSafe(rule)).unwrap_or(Some(Disposition::Unknown))
}

fn can_be_told_again(head: &Parts) -> bool {
    let event_stream = || {
        head.headers
            .get(CONTENT_TYPE)
            .is_some_and(|value| value.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream"))
    };
    !head.status.is_informational() && head.status != StatusCode::PARTIAL_CONTENT && !event_stream()
}

impl Default for Rule {
    fn default() -> Self {
        Self::Preset(Preset::default())
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Preset(preset) => preset.fmt(f),
            Self::Custom(_) => f.write_str("custom"),
            Self::Calls(rule) => rule.fmt(f),
        }
    }
}

impl fmt::Debug for ErrorRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "custom" } else { "unknown" })
    }
}

impl fmt::Debug for TrailerRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "custom" } else { "none" })
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn by(preset: Preset, response: Response<()>) -> Disposition {
        Classifier { rule: Rule::Preset(preset), ..Classifier::default() }.classify(&response.into_parts().0)
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
        // A handler's verdict.
        for code in [404, 409, 410, 412, 422] {
            for (preset, then) in
                [(Preset::Stripe, Store), (Preset::SuccessOnly, Release), (Preset::Azure, Store)]
            {
                assert_eq!(by(preset, status(code)), then, "{preset:?} {code}");
            }
        }
        // What is said of the envelope.
        for code in [400, 401, 403, 405, 411, 413, 414, 415, 421, 425, 429, 431] {
            for preset in [Preset::Stripe, Preset::SuccessOnly, Preset::Azure] {
                assert_eq!(by(preset, status(code)), Release, "{preset:?} {code}");
            }
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
    #[test]
    fn a_cookie_is_stripped_or_the_response_is_not_kept() {
        let head = Response::builder().header(SET_COOKIE, "a=1").body(()).unwrap().into_parts().0;
        assert_eq!(Classifier::default().classify(&head), Disposition::Store);
        let strict = Classifier { cookies: SetCookie::DontKeep, ..Classifier::default() };
        assert_eq!(strict.classify(&head), Disposition::Tombstone);
        assert_eq!(strict.classify(&status(200).into_parts().0), Disposition::Store);
    }

    #[test]
    fn an_error_is_an_unknown_outcome_unless_a_rule_knows_its_type() {
        let rule = ErrorRule::new(|error: &String| match error.as_str() {
            "overloaded" => Disposition::Release,
            _ => Disposition::Store,
        });
        let classifier = Classifier { errors: rule, ..Classifier::default() };
        assert_eq!(classifier.classify_error(&"overloaded".to_owned()), Disposition::Release);
        assert_eq!(classifier.classify_error(&"broken".to_owned()), Disposition::Unknown, "nothing to store");
        assert_eq!(classifier.classify_error(&"another type"), Disposition::Unknown);
        assert_eq!(Classifier::default().classify_error(&"overloaded".to_owned()), Disposition::Unknown);
    }
}
