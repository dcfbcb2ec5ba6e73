//! axum extractors.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;

use crate::idempotency::Execution;
use crate::lock::HeldLock;

macro_rules! extractors {
    ($($type:ident: $missing:literal, $remedy:literal;)*) => {$(
        impl<S: Send + Sync> FromRequestParts<S> for $type {
            type Rejection = (StatusCode, &'static str);

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
                parts.extensions.get().cloned().ok_or_else(|| {
                    tracing::warn!(remedy = $remedy, concat!("a handler was refused: ", $missing));
                    (StatusCode::INTERNAL_SERVER_ERROR, $missing)
                })
            }
        }

        impl<S: Send + Sync> OptionalFromRequestParts<S> for $type {
            type Rejection = Infallible;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
                Ok(parts.extensions.get().cloned())
            }
        }
    )*};
}

extractors! {
    Execution: "this request runs without an idempotency key",
        "`require_key()` on the layer refuses such requests with 400, `Option<Execution>` takes them";
    HeldLock: "this request runs without a lock",
        "put a `LockLayer` around the handler, or take `Option<HeldLock>`";
}
