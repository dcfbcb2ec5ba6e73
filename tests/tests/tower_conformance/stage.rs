//! The server under test: handlers that do what a request asks for, behind the layer of each profile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use distlock::LockManager;
use distlock_tower::{FingerprintRule, IdempotencyLayer, KeySyntax, Outcome, Preset, Scope};
use http::{HeaderName, Method, StatusCode};
use tokio::sync::Semaphore;

use crate::table::{Profile, Table};
use crate::tower_support::frames;

/// The server under test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stage(Arc<Mutex<HashMap<String, Arc<Counted>>>>);

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) runs: Mutex<usize>,
    pub(crate) gate: Semaphore,
}

impl Stage {
    pub(crate) fn of(&self, case: &str) -> Arc<Counted> {
        let fresh = || Arc::new(Counted { runs: Mutex::new(0), gate: Semaphore::new(0) });
        self.0.lock().unwrap().entry(case.to_owned()).or_insert_with(fresh).clone()
    }
}

pub(crate) async fn handle(
    State(stage): State<Stage>,
    Path(case): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let counted = stage.of(&case);
    let run = {
        let mut runs = counted.runs.lock().unwrap();
        *runs += 1;
        *runs
    };
    let query = query.unwrap_or_default();
    let told: Vec<(&str, &str)> =
        query.split('&').map(|part| part.split_once('=').unwrap_or((part, ""))).collect();
    let is_told = |name: &str| told.iter().any(|(other, _)| *other == name);
    let value = |name: &str| told.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
    if is_told("hold") {
        counted.gate.acquire().await.unwrap().forget();
    }
    assert!(!is_told("panic"), "the table's own panic");
    let text = match value("bytes") {
        Some(count) => "x".repeat(count.parse().unwrap()),
        None => format!("run {run}"),
    };
    let mut response = if is_told("chunked") || is_told("break") {
        let (send, body) = frames();
        text.as_bytes().chunks(3).for_each(|piece| send.data(piece.to_vec()));
        if is_told("break") {
            send.fail();
        }
        Response::new(Body::from(body))
    } else {
        text.into_response()
    };
    response.headers_mut().remove("content-type");
    for (_, header) in told.iter().filter(|(name, _)| *name == "header") {
        let (name, value) = header.split_once(':').unwrap();
        response.headers_mut().append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
    }
    if let Some(status) = value("status") {
        *response.status_mut() = StatusCode::from_u16(status.parse().unwrap()).unwrap();
    }
    if let Some(outcome) = value("outcome") {
        response.extensions_mut().insert(match outcome {
            "final" => Outcome::Final,
            "not-started" => Outcome::NotStarted,
            "unknown" => Outcome::Unknown,
            other => panic!("which outcome? {other}"),
        });
    }
    response
}

fn layer(locks: &LockManager, profile: &Profile) -> IdempotencyLayer {
    let builder = IdempotencyLayer::builder(locks);
    let builder = match profile.scope_header.clone() {
        None => builder.anonymous(),
        Some(header) => builder
            .scope(move |parts| parts.headers.get(header.as_str()).map(|value| Scope::new(value.as_bytes()))),
    };
    let mut builder = builder
        .syntax(if profile.syntax == "strict" { KeySyntax::Strict } else { KeySyntax::Lenient })
        .methods(profile.methods.iter().map(|method| method.parse::<Method>().unwrap()))
        .wait(Duration::from_millis(profile.wait_ms))
        .preset(match profile.preset.as_str() {
            "stripe" => Preset::Stripe,
            "success_only" => Preset::SuccessOnly,
            "azure" => Preset::Azure,
            other => panic!("which preset? {other}"),
        })
        .request_limit(profile.request_limit)
        .response_limit(profile.response_limit)
        .fingerprint(match profile.fingerprint.as_str() {
            "bytes" => FingerprintRule::bytes(),
            "canonical_json" => FingerprintRule::canonical_json(),
            other => panic!("which fingerprint? {other}"),
        })
        .retention(Duration::from_millis(profile.retention_ms));
    if profile.require_key {
        builder = builder.require_key();
    }
    if profile.tell_ignored {
        builder = builder.tell_ignored();
    }
    if profile.key_per_route {
        builder = builder.key_per_route();
    }
    builder.build().unwrap()
}

pub(crate) fn app(locks: &LockManager, table: &Table) -> Router {
    let stage = Stage::default();
    let runs = async |State(stage): State<Stage>, Path(case): Path<String>| {
        stage.of(&case).runs.lock().unwrap().to_string()
    };
    let release = async |State(stage): State<Stage>, Path(case): Path<String>| {
        stage.of(&case).gate.add_permits(1);
    };
    let mut app = Router::new()
        .route("/control/{case}/runs", get(runs))
        .route("/control/{case}/release", post(release));
    for (name, profile) in &table.profiles {
        app = app.route(&format!("/{name}/{{case}}"), any(handle).layer(layer(locks, profile)));
    }
    app.with_state(stage)
}
