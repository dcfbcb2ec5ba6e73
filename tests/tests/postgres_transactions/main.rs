//! Records that commit with an application's own transaction: one effect for each key, whatever happens to the transactions.

#[path = "../postgres_shop/mod.rs"]
mod postgres_shop;

mod others;
mod outcomes;
mod sessions;

use distlock::LockError;
use distlock::postgres::Begun;
use tokio_postgres::Transaction;

use postgres_shop::{LIMIT, Shop};

/// Claims, writes and keeps a response; the caller commits.
async fn pay(shop: &Shop, tx: &mut Transaction<'_>, key: &str) -> Result<String, LockError> {
    match shop.records.claim(key).begin(tx).await? {
        Begun::Completed(response) => Ok(String::from_utf8(response.bytes().to_vec()).unwrap()),
        Begun::Execute(claim) => {
            shop.write(tx, key).await;
            let receipt = format!("paid {key}");
            claim.complete(tx, receipt.clone()).await?;
            Ok(receipt)
        }
    }
}
