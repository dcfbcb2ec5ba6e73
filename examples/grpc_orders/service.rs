//! The service `shop.Orders`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use distlock::tower::{Execution, IdempotencyLayer, Outcome, grpc};
use distlock::{LockError, LockManager};
use tokio::time::sleep;
use tokio_stream::{Stream, StreamExt};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};

use crate::messages::orders_server::Orders;
use crate::messages::{Order, Receipt};

/// How long an order takes.
pub(crate) const WORK: Duration = Duration::from_secs(1);

/// All callers of this shop share one room of keys; in front of users, take the scope from who they are.
/// `Import` takes a stream of requests: nobody can tell one from another before its end, so its calls pass.
pub(crate) fn idempotency(locks: &LockManager) -> Result<IdempotencyLayer, LockError> {
    IdempotencyLayer::builder(locks).anonymous().grpc_request_streams(["/shop.Orders/Import"]).build()
}

/// Takes orders, and is the judge: it knows how often each item was ordered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shop {
    placed: Arc<Mutex<HashMap<String, usize>>>,
}

impl Shop {
    pub(crate) fn placed(&self, item: &str) -> usize {
        let placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        placed.get(item).copied().unwrap_or_default()
    }

    /// The effect that must come once.
    fn place(&self, item: &str) -> usize {
        let mut placed = self.placed.lock().unwrap_or_else(PoisonError::into_inner);
        let times = placed.entry(item.to_owned()).or_default();
        *times += 1;
        *times
    }
}

#[tonic::async_trait]
impl Orders for Shop {
    async fn place(&self, request: Request<Order>) -> Result<Response<Receipt>, Status> {
        // What a call with a key can know of itself: a fence for what it writes, and how long it may count on its claim.
        let fence = Execution::of(request.extensions()).map(|execution| execution.fence().get());
        let item = request.into_inner().item;
        if item.is_empty() {
            return Err(Status::invalid_argument("an order without an item"));
        }
        let number = self.place(&item);
        sleep(WORK).await;
        if item.starts_with("sold out") {
            return Err(Status::failed_precondition(format!("{item}: number {number} on the list")));
        }
        if item.starts_with("truck late") && number == 1 {
            // Nothing was done that another try would do twice: the layer keeps no answer, the client comes again.
            let mut status = Status::unavailable("the truck isn't here yet");
            let outcome = MetadataValue::from_static(grpc::outcome(Outcome::NotStarted));
            status.metadata_mut().insert(grpc::OUTCOME, outcome);
            return Err(status);
        }
        let fence = fence.map_or("no fence".to_owned(), |fence| format!("fence {fence}"));
        Ok(Response::new(Receipt { text: format!("{item}: order {number}, {fence}") }))
    }

    type FollowStream = std::pin::Pin<Box<dyn Stream<Item = Result<Receipt, Status>> + Send>>;

    /// Orders, and tells how it gets on.
    async fn follow(&self, request: Request<Order>) -> Result<Response<Self::FollowStream>, Status> {
        let item = request.into_inner().item;
        let number = self.place(&item);
        let steps = ["packed", "on its way", "there"];
        let steps = tokio_stream::iter(steps).then(move |step| {
            let text = format!("{item} {number}: {step}");
            async move {
                sleep(WORK / 10).await;
                Ok(Receipt { text })
            }
        });
        Ok(Response::new(Box::pin(steps)))
    }

    async fn import(&self, request: Request<Streaming<Order>>) -> Result<Response<Receipt>, Status> {
        let mut orders = request.into_inner();
        let mut count = 0;
        while let Some(order) = orders.message().await? {
            self.place(&order.item);
            count += 1;
        }
        Ok(Response::new(Receipt { text: format!("{count} orders") }))
    }
}
