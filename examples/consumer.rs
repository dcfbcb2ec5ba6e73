//! A queue that delivers messages more than once, and consumers that do the work of each once: `#[idempotent]`.
//!
//! ```sh
//! cargo run --example consumer
//! DISTLOCK_URL=redis://127.0.0.1:6379 cargo run --example consumer
//! cargo run --example consumer -- --alone     # consumers without a store in common: it must notice
//! ```

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::ensure;
use distlock::{LockError, LockManager, idempotent};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

const MESSAGES: u32 = 20;
const DELIVERIES: u32 = 3;
const CONSUMERS: usize = 4;

/// What a message asks for.
#[derive(Clone, Debug, Serialize)]
struct Order {
    id: u32,
    cents: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    order: u32,
    charge: usize,
}

/// The payment provider: takes the money as often as it is asked to.
#[derive(Default)]
struct Provider(Mutex<BTreeMap<u32, usize>>);

impl Provider {
    async fn charge(&self, order: &Order) -> usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let mut charges = self.0.lock().expect("nobody panics with it");
        let count = charges.entry(order.id).or_default();
        *count += 1;
        *count
    }
}

struct Consumer {
    locks: LockManager,
    provider: Arc<Provider>,
    /// So that another run of the example has keys of its own.
    run: u32,
}

impl Consumer {
    // The order is the fingerprint: the same id with another amount would be KEY_REUSED. `self` never counts.
    #[idempotent(key = "<self.run>/order:<order.id>", retain = "1m", locks = self.locks)]
    async fn handle(&self, order: Order) -> Result<Receipt, LockError> {
        let charge = self.provider.charge(&order).await;
        Ok(Receipt { order: order.id, charge })
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("DISTLOCK_URL").unwrap_or_else(|_| "memory:".to_owned());
    let locks = LockManager::connect(&url).await?;
    let (provider, run) = (Arc::new(Provider::default()), fastrand::u32(..));

    // Each consumer gets its share of the deliveries; those of one message go to different consumers, at the same time.
    let mut consumers = JoinSet::new();
    for number in 0..CONSUMERS {
        let locks = examples::shared(&locks).await?;
        let consumer = Consumer { locks, provider: provider.clone(), run };
        consumers.spawn(async move {
            let mut receipts = Vec::new();
            for delivery in (0..MESSAGES * DELIVERIES).skip(number).step_by(CONSUMERS) {
                let id = delivery / DELIVERIES;
                receipts.push(consumer.handle(Order { id, cents: 100 * id }).await?);
            }
            Ok::<_, LockError>(receipts)
        });
    }
    let mut receipts = Vec::new();
    while let Some(consumer) = consumers.join_next().await {
        receipts.extend(consumer??);
    }

    let charges: usize = provider.0.lock().expect("nobody panics with it").values().sum();
    let others = receipts.iter().filter(|receipt| receipt.charge != 1).count();
    println!("summary messages={MESSAGES} deliveries={} charges={charges}", receipts.len());
    ensure!(charges == MESSAGES as usize, "{charges} charges for {MESSAGES} messages: somebody paid twice");
    ensure!(others == 0, "{others} deliveries got another receipt than the first one's");
    Ok(())
}
