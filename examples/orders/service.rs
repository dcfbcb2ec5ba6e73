//! The service: `POST /orders/{id}/pay` with `{"amount": 5}`, at most once for each key, one at a time for each order.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use distlock::tower::{Execution, IdempotencyLayer};
use distlock::{LockError, LockManager, distributed_lock};
use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::options::Naive;

/// How long the bank takes.
const BANK: Duration = Duration::from_millis(50);

/// What one replica works with.
#[derive(Debug)]
pub(crate) struct Shop {
    pub(crate) locks: LockManager,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) naive: Naive,
}

#[derive(Debug, Deserialize)]
struct Payment {
    amount: u64,
}

#[derive(Debug, Serialize)]
struct Receipt {
    order: u64,
    paid: u64,
    /// New for every execution: a replay is known by the old one.
    payment: String,
    /// For the bank's books, which refuse a smaller one than they have seen.
    fencing_token: Option<u64>,
}

/// The routes of one replica. `idempotency` is missing only in the counter-example.
pub(crate) fn routes(shop: Arc<Shop>, idempotency: Option<IdempotencyLayer>) -> Router {
    let routes = Router::new().route("/orders/{id}/pay", post(pay)).with_state(shop);
    match idempotency {
        Some(layer) => routes.layer(layer),
        None => routes,
    }
}

async fn pay(
    State(shop): State<Arc<Shop>>,
    Path(id): Path<u64>,
    execution: Option<Extension<Execution>>,
    headers: HeaderMap,
    Json(payment): Json<Payment>,
) -> Result<Json<Receipt>, PayError> {
    // The counter-example has no layer that would have read the header.
    let unread = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    let key = execution.as_ref().map_or(unread, |execution| execution.key().as_str());
    let receipt = if shop.naive.without_lock {
        shop.charge(id, key, payment.amount, None).await?
    } else {
        shop.pay(id, key, payment.amount).await?
    };
    Ok(Json(receipt))
}

impl Shop {
    /// One payment of an order at a time, on whichever replica.
    #[distributed_lock(key = "order:<id>", ttl = "5s", wait = "20s", locks = self.locks, guard = hold)]
    async fn pay(&self, id: u64, key: &str, amount: u64) -> Result<Receipt, PayError> {
        self.charge(id, key, amount, Some(hold.fencing_token().get())).await
    }

    async fn charge(&self, id: u64, key: &str, amount: u64, token: Option<u64>) -> Result<Receipt, PayError> {
        let _inside = self.ledger.begin(id, key, token)?;
        tokio::time::sleep(BANK).await;
        let payment = format!("{:016x}", fastrand::u64(..));
        Ok(Receipt { order: id, paid: amount, payment, fencing_token: token })
    }
}

/// Why an order wasn't paid.
#[derive(Debug)]
enum PayError {
    Ledger(io::Error),
    Lock(LockError),
}

impl From<LockError> for PayError {
    fn from(error: LockError) -> Self {
        Self::Lock(error)
    }
}

impl From<io::Error> for PayError {
    fn from(error: io::Error) -> Self {
        Self::Ledger(error)
    }
}

impl IntoResponse for PayError {
    fn into_response(self) -> Response {
        match self {
            // Tells the layer whether the payment may have begun: if not, this isn't kept as the answer to the key.
            Self::Lock(error) => error.into_response(),
            Self::Ledger(error) => {
                tracing::error!(%error, "the ledger can't be written");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}
