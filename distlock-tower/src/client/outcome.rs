//! What a response says about another try.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};

use super::rules::Rules;
use crate::grpc::{self, Code};

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advice {
    /// This is the answer.
    Done,
    /// Again; not before this time has passed, if the server told one.
    Again(Option<Duration>),
}

/// Judges by the head alone. In gRPC a head without a status has more to come: the call is committed.
pub(super) fn advise<B>(rules: &Rules, is_grpc: bool, response: &http::Response<B>) -> Advice {
    let headers = response.headers();
    // The outcome of an execution, kept: asking again brings the same.
    let is_replay = headers.contains_key("idempotent-replayed");
    // The key was ignored, or the store was away: asking again would execute again.
    let is_unprotected = headers.contains_key("idempotency-status");
    if is_replay || is_unprotected {
        return Advice::Done;
    }
    match response.status() {
        StatusCode::OK if is_grpc => {
            grpc::status_of(headers).map_or(Advice::Done, |code| by_code(rules, code, headers))
        }
        status => by_status(rules, status, headers),
    }
}

fn by_status(rules: &Rules, status: StatusCode, headers: &HeaderMap) -> Advice {
    let told = retry_after(headers);
    // These are worth another try when the server says when; a 409 that doesn't is a verdict.
    let may_be_told = matches!(status.as_u16(), 409 | 425 | 429 | 503);
    if rules.statuses.contains(&status) || may_be_told && told.is_some() {
        Advice::Again(told)
    } else {
        Advice::Done
    }
}

fn by_code(rules: &Rules, code: Code, headers: &HeaderMap) -> Advice {
    let told = match grpc::push_back(headers) {
        Some(grpc::PushBack::Stop) => return Advice::Done,
        Some(grpc::PushBack::After(pause)) => Some(pause),
        None => grpc::retry_delay(headers),
    };
    let may_be_told = matches!(code, Code::Aborted | Code::ResourceExhausted | Code::Unavailable);
    if rules.codes.contains(&code) || may_be_told && told.is_some() {
        Advice::Again(told)
    } else {
        Advice::Done
    }
}

/// Seconds, or a date. A date is compared with the response's own, so that no clock of this machine plays a part.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = headers.get(DATE).and_then(date)?;
    let then = httpdate::parse_http_date(text).ok()?;
    Some(then.duration_since(now).unwrap_or_default())
}

fn date(value: &HeaderValue) -> Option<SystemTime> {
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    fn advice(is_grpc: bool, status: u16, headers: &[(&'static str, &'static str)]) -> Advice {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in headers {
            response.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        advise(&Rules::default(), is_grpc, &response)
    }

    fn after(seconds: u64) -> Advice {
        Advice::Again(Some(Duration::from_secs(seconds)))
    }

    #[test]
    fn a_conflict_is_in_flight_only_if_it_says_when_to_come_again() {
        assert_eq!(advice(false, 409, &[("retry-after", "2")]), after(2));
        assert_eq!(advice(false, 409, &[]), Advice::Done);
        assert_eq!(advice(false, 422, &[("retry-after", "2")]), Advice::Done);
    }

    #[test]
    fn gateways_are_asked_again_and_verdicts_are_not() {
        for status in [502, 503, 504] {
            assert_eq!(advice(false, status, &[]), Advice::Again(None), "{status}");
        }
        for status in [200, 201, 302, 400, 404, 429, 500, 501] {
            assert_eq!(advice(false, status, &[]), Advice::Done, "{status}");
        }
        assert_eq!(advice(false, 429, &[("retry-after", "7")]), after(7));
    }

    #[test]
    fn a_replay_is_final_whatever_its_status() {
        assert_eq!(
            advice(false, 503, &[("idempotent-replayed", "true"), ("retry-after", "1")]),
            Advice::Done
        );
        assert_eq!(
            advice(true, 200, &[("grpc-status", "14"), ("idempotent-replayed", "true")]),
            Advice::Done
        );
    }

    #[test]
    fn what_ran_without_protection_is_not_repeated() {
        for status in ["ignored", "unprotected"] {
            assert_eq!(
                advice(false, 503, &[("idempotency-status", status), ("retry-after", "1")]),
                Advice::Done
            );
            assert_eq!(
                advice(true, 200, &[("grpc-status", "14"), ("idempotency-status", status)]),
                Advice::Done
            );
        }
    }

    #[test]
    fn dates_are_compared_with_the_servers_own() {
        let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
        let then = ("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT");
        assert_eq!(advice(false, 503, &[date, then]), after(10));
        assert_eq!(advice(false, 503, &[then]), Advice::Again(None));
        let past = ("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT");
        assert_eq!(advice(false, 503, &[date, past]), after(0));
        assert_eq!(advice(false, 503, &[("retry-after", "soon")]), Advice::Again(None));
    }

    #[test]
    fn grpc_is_judged_by_its_status_and_push_back() {
        assert_eq!(advice(true, 200, &[("grpc-status", "14")]), Advice::Again(None));
        assert_eq!(advice(true, 200, &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "3000")]), after(3));
        assert_eq!(
            advice(true, 200, &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "-1")]),
            Advice::Done
        );
        assert_eq!(advice(true, 200, &[("grpc-status", "10"), ("grpc-retry-pushback-ms", "1000")]), after(1));
        assert_eq!(advice(true, 200, &[("grpc-status", "10")]), Advice::Done);
        for code in ["0", "3", "9", "13"] {
            assert_eq!(advice(true, 200, &[("grpc-status", code)]), Advice::Done, "{code}");
        }
        // A proxy in between speaks HTTP.
        assert_eq!(advice(true, 503, &[("retry-after", "1")]), after(1));
    }

    #[test]
    fn a_head_without_a_status_has_committed_the_call() {
        assert_eq!(advice(true, 200, &[("content-type", "application/grpc")]), Advice::Done);
    }
}
