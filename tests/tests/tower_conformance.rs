//! The table of docs/conformance/http.json, run against this layer on every store, or against a server at `CONFORMANCE_URL`.

mod tower_support;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use distlock::LockManager;
use distlock_tests::wait;
use distlock_tower::{FingerprintRule, IdempotencyLayer, KeySyntax, Outcome, Preset, Scope};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use tower_support::{Client, LIMIT, Reply, Server, Store, frames};

const TABLE: &str = include_str!("../../docs/conformance/http.json");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    format: u32,
    profiles: BTreeMap<String, Profile>,
    cases: Vec<Case>,
}

#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profile {
    require_key: bool,
    syntax: String,
    methods: Vec<String>,
    tell_ignored: bool,
    wait_ms: u64,
    scope_header: Option<String>,
    preset: String,
    request_limit: usize,
    response_limit: usize,
    fingerprint: String,
    key_per_route: bool,
    retention_ms: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            require_key: false,
            syntax: "lenient".into(),
            methods: vec!["POST".into(), "PATCH".into()],
            tell_ignored: false,
            wait_ms: 10_000,
            scope_header: None,
            preset: "stripe".into(),
            request_limit: 1 << 20,
            response_limit: 1 << 20,
            fingerprint: "bytes".into(),
            key_per_route: false,
            retention_ms: 24 * 3_600_000,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    given: String,
    when: Vec<Step>,
    then: End,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    runs: usize,
}

#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Step {
    send: Option<String>,
    start: Option<String>,
    r#await: Option<String>,
    leave: Option<String>,
    until: Option<String>,
    until_runs: Option<usize>,
    release: Option<usize>,
    query: String,
    key: Option<String>,
    headers: Vec<(String, String)>,
    body: String,
    then: Option<Seen>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Seen {
    status: u16,
    body: Option<String>,
    length: Option<usize>,
    headers: BTreeMap<String, Option<Vec<String>>>,
    problem: Option<String>,
    broken: bool,
}

/// The server under test.
#[derive(Clone, Debug, Default)]
struct Stage(Arc<Mutex<HashMap<String, Arc<Counted>>>>);

#[derive(Debug)]
struct Counted {
    runs: Mutex<usize>,
    gate: Semaphore,
}

impl Stage {
    fn of(&self, case: &str) -> Arc<Counted> {
        let fresh = || Arc::new(Counted { runs: Mutex::new(0), gate: Semaphore::new(0) });
        self.0.lock().unwrap().entry(case.to_owned()).or_insert_with(fresh).clone()
    }
}

async fn handle(State(stage): State<Stage>, Path(case): Path<String>, RawQuery(query): RawQuery) -> Response {
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

fn app(locks: &LockManager, table: &Table) -> Router {
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

/// One case against a server.
struct Run {
    base: String,
    profile: String,
    word: String,
    client: Client,
    started: HashMap<String, JoinHandle<anyhow::Result<Reply>>>,
}

impl Run {
    async fn step(&mut self, step: &Step) -> Result<(), String> {
        if let Some(runs) = step.until_runs {
            let deadline = wait::Deadline::after(LIMIT);
            while self.runs().await < runs {
                if deadline.is_past() {
                    return Err(format!("the handler didn't begin {runs} times"));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            return Ok(());
        }
        for _ in 0..step.release.unwrap_or(0) {
            self.control(Method::POST, "release").await;
        }
        if let Some(name) = &step.leave {
            self.started.remove(name).ok_or("nothing of this name was started")?.abort();
        }
        if let Some(name) = &step.r#await {
            let started = self.started.remove(name).ok_or("nothing of this name was started")?;
            let reply = tokio::time::timeout(LIMIT, started).await.map_err(|_| "no answer in time")?;
            return seen(step, reply.map_err(|error| error.to_string())?);
        }
        if let Some(method) = &step.until {
            let request = self.request(method, step);
            let deadline = wait::Deadline::after(LIMIT);
            loop {
                match seen(step, self.client.try_send(request.clone()).await) {
                    Err(_) if !deadline.is_past() => tokio::time::sleep(Duration::from_millis(20)).await,
                    outcome => return outcome,
                }
            }
        }
        if let Some(method) = &step.send {
            let request = self.request(method, step);
            let client = self.client.clone();
            let sent = async move { client.try_send(request).await };
            if let Some(name) = &step.start {
                self.started.insert(name.clone(), tokio::spawn(sent));
                return Ok(());
            }
            let reply = tokio::time::timeout(LIMIT, sent).await.map_err(|_| "no answer in time")?;
            return seen(step, reply);
        }
        Ok(())
    }

    fn request(&self, method: &str, step: &Step) -> Request<Full<Bytes>> {
        let query = if step.query.is_empty() { String::new() } else { format!("?{}", step.query) };
        let uri = format!("{}/{}/{}{query}", self.base, self.profile, self.word);
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(key) = &step.key {
            let value = HeaderValue::from_bytes(self.filled(key).as_bytes()).unwrap();
            request = request.header("idempotency-key", value);
        }
        for (name, value) in &step.headers {
            request = request.header(name, value);
        }
        request.body(Full::from(self.filled(&step.body))).unwrap()
    }

    fn filled(&self, text: &str) -> String {
        match text.strip_prefix("$x").and_then(|length| length.parse().ok()) {
            Some(length) => format!("{:x<length$}", self.word),
            None => text.replace("$key", &self.word),
        }
    }

    async fn runs(&self) -> usize {
        self.control(Method::GET, "runs").await.text().parse().expect("a number of runs")
    }

    async fn control(&self, method: Method, what: &str) -> Reply {
        let request =
            Request::builder().method(method).uri(format!("{}/control/{}/{what}", self.base, self.word));
        self.client.send(request.body(Full::default()).unwrap()).await
    }
}

/// Whether a client saw what the table says.
fn seen(step: &Step, reply: anyhow::Result<Reply>) -> Result<(), String> {
    let Some(expected) = &step.then else { return Ok(()) };
    let reply = match reply {
        Err(_) if expected.broken => return Ok(()),
        Err(error) => return Err(format!("no whole response: {error}")),
        Ok(reply) => reply,
    };
    let told =
        format!("{expected:?}, and the response was {} {:?} {}", reply.status, reply.headers, reply.text());
    let mut is_right = !expected.broken && reply.status.as_u16() == expected.status;
    is_right &= expected.body.as_ref().is_none_or(|body| reply.text() == *body);
    is_right &= expected.length.is_none_or(|length| reply.body.len() == length);
    for (name, values) in &expected.headers {
        let found: Vec<_> = reply.headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect();
        is_right &= found == values.as_deref().unwrap_or_default();
    }
    if let Some(problem) = &expected.problem {
        let document: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
        is_right &= document["type"].as_str().is_some_and(|kind| kind.ends_with(&format!(":{problem}")));
    }
    if is_right { Ok(()) } else { Err(told) }
}

async fn run(base: String, case: Case) -> Result<(), String> {
    let word = format!("c{:016x}", fastrand::u64(..));
    let client = Client::new();
    let mut run = Run { base, profile: case.given, word, client, started: HashMap::new() };
    for (at, step) in case.when.iter().enumerate() {
        let failed = |error: String| format!("\"{}\", step {}: {error}", case.case, at + 1);
        run.step(step).await.map_err(failed)?;
    }
    match run.runs().await {
        runs if runs == case.then.runs => Ok(()),
        runs => Err(format!("\"{}\": {runs} runs in place of {}", case.case, case.then.runs)),
    }
}

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

fn table() -> Table {
    let table: Table = serde_json::from_str(TABLE).expect("the table is well formed");
    assert_eq!(table.format, 1);
    assert!(table.cases.len() > 30, "the table has shrunk");
    for case in &table.cases {
        assert!(table.profiles.contains_key(&case.given), "\"{}\": no profile {}", case.case, case.given);
    }
    table
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
