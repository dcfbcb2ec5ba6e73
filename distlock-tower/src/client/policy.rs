//! What is repeated, when, and how often.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use tower::retry::Policy;
use tower::retry::budget::Budget;

use super::body::RepeatBody;
use super::error_rule::{ErrorRule, EveryError};
use super::outcome::{Advice, advise};
use super::rules::{Rules, SharedBudget};
use crate::grpc::{self, Code};

/// How many tries came before this one; gRFC A6 has servers and proxies look at it.
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// A policy for tower's [`RetryLayer`](tower::retry::RetryLayer) that repeats what is safe to repeat, over HTTP and gRPC.
///
/// *Which requests*: those with a key, and those whose method is idempotent by itself. Their bodies must be repeatable
/// ([`RepeatBody`]).
///
/// *After what*:
///
/// | protocol | repeated | when |
/// |---|---|---|
/// | any | an error of the transport ([`on_errors`](Self::on_errors)) | backoff |
/// | HTTP | 409, 425, 429, 503 with `Retry-After`: in flight, throttled, store away | what the header says |
/// | HTTP | 502, 503, 504 ([`on_statuses`](Self::on_statuses)) | `Retry-After`, else backoff |
/// | gRPC | `UNAVAILABLE` ([`on_codes`](Self::on_codes)) | `grpc-retry-pushback-ms`, else `RetryInfo`, else backoff |
/// | gRPC | `ABORTED`, `RESOURCE_EXHAUSTED` with push-back or `RetryInfo` | what they say |
///
/// A 409 without `Retry-After` is a verdict and stays one, so are 422 and every replayed response. What says by `Idempotency-Status` that
/// the server gave no protection isn't repeated either. A negative push-back means: don't.
/// In gRPC, a response whose head has no status is committed, as everywhere.
///
/// *When*: backoff has full jitter, between nothing and a bound that doubles from 100 ms to 10 s. What the server told is waited for
/// in full, with jitter on top; if that is too long ([`longest_wait`](Self::longest_wait)), the response is the answer.
///
/// *How often*: 5 tries at most, the first included, and a budget over all calls of this policy and its clones: one retry for every
/// five calls, and ten a second beside them. An overloaded server isn't beaten with retries.
///
/// A 503 with `Retry-After` may come from in front of the handler or from the handler itself. With a key it doesn't matter: what was
/// executed is kept by the server, and the retry gets it.
#[derive(Clone, Debug)]
pub struct RetryPolicy<E = EveryError> {
    rules: Arc<Rules>,
    errors: E,
    /// Tries of this call so far, but for the one under way.
    done: u32,
}

impl RetryPolicy {
    /// With the defaults above.
    #[must_use]
    pub fn new() -> Self {
        Self { rules: Arc::default(), errors: EveryError, done: 0 }
    }
}

impl<E> RetryPolicy<E> {
    /// The header that carries the key; default `Idempotency-Key`.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        self.with(|rules| rules.header = name)
    }

    /// How often a call is tried at most, the first time included; default 5, at least 1.
    #[must_use]
    pub fn attempts(self, most: u32) -> Self {
        self.with(|rules| rules.attempts = most.max(1))
    }

    /// The bound of the first pause and of the longest; default 100 ms and 10 s.
    #[must_use]
    pub fn backoff(self, first: Duration, longest: Duration) -> Self {
        self.with(|rules| (rules.backoff.first, rules.backoff.longest) = (first, longest))
    }

    /// For how long a server may ask to wait; default 60 s. If it asks for more, its response is the answer.
    #[must_use]
    pub fn longest_wait(self, longest: Duration) -> Self {
        self.with(|rules| rules.longest_told = longest)
    }

    /// The statuses that are repeated without being told so, in place of 502, 503 and 504.
    #[must_use]
    pub fn on_statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.with(|rules| rules.statuses = statuses.into_iter().collect())
    }

    /// The gRPC codes that are repeated without being told so, in place of `UNAVAILABLE`.
    #[must_use]
    pub fn on_codes(self, codes: impl IntoIterator<Item = Code>) -> Self {
        self.with(|rules| rules.codes = codes.into_iter().collect())
    }

    /// The budget of all calls together, in place of one retry for every five calls and ten a second beside them.
    #[must_use]
    pub fn budget(self, budget: impl Budget + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.budget = SharedBudget(Arc::new(budget)))
    }

    /// Which errors of the transport are repeated; default all.
    ///
    /// ```
    /// # mod distlock { pub use distlock_tower as tower; }
    /// use distlock::tower::client::RetryPolicy;
    /// let policy = RetryPolicy::new().on_errors(|error: &std::io::Error| error.kind() != std::io::ErrorKind::InvalidInput);
    /// ```
    #[must_use]
    pub fn on_errors<F>(self, errors: F) -> RetryPolicy<F> {
        RetryPolicy { rules: self.rules, errors, done: self.done }
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }

    fn may_repeat<B: RepeatBody>(&self, request: &Request<B>) -> bool {
        let is_safe = request.headers().contains_key(&self.rules.header) || request.method().is_idempotent();
        is_safe && request.body().is_repeatable()
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

impl<B, R, E, F> Policy<Request<B>, Response<R>, E> for RetryPolicy<F>
where
    B: RepeatBody,
    F: ErrorRule<E>,
{
    type Future = tokio::time::Sleep;

    fn retry(
        &mut self,
        request: &mut Request<B>,
        result: &mut Result<Response<R>, E>,
    ) -> Option<Self::Future> {
        let is_grpc = grpc::is_grpc(request.headers());
        let advice = match result {
            Ok(response) => advise(&self.rules, is_grpc, response),
            Err(error) if self.errors.repeats(error) => Advice::Again(None),
            Err(_) => Advice::Done,
        };
        let told = match advice {
            Advice::Again(told) if self.may_repeat(request) => told,
            _ => {
                self.rules.budget.0.deposit();
                return None;
            }
        };
        let tries = self.done.saturating_add(1);
        if tries >= self.rules.attempts || told.is_some_and(|told| told > self.rules.longest_told) {
            return None;
        }
        if !self.rules.budget.0.withdraw() {
            tracing::debug!("no retry: the budget is used up");
            return None;
        }
        let pause = self.rules.backoff.pause(self.done, told, fastrand::f64());
        self.done = tries;
        if is_grpc {
            request.headers_mut().insert(PREVIOUS_ATTEMPTS, HeaderValue::from(tries));
        }
        tracing::debug!(tries, ?pause, "the call is repeated");
        Some(tokio::time::sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        if !self.may_repeat(request) {
            return None;
        }
        let mut clone = Request::new(request.body().try_clone()?);
        *clone.method_mut() = request.method().clone();
        *clone.uri_mut() = request.uri().clone();
        *clone.version_mut() = request.version();
        *clone.headers_mut() = request.headers().clone();
        *clone.extensions_mut() = request.extensions().clone();
        Some(clone)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::time::Instant;
    use tower::retry::RetryLayer;
    use tower::{Layer, ServiceExt, service_fn};

    use super::*;
    use crate::client::KeyLayer;

    type Answer = Result<Response<()>, &'static str>;

    /// A server that gives these answers, one after the other, and what it was asked.
    #[derive(Clone, Default)]
    struct Server {
        answers: Arc<Mutex<VecDeque<Answer>>>,
        asked: Arc<Mutex<Vec<http::HeaderMap>>>,
    }

    impl Server {
        fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
            Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), ..Self::default() }
        }

        async fn call<E>(&self, policy: RetryPolicy<E>, request: Request<Full<Bytes>>) -> Answer
        where
            E: ErrorRule<&'static str> + Clone,
        {
            let server = self.clone();
            let service = service_fn(move |request: Request<Full<Bytes>>| {
                server.asked.lock().unwrap().push(request.headers().clone());
                std::future::ready(server.answers.lock().unwrap().pop_front().expect("no more tries"))
            });
            KeyLayer::new().layer(RetryLayer::new(policy).layer(service)).oneshot(request).await
        }

        fn asked(&self) -> Vec<http::HeaderMap> {
            self.asked.lock().unwrap().clone()
        }
    }

    fn status(code: u16, headers: &[(&'static str, &'static str)]) -> Answer {
        let mut response = Response::builder().status(code);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        Ok(response.body(()).unwrap())
    }

    fn post() -> Request<Full<Bytes>> {
        Request::post("/").body(Full::from("x")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_stays_over_all_tries_and_the_servers_pause_is_kept() {
        let server = Server::new([
            status(409, &[("retry-after", "2")]),
            Err("reset"),
            status(502, &[]),
            status(201, &[]),
        ]);
        let start = Instant::now();
        assert_eq!(server.call(RetryPolicy::new(), post()).await.unwrap().status(), 201);
        assert!(start.elapsed() >= Duration::from_secs(2));
        let asked = server.asked();
        assert_eq!(asked.len(), 4);
        assert!(asked.iter().all(|headers| headers["idempotency-key"] == asked[0]["idempotency-key"]));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_key_only_idempotent_methods_are_repeated() {
        let get = Request::get("/").body(Full::default()).unwrap();
        let server = Server::new([Err("reset"), status(200, &[])]);
        assert!(server.call(RetryPolicy::new(), get).await.is_ok());
        let server = Server::new([Err("reset"), status(200, &[])]);
        let other = RetryPolicy::new().header(HeaderName::from_static("x-other"));
        assert_eq!(server.call(other, post()).await.unwrap_err(), "reset");
        assert_eq!(server.asked().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_try_gives_the_answer_whatever_it_is() {
        let server = Server::new((0..3).map(|_| status(503, &[])));
        assert_eq!(server.call(RetryPolicy::new().attempts(3), post()).await.unwrap().status(), 503);
        assert_eq!(server.asked().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_is_too_long_is_an_answer() {
        let server = Server::new([status(503, &[("retry-after", "61")])]);
        assert_eq!(server.call(RetryPolicy::new(), post()).await.unwrap().status(), 503);
    }

    #[tokio::test(start_paused = true)]
    async fn the_budget_is_of_all_calls_together() {
        use tower::retry::budget::TpsBudget;
        // No percentage, and a reserve of three.
        let policy = RetryPolicy::new().budget(TpsBudget::new(Duration::from_secs(1), 3, 0.0)).attempts(10);
        let server = Server::new((0..6).map(|_| status(503, &[])));
        let no_pause = policy.backoff(Duration::ZERO, Duration::ZERO);
        for tries in [4, 1, 1] {
            let before = server.asked().len();
            server.call(no_pause.clone(), post()).await.unwrap();
            assert_eq!(server.asked().len() - before, tries);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_repeated_as_the_rule_says() {
        let server = Server::new([Err("reset"), Err("refused"), status(200, &[])]);
        let policy = RetryPolicy::new().on_errors(|error: &&'static str| *error == "reset");
        assert_eq!(server.call(policy, post()).await.unwrap_err(), "refused");
    }

    #[tokio::test(start_paused = true)]
    async fn grpc_counts_the_tries_that_came_before() {
        let call = Request::post("/a.B/C").header("content-type", "application/grpc").body(Full::default());
        let server = Server::new([
            status(200, &[("grpc-status", "14"), ("grpc-retry-pushback-ms", "500")]),
            status(200, &[("grpc-status", "10"), ("grpc-retry-pushback-ms", "500")]),
            status(200, &[("grpc-status", "0")]),
        ]);
        let start = Instant::now();
        server.call(RetryPolicy::new(), call.unwrap()).await.unwrap();
        assert!(start.elapsed() >= Duration::from_secs(1));
        let told: Vec<_> = server.asked().iter().map(|h| h.get(PREVIOUS_ATTEMPTS).cloned()).collect();
        assert_eq!(told, [None, Some(HeaderValue::from(1)), Some(HeaderValue::from(2))]);
    }
}
