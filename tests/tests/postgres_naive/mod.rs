//! Idempotency as it is mostly written by hand: the control.

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use distlock_tests::server::postgres_client;
use http::{HeaderMap, StatusCode};

use crate::tower_support::Runs;

/// Looks for a response, executes where there is none or the database is away, and writes it down then.
#[derive(Clone)]
struct Naive {
    url: String,
    table: String,
    runs: Runs,
}

/// A service with a table of its own.
pub(crate) async fn app(url: &str, runs: &Runs) -> Router {
    let table = format!("naive_{:016x}", fastrand::u64(..));
    let create = format!("create table {table} (key text not null, response bytea not null)");
    postgres_client(url).await.unwrap().batch_execute(&create).await.unwrap();
    let naive = Naive { url: url.to_owned(), table, runs: runs.clone() };
    Router::new().route("/", post(handle)).with_state(naive)
}

async fn handle(State(naive): State<Naive>, headers: HeaderMap, body: Bytes) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap();
    let client = postgres_client(&naive.url).await.ok();
    if let Some(client) = &client {
        let look = format!("select response from {} where key = $1", naive.table);
        if let Ok(Some(row)) = client.query_opt(&look, &[&key]).await {
            return (StatusCode::CREATED, [("idempotent-replayed", "true")], row.get::<_, Vec<u8>>(0))
                .into_response();
        }
    }
    let run = naive.runs.run(key).await;
    let response = [&body[..], b" run ", run.to_string().as_bytes()].concat();
    if let Some(client) = client {
        let write = format!("insert into {} values ($1, $2)", naive.table);
        let _ = client.execute(&write, &[&key, &response]).await;
    }
    (StatusCode::CREATED, response).into_response()
}
