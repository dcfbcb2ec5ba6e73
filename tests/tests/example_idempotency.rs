//! The examples of idempotency, run as their readers run them: their promises are kept on memory and on Redis, their verdicts notice
//! when the layer is gone, and the curl session of the README is what the service says.

mod example_support;
mod tower_support;

use std::{path::PathBuf, sync::LazyLock, time::Duration};

use distlock_tests::{
    example::{build, start},
    procs::Worker,
    server::{RedisOptions, RedisServer},
};
use rustix::process::{Pid, Signal, kill_process};

use example_support::request;
use tower_support::Client;

const LIMIT: Duration = Duration::from_secs(60);

static PAYMENTS: LazyLock<PathBuf> = LazyLock::new(|| build("payments"));
static GRPC_ORDERS: LazyLock<PathBuf> = LazyLock::new(|| build("grpc_orders"));

/// Runs it to its end: the exit code, how many promises were kept, and which were broken.
async fn outcome(program: Worker) -> (Option<i32>, usize, Vec<String>) {
    let status = program.wait_exit(LIMIT).await.unwrap();
    let lines = program.lines();
    let kept = lines.iter().filter(|line| line.trim_start().starts_with("kept: ")).count();
    let broken = lines.iter().filter_map(|line| line.trim_start().strip_prefix("BROKEN: "));
    (status.code(), kept, broken.map(str::to_owned).collect())
}

#[tokio::test]
async fn payments_keep_their_promises_with_nothing_installed() {
    assert_eq!(outcome(start(&PAYMENTS, None, &[])).await, (Some(0), 12, vec![]));
}

#[tokio::test]
async fn payments_keep_their_promises_on_redis() {
    let redis = RedisServer::start(RedisOptions::new()).unwrap();
    for _ in 0..2 {
        assert_eq!(outcome(start(&PAYMENTS, Some(&redis.url()), &[])).await, (Some(0), 12, vec![]));
    }
}

#[tokio::test]
async fn payments_without_the_layer_are_charged_again() {
    let (code, _, broken) = outcome(start(&PAYMENTS, None, &["--naive"])).await;
    assert_eq!(code, Some(1));
    for promise in ["one charge", "twenty times the same receipt", "and stays one, without asking again"] {
        assert!(broken.iter().any(|line| line == promise), "{promise}: {broken:#?}");
    }
}

#[tokio::test]
async fn grpc_orders_keep_their_promises_with_nothing_installed() {
    assert_eq!(outcome(start(&GRPC_ORDERS, None, &[])).await, (Some(0), 13, vec![]));
}

#[tokio::test]
async fn grpc_orders_keep_their_promises_on_redis() {
    let redis = RedisServer::start(RedisOptions::new()).unwrap();
    for _ in 0..2 {
        assert_eq!(outcome(start(&GRPC_ORDERS, Some(&redis.url()), &[])).await, (Some(0), 13, vec![]));
    }
}

#[tokio::test]
async fn grpc_orders_without_the_layer_are_placed_again() {
    let (code, _, broken) = outcome(start(&GRPC_ORDERS, None, &["--naive"])).await;
    assert_eq!(code, Some(1));
    assert_eq!(broken.iter().filter(|line| *line == "one order").count(), 3, "{broken:#?}");
}

/// What the README's session shows, line by line.
#[tokio::test]
async fn payments_serve_what_their_curl_lines_say() {
    let server = start(&PAYMENTS, None, &["--serve"]);
    server.wait_line("the end of the hints", LIMIT, |l| l.contains("Ctrl-C").then_some(())).await.unwrap();
    let lines = server.lines();
    let curls: Vec<&String> = lines.iter().filter(|line| line.starts_with("curl ")).collect();
    let [pay, other, bob] = curls[..] else { panic!("{lines:#?}") };

    let client = Client::new();
    let first = client.send(request(pay)).await;
    assert_eq!((first.status.as_u16(), first.text().as_str()), (200, r#"{"payment":1,"paid":5}"#));
    let again = client.send(request(pay)).await;
    assert!(
        again.is_replay() && again.body == first.body && again.lasting_headers() == first.lasting_headers()
    );
    client.send(request(other)).await.assert_problem(422, "key-reused");
    assert_eq!(client.send(request(bob)).await.text(), r#"{"payment":2,"paid":5}"#);
    let mut stranger = request(pay);
    stranger.headers_mut().remove("authorization");
    assert_eq!(client.send(stranger).await.status, 401);

    kill_process(Pid::from_raw(server.pid().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(server.wait_exit(LIMIT).await.unwrap().success(), "{:#?}", server.lines());
    assert_eq!(server.lines().last().unwrap(), "summary charges=2 sum=10");
}
