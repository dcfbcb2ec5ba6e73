//! One key for each call.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request};
use tower_layer::Layer;
use tower_service::Service;
use uuid::Uuid;

use crate::grpc;
use crate::idempotency::IdempotencyKey;

/// How a key is spelled in its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spelling {
    /// Bare in gRPC metadata, where peers compare the text as it stands; else quoted, as the IETF draft has it.
    #[default]
    ByProtocol,
    /// Bare, for servers that take the quotes as a part of the key or refuse them.
    Bare,
    /// A Structured Field String in double quotes.
    Quoted,
}

/// Gives each covered request without a key a fresh one: in the header, and as an [`IdempotencyKey`] in the extensions. Clones of the
/// request keep both, so everything that repeats belongs inside of this layer.
///
/// Keys are UUIDs of version 7. Their random part makes them as good as unguessable; the time in front lets a server see that a key
/// is older than what it has kept, and refuse it instead of executing it again. A client whose clock is days behind the
/// server's may see such refusals: let it mint other keys with [`minted_by`](Self::minted_by).
#[derive(Clone)]
pub struct KeyLayer {
    rules: Arc<Rules>,
}

#[derive(Clone)]
struct Rules {
    header: HeaderName,
    spelling: Spelling,
    covers: Arc<dyn Fn(&Parts) -> bool + Send + Sync>,
    mint: Arc<dyn Fn() -> IdempotencyKey + Send + Sync>,
}

impl KeyLayer {
    /// Covers POST and PATCH, with the header `Idempotency-Key`.
    #[must_use]
    pub fn new() -> Self {
        Self {
            rules: Arc::new(Rules {
                header: HeaderName::from_static("idempotency-key"),
                spelling: Spelling::default(),
                covers: Arc::new(|parts| matches!(parts.method, Method::POST | Method::PATCH)),
                mint: Arc::new(mint),
            }),
        }
    }

    /// Which requests get a key, in place of all POST and PATCH. In gRPC everything is a POST: leave out what only reads, and methods
    /// whose requests are streams, which a server doesn't protect.
    ///
    /// ```
    /// # mod distlock { pub use distlock_tower as tower; }
    /// use distlock::tower::client::KeyLayer;
    /// let layer = KeyLayer::new().when(|parts| parts.uri.path() == "/orders.Orders/Place");
    /// ```
    #[must_use]
    pub fn when(self, covers: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.covers = Arc::new(covers))
    }

    /// The header that carries the key; default `Idempotency-Key`.
    #[must_use]
    pub fn header(self, name: HeaderName) -> Self {
        self.with(|rules| rules.header = name)
    }

    /// How the key is spelled; default [`Spelling::ByProtocol`].
    #[must_use]
    pub fn spelling(self, spelling: Spelling) -> Self {
        self.with(|rules| rules.spelling = spelling)
    }

    /// Where keys come from, in place of UUIDs of version 7. Each must be new.
    #[must_use]
    pub fn minted_by(self, mint: impl Fn() -> IdempotencyKey + Send + Sync + 'static) -> Self {
        self.with(|rules| rules.mint = Arc::new(mint))
    }

    fn with(mut self, change: impl FnOnce(&mut Rules)) -> Self {
        change(Arc::make_mut(&mut self.rules));
        self
    }
}

impl Default for KeyLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for KeyLayer {
    type Service = KeyService<S>;

    fn layer(&self, inner: S) -> KeyService<S> {
        KeyService { inner, rules: Arc::clone(&self.rules) }
    }
}

/// The service of a [`KeyLayer`].
#[derive(Clone, Debug)]
pub struct KeyService<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S, B> Service<Request<B>> for KeyService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let (mut parts, body) = request.into_parts();
        self.rules.apply(&mut parts);
        self.inner.call(Request::from_parts(parts, body))
    }
}

impl Rules {
    fn apply(&self, parts: &mut Parts) {
        if parts.headers.contains_key(&self.header) || !(self.covers)(parts) {
            return;
        }
        let key = parts.extensions.get_or_insert_with(|| (self.mint)());
        let value = match self.spelling {
            Spelling::ByProtocol if grpc::is_grpc(&parts.headers) => bare(key),
            Spelling::Bare => bare(key),
            Spelling::ByProtocol | Spelling::Quoted => quoted(key),
        };
        parts.headers.insert(&self.header, value);
    }
}

fn bare(key: &IdempotencyKey) -> HeaderValue {
    HeaderValue::from_str(key.as_str()).expect("a key is printable ASCII")
}

fn quoted(key: &IdempotencyKey) -> HeaderValue {
    let mut text = String::with_capacity(key.as_str().len() + 2);
    text.push('"');
    for letter in key.as_str().chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    HeaderValue::try_from(text).expect("a key is printable ASCII")
}

fn mint() -> IdempotencyKey {
    Uuid::now_v7().hyphenated().to_string().parse().expect("a UUID is printable ASCII")
}

impl fmt::Debug for KeyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyLayer").field("rules", &self.rules).finish()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("header", &self.header)
            .field("spelling", &self.spelling)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;
    use crate::idempotency::KeySyntax;

    fn after(layer: &KeyLayer, request: Request<()>) -> Parts {
        let (mut parts, ()) = request.into_parts();
        layer.rules.apply(&mut parts);
        parts
    }

    fn header(parts: &Parts) -> &str {
        parts.headers["idempotency-key"].to_str().unwrap()
    }

    #[test]
    fn each_covered_request_gets_a_key_of_its_own() {
        let layer = KeyLayer::new();
        let one = after(&layer, Request::post("/").body(()).unwrap());
        let two = after(&layer, Request::patch("/").body(()).unwrap());
        assert_ne!(header(&one), header(&two));
        let key = one.extensions.get::<IdempotencyKey>().unwrap();
        assert_eq!(header(&one), format!("\"{}\"", key.as_str()));
        assert_eq!(Uuid::parse_str(key.as_str()).unwrap().get_version_num(), 7);
        let read = after(&layer, Request::get("/").body(()).unwrap());
        assert!(!read.headers.contains_key("idempotency-key"));
    }

    #[test]
    fn a_key_that_is_there_stays() {
        let layer = KeyLayer::new();
        let given = after(&layer, Request::post("/").header("idempotency-key", "mine").body(()).unwrap());
        assert_eq!(header(&given), "mine");
        let key: IdempotencyKey = r#"order "42""#.parse().unwrap();
        let given = after(&layer, Request::post("/").extension(key.clone()).body(()).unwrap());
        assert_eq!(header(&given), r#""order \"42\"""#);
        let name = HeaderName::from_static("idempotency-key");
        assert_eq!(KeySyntax::Strict.find(&given.headers, &name).unwrap().unwrap(), key);
    }

    #[test]
    fn grpc_metadata_has_the_bare_text() {
        let call =
            || Request::post("/a.B/C").header(CONTENT_TYPE, "application/grpc+proto").body(()).unwrap();
        let parts = after(&KeyLayer::new(), call());
        assert_eq!(header(&parts), parts.extensions.get::<IdempotencyKey>().unwrap().as_str());
        let parts = after(&KeyLayer::new().spelling(Spelling::Quoted), call());
        assert!(header(&parts).starts_with('"'));
    }

    #[test]
    fn settings_change_what_is_covered_and_how() {
        let layer = KeyLayer::new()
            .when(|parts| parts.uri.path() == "/pay")
            .header(HeaderName::from_static("x-key"))
            .spelling(Spelling::Bare)
            .minted_by(|| "fixed".parse().unwrap());
        let covered = after(&layer, Request::put("/pay").body(()).unwrap());
        assert_eq!(covered.headers["x-key"], "fixed");
        assert!(after(&layer, Request::post("/other").body(()).unwrap()).headers.is_empty());
    }
}
