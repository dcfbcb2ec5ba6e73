//! The README's first command, run as its readers run it: on memory, on Redis, by two processes at once, as a server to try, and
//! as the counter-example that its verdict must catch.

use std::{
    collections::HashMap,
    path::PathBuf,
    process::{Command, ExitStatus},
    sync::LazyLock,
    time::Duration,
};

use distlock_tests::{
    example,
    procs::Worker,
    server::{RedisOptions, RedisServer},
};
use example_support::request;
use rustix::process::{Pid, Signal, kill_process};
use tower_support::Client;

mod example_support;
mod tower_support;

const LIMIT: Duration = Duration::from_secs(60);
/// Keys of one run; the last is shared by all processes of a period.
const KEYS: usize = 16;

static ORDERS: LazyLock<PathBuf> = LazyLock::new(|| example::build("orders"));

fn start(url: Option<&str>, arguments: &[&str]) -> Worker {
    example::start(&ORDERS, url, arguments)
}

/// How a run ended and what it said.
struct Run {
    status: ExitStatus,
    lines: Vec<String>,
    totals: HashMap<String, usize>,
}

impl Run {
    async fn of(worker: Worker) -> Self {
        let status = worker.wait_exit(LIMIT).await.unwrap();
        let lines = worker.lines();
        let last = lines.last().expect("a last line");
        let totals = last.strip_prefix("summary ").unwrap_or_else(|| panic!("no summary: {lines:#?}"));
        let totals = totals.split(' ').map(|pair| {
            let (name, number) = pair.split_once('=').unwrap();
            (name.to_owned(), number.parse().unwrap())
        });
        Self { status, totals: totals.collect(), lines }
    }

    fn total(&self, name: &str) -> usize {
        *self.totals.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.totals))
    }

    fn is_broken(&self, promise: &str) -> bool {
        self.lines.iter().any(|line| line.starts_with("BROKEN: ") && line.contains(promise))
    }

    /// Asserts that the promises were kept, and that there was something to keep.
    #[track_caller]
    fn assert_kept(&self) {
        assert!(self.status.success(), "{:#?}", self.lines);
        assert!(!self.is_broken(""), "{:#?}", self.lines);
        assert_eq!(self.lines.iter().filter(|line| line.contains("promised: ")).count(), 5);
        assert_eq!((self.total("keys"), self.total("overlaps"), self.total("mismatches")), (KEYS, 0, 2));
        assert!(self.total("replays") >= 12, "{:?}", self.totals);
        let told: usize =
            ["executions", "replays", "conflicts", "mismatches"].iter().map(|n| self.total(n)).sum();
        assert_eq!(self.total("requests"), told, "{:?}", self.totals);
    }
}

#[tokio::test]
async fn keeps_its_promises_with_nothing_installed() {
    let run = Run::of(start(None, &[])).await;
    run.assert_kept();
    assert_eq!(run.total("executions"), KEYS);
}

#[tokio::test]
async fn two_processes_on_one_redis_keep_the_promise_together() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let period = format!("{:016x}", fastrand::u64(..));
    let process = || start(Some(&server.url()), &["--period", &period]);
    let (first, second) = (process(), process());
    let (first, second) = tokio::join!(Run::of(first), Run::of(second));
    first.assert_kept();
    second.assert_kept();
    // The job's key is theirs together.
    assert_eq!(first.total("executions") + second.total("executions"), 2 * KEYS - 1);

    let later = Run::of(process()).await;
    later.assert_kept();
    assert_eq!(later.total("executions"), KEYS - 1);
}

#[tokio::test]
async fn without_the_lock_the_verdict_is_overlap() {
    let run = Run::of(start(None, &["--naive=lock"])).await;
    assert_eq!(run.status.code(), Some(1));
    assert!(run.total("overlaps") > 0 && run.is_broken("two payments were in order 4 at once"));
    assert!(!run.is_broken("executed again"), "the layer is still there");
}

#[tokio::test]
async fn without_the_layer_the_verdict_is_a_key_that_ran_again() {
    let run = Run::of(start(None, &["--naive=layer"])).await;
    assert_eq!(run.status.code(), Some(1));
    assert!(run.total("executions") > KEYS);
    for key in ["key duplicates-1-", "key hang-up-21-", "key mismatch-3-", "key job-"] {
        assert!(run.lines.iter().any(|l| l.contains(key) && l.contains("was executed again")), "{key}");
    }
    assert_eq!(run.total("overlaps"), 0, "the lock is still there");
}

#[tokio::test]
async fn without_both_all_of_it_shows() {
    let run = Run::of(start(None, &["--naive"])).await;
    assert_eq!(run.status.code(), Some(1));
    assert!(run.total("overlaps") > 0 && run.is_broken("executed again") && run.is_broken("two payments"));
}

#[test]
fn a_wrong_url_is_told_in_one_line() {
    for (url, parts) in [
        ("redis//localhost", &["no scheme", "start it with memory:, redis://"][..]),
        ("mysql://localhost", &["unknown scheme \"mysql\"", "use memory:, redis://"]),
        ("redis://127.0.0.1:1?shard=2", &["unknown parameter \"shard\"", "namespace"]),
        ("redis://someone:hunter2@127.0.0.1:1", &["store not reachable", "127.0.0.1:1"]),
    ] {
        let output = Command::new(&*ORDERS).env("DISTLOCK_URL", url).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{url}: {text}");
        assert!(text.starts_with("orders: DISTLOCK_URL: ") && text.lines().count() == 1, "{url}: {text}");
        assert!(parts.iter().all(|part| text.contains(part)), "{url}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

async fn serves(url: Option<&str>) {
    let server = start(url, &["--serve"]);
    server.wait_line("the end of the hints", LIMIT, |l| l.contains("Ctrl-C").then_some(())).await.unwrap();
    let lines = server.lines();
    let curls: Vec<&String> = lines.iter().filter(|line| line.starts_with("curl ")).collect();
    let [pay, elsewhere, mismatch, both] = curls[..] else { panic!("{lines:#?}") };

    let client = Client::new();
    let first = client.send(request(pay)).await;
    assert_eq!((first.status.as_u16(), first.is_replay()), (200, false), "{}", first.text());
    assert!(first.text().contains("\"order\":42,\"paid\":5"), "{}", first.text());
    let again = client.send(request(pay)).await;
    assert!(again.is_replay());
    assert_eq!(
        (first.status, &first.body, first.lasting_headers()),
        (again.status, &again.body, again.lasting_headers())
    );
    let there = client.send(request(elsewhere)).await;
    assert!(there.is_replay() && there.body == first.body, "{}", there.text());
    let (one, other) = both.trim_end_matches("; wait").split_once(" & ").expect("two at once");
    let (one, other) = tokio::join!(client.send(request(one)), client.send(request(other)));
    for paid in [one, other] {
        assert_eq!((paid.status.as_u16(), paid.is_replay()), (200, false), "{}", paid.text());
    }
    client.send(request(mismatch)).await.assert_problem(422, "key-reused");
    let mut keyless = request(pay);
    keyless.headers_mut().remove("idempotency-key");
    client.send(keyless).await.assert_problem(400, "key-missing");

    kill_process(Pid::from_raw(server.pid().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(server.wait_exit(LIMIT).await.unwrap().success(), "{:#?}", server.lines());
    assert_eq!(server.lines().last().unwrap(), "executed: 3 payments, seen: 0 overlaps");
}

#[tokio::test]
async fn serves_what_its_curl_lines_say_and_ends_in_good_order() {
    serves(None).await;
}

#[tokio::test]
async fn serves_on_redis_too() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    serves(Some(&server.url())).await;
}
