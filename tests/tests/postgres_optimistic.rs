//! Updates under a version against a real Postgres: nobody's is lost.

mod postgres_shop;

use distlock::optimistic::{self, Update};
use distlock::{ErrorKind, LockError};
use tokio::task::JoinSet;
use tokio_postgres::Client;

use postgres_shop::Shop;

const CLIENTS: i64 = 8;
const EACH: i64 = 25;

fn failed(error: tokio_postgres::Error) -> LockError {
    LockError::new(ErrorKind::Connection, "update").caused_by(error)
}

async fn account(shop: &Shop) -> String {
    let table = format!("account_{}", shop.namespace);
    let text = format!(
        "create table {table} (id bigint primary key, balance bigint not null, version bigint not null default 0); \
         insert into {table} values (1, 0)"
    );
    shop.client().await.batch_execute(&text).await.unwrap();
    table
}

async fn read(client: &Client, table: &str) -> Result<(i64, i64), LockError> {
    let row = client.query_one(&format!("select balance, version from {table} where id = 1"), &[]).await;
    row.map(|row| (row.get(0), row.get(1))).map_err(failed)
}

async fn add_one(client: &Client, table: &str) -> Result<i64, LockError> {
    let write =
        format!("update {table} set balance = $1, version = version + 1 where id = 1 and version = $2");
    optimistic::update(optimistic::RETRY, async || {
        let (balance, version) = read(client, table).await?;
        let rows = client.execute(&write, &[&(balance + 1), &version]).await.map_err(failed)?;
        Update::of_rows(rows, balance + 1)
    })
    .await
}

async fn add_one_naively(client: &Client, table: &str) -> Result<i64, LockError> {
    let (balance, _) = read(client, table).await?;
    let write = format!("update {table} set balance = $1 where id = 1");
    client.execute(&write, &[&(balance + 1)]).await.map_err(failed)?;
    Ok(balance + 1)
}

/// Many add to one account; the balance at the end.
async fn contest(naively: bool) -> i64 {
    let shop = Shop::open().await;
    let table = account(&shop).await;
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let (client, table) = (shop.client().await, table.clone());
        tasks.spawn(async move {
            for _ in 0..EACH {
                match naively {
                    true => add_one_naively(&client, &table).await.unwrap(),
                    false => add_one(&client, &table).await.unwrap(),
                };
            }
        });
    }
    tasks.join_all().await;
    read(&shop.client().await, &table).await.unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_update_is_lost() {
    assert_eq!(contest(false).await, CLIENTS * EACH);
}

/// The control.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_version_updates_are_lost() {
    assert!(contest(true).await < CLIENTS * EACH);
}
