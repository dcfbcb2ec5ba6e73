//! The table of docs/conformance/http.json, run against this layer on every store, or against a server at `CONFORMANCE_URL`.

#[path = "../tower_support/mod.rs"]
mod tower_support;

mod run;
mod stage;
mod table;

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::{any, get};

use run::run;
use stage::{Stage, app, handle};
use table::{Table, table};
use tower_support::{Server, Store};

async fn every_case(base: &str, table: Table) {
    let mut running = tokio::task::JoinSet::new();
    for case in table.cases {
        running.spawn(run(base.to_owned(), case));
    }
    let mut failures = Vec::new();
    while let Some(outcome) = running.join_next().await {
        failures.extend(outcome.unwrap().err());
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

on_every_store!(the_layer_does_what_the_table_says,);

async fn the_layer_does_what_the_table_says(store: Store) {
    let table = table();
    let locks = store.manager().await;
    let server = Server::start(app(&locks, &table)).await;
    let base = std::env::var("CONFORMANCE_URL").unwrap_or_else(|_| server.uri(""));
    every_case(base.trim_end_matches('/'), table).await;
}

/// The runner notices: without the layer, what the table says isn't so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_layer_does_not_pass() {
    let mut table = table();
    let stage = Stage::default();
    let runs = async |State(stage): State<Stage>, Path(case): Path<String>| {
        stage.of(&case).runs.lock().unwrap().to_string()
    };
    let app = Router::new()
        .route("/control/{case}/runs", get(runs))
        .route("/default/{case}", any(handle))
        .with_state(stage);
    let server = Server::start(app).await;
    let replay = table.cases.remove(0);
    let error = run(server.uri(""), replay).await.unwrap_err();
    assert!(error.contains("step 2"), "{error}");
}
