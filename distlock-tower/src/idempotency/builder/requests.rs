//! Settings about keys and requests.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, Method};

use super::IdempotencyBuilder;
use crate::idempotency::by_request::ByRequest;
use crate::idempotency::config::StoreDown;
use crate::idempotency::fingerprint::FingerprintRule;
use crate::idempotency::key::KeySyntax;
use crate::idempotency::key_rule::KeyRule;
use crate::idempotency::stale::StaleKeys;

impl<S> IdempotencyBuilder<S> {
    /// The header that carries the key; default `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.rules.header = name;
        self
    }

    /// Which spellings of a key are taken; default [`KeySyntax::Lenient`].
    pub fn syntax(mut self, syntax: KeySyntax) -> Self {
        self.rules.syntax = syntax;
        self
    }

    /// Keys must keep this rule too, beside those given before; else 400. By default any key of the syntax will do.
    pub fn key_rule(mut self, rule: KeyRule) -> Self {
        self.rules.key_rules.push(rule);
        self
    }

    /// The same key on another method or path is another record. By default it is the same record, and refused with 422.
    pub fn key_per_route(mut self) -> Self {
        self.rules.key_per_route = true;
        self
    }

    /// What happens to keys that say when they were made, and are older than the retention; default [`StaleKeys::Refuse`]. A
    /// record that is still there is replayed in any case.
    pub fn stale_keys(mut self, mode: StaleKeys) -> Self {
        self.rules.stale_keys = mode;
        self
    }

    /// Clients say in this header, as an HTTP date, when they first sent the request (`Repeatability-First-Sent` in the OASIS
    /// specification). A request without a record that was first sent longer ago than the retention is refused with 412, a value that is
    /// no date with 400. By default there is no such header.
    pub fn first_sent(mut self, header: HeaderName) -> Self {
        self.rules.first_sent = Some(header);
        self
    }

    /// The methods that are covered, others pass; default POST and PATCH. Never GET, HEAD, OPTIONS, TRACE or QUERY.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.rules.methods = methods.into_iter().collect();
        self
    }

    /// A request with a key whose method isn't covered is told so: its response says `Idempotency-Status: ignored`.
    pub fn tell_ignored(mut self) -> Self {
        self.rules.tell_ignored = true;
        self
    }

    /// Requests of the covered methods without a key are refused with 400; by default they pass.
    pub fn require_key(mut self) -> Self {
        self.rules.key_required = ByRequest::Always(true);
        self
    }

    /// As [`require_key`](Self::require_key), for the requests that this closure picks. For a layer around many routes; where routes
    /// have layers of their own (axum), `require_key` on some of them does.
    pub fn require_key_if(mut self, rule: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.rules.key_required = ByRequest::by(rule);
        self
    }

    /// Which parts of a request must be the same under one key; default [`FingerprintRule::bytes`].
    pub fn fingerprint(mut self, rule: FingerprintRule) -> Self {
        self.rules.fingerprinting.rule = rule;
        self
    }

    /// A rule that records of earlier deployments may have been made by.
    pub fn former_fingerprint(mut self, rule: FingerprintRule) -> Self {
        self.rules.fingerprinting.former.push(rule);
        self
    }

    /// The longest request body in bytes, beyond it 413; default 1 MiB. The body of a request with a key is read before
    /// its claim, outside of limits that inner layers set.
    pub fn request_limit(mut self, bytes: usize) -> Self {
        self.rules.request_limit = bytes;
        self
    }

    /// How long a repeat waits for the execution in flight, before 409; default 10 s, zero answers at once.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.rules.wait = limit;
        self
    }

    /// How many repeats of one key wait at a time in this process, the next is answered 409 at once; default 256.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
        self.rules.max_waiters = waiters;
        self
    }

    /// When a refused client is told to try again; default 1 s. `Retry-After` of 409 and 503 is whole seconds, rounded up; gRPC's
    /// push-back and `RetryInfo` have milliseconds.
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.rules.retry_after = after;
        self
    }

    /// What happens while the store can't be reached; default [`StoreDown::Refuse`].
    pub fn store_down(mut self, mode: StoreDown) -> Self {
        self.rules.store_down = ByRequest::Always(mode);
        self
    }

    /// As [`store_down`](Self::store_down), by request. For a layer around many routes.
    pub fn store_down_by(mut self, rule: impl Fn(&Parts) -> StoreDown + Send + Sync + 'static) -> Self {
        self.rules.store_down = ByRequest::by(rule);
        self
    }
}
