//! The service: `POST /payments` with `{"amount": 5}`, by whoever the bearer token names.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use distlock::tower::{Execution, IdempotencyLayer, Outcome, Scope};
use distlock::{LockError, LockManager};
use serde::{Deserialize, Serialize};

use crate::bank::{Bank, Declined};

/// Who pays; put into the request by the authentication.
#[derive(Clone)]
struct User(String);

#[derive(Deserialize)]
struct Payment {
    amount: u64,
}

#[derive(Serialize)]
struct Receipt {
    payment: u64,
    paid: u64,
}

/// Keys belong to users, and there is no payment without one.
pub(crate) fn idempotency(locks: &LockManager) -> Result<IdempotencyLayer, LockError> {
    IdempotencyLayer::builder(locks)
        .scope(|parts| parts.extensions.get::<User>().map(|user| Scope::new(&user.0)))
        .require_key()
        .wait(Duration::from_secs(5))
        .build()
}

/// The last layer is the outermost: nothing is looked up for a caller who isn't known.
pub(crate) fn routes(bank: Arc<Bank>, idempotency: Option<IdempotencyLayer>) -> Router {
    let routes = Router::new().route("/payments", post(pay)).with_state(bank);
    let routes = match idempotency {
        Some(layer) => routes.layer(layer),
        None => routes,
    };
    routes.layer(from_fn(authenticate))
}

/// Stands for a real one: the token is the user's name.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(name) = token.and_then(|token| token.strip_prefix("Bearer ")) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    let user = User(name.to_owned());
    request.extensions_mut().insert(user);
    next.run(request).await
}

async fn pay(
    State(bank): State<Arc<Bank>>,
    Extension(User(user)): Extension<User>,
    execution: Option<Execution>,
    payment: Result<Json<Payment>, JsonRejection>,
) -> Result<Json<Receipt>, PayError> {
    let Json(Payment { amount }) = payment?;
    if bank.is_closed() {
        return Err(PayError::Closed);
    }
    // The bank takes a fence with each charge and refuses an older one than it has seen.
    let (key, fence) = match &execution {
        Some(execution) => (execution.key().as_str(), execution.fence().get()),
        None => ("", 0),
    };
    let payment = bank.charge(&user, key, fence, amount).await?;
    Ok(Json(Receipt { payment, paid: amount }))
}

enum PayError {
    /// Nobody looked at the account yet.
    Closed,
    Declined(Declined),
    Malformed(JsonRejection),
}

impl IntoResponse for PayError {
    /// What came of it decides what the next try with the key gets: the answer again, or an execution.
    fn into_response(self) -> Response {
        match self {
            Self::Closed => {
                let later = [(header::RETRY_AFTER, "1")];
                (StatusCode::SERVICE_UNAVAILABLE, Outcome::NotStarted, later).into_response()
            }
            // A verdict, kept as any other result.
            Self::Declined(declined) => (StatusCode::PAYMENT_REQUIRED, declined.to_string()).into_response(),
            Self::Malformed(rejection) => (Outcome::NotStarted, rejection).into_response(),
        }
    }
}

impl From<Declined> for PayError {
    fn from(declined: Declined) -> Self {
        Self::Declined(declined)
    }
}

impl From<JsonRejection> for PayError {
    fn from(rejection: JsonRejection) -> Self {
        Self::Malformed(rejection)
    }
}
