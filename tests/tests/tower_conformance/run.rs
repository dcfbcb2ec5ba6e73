//! A case, run by a client.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use distlock_tests::wait;
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use tokio::task::JoinHandle;

use crate::table::{Case, Step};
use crate::tower_support::{Client, LIMIT, Reply};

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

pub(crate) async fn run(base: String, case: Case) -> Result<(), String> {
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
