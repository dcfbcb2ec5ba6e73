//! Processes that wait for each other in a circle.

use std::time::{Duration, Instant};

use distlock_tests::{
    procs::Worker,
    server::{RedisOptions, RedisServer},
};

const LIMIT: Duration = Duration::from_secs(20);
const WORKER: &str = env!("CARGO_BIN_EXE_circle-worker");

/// As many processes as keys: each holds one and asks for the next.
async fn circle(server: &RedisServer, keys: &[&str], detect: bool) -> Vec<Worker> {
    let mut workers = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let next = keys[(number + 1) % keys.len()];
        let option = if detect { "detect" } else { "-" };
        let worker = Worker::spawn(WORKER, [&server.url(), *key, next, option]).unwrap();
        worker.wait_line("the first lock", LIMIT, |line| (line == "holding").then_some(())).await.unwrap();
        workers.push(worker);
    }
    for worker in &workers {
        worker.send("go").unwrap();
    }
    workers
}

/// What it says after `waiting`.
async fn outcome(worker: &Worker) -> String {
    let said = worker.wait_line("an outcome", LIMIT, |line| {
        (line != "holding" && line != "waiting").then(|| line.to_owned())
    });
    said.await.unwrap()
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "measures what is promised")]
async fn procs_a_circle_is_found_and_named_in_one_of_them() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    for keys in [&["alpha", "beta"][..], &["gamma", "delta", "epsilon"]] {
        let start = Instant::now();
        let workers = circle(&server, keys, true).await;
        let mut told = Vec::new();
        for worker in &workers {
            match outcome(worker).await {
                granted if granted == "granted" => {}
                other => told.push((worker.pid(), other)),
            }
        }
        let took = start.elapsed();
        assert_eq!(told.len(), 1, "one gives way, and the others go on: {told:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
        let text = &told[0].1;
        assert!(text.starts_with("DEADLOCK ") && text.contains("a circle of waits over processes"), "{text}");
        for key in keys {
            assert!(text.contains(&format!("\"{key}\"")), "{key} in {text}");
        }
        for worker in &workers {
            assert!(text.contains(&format!(":{}/", worker.pid())), "{} in {text}", worker.pid());
            assert!(worker.wait_exit(LIMIT).await.unwrap().success());
        }
    }
    let lasting = server.keys_without_ttl().await.unwrap();
    assert!(lasting.iter().all(|key| key.ends_with("}!f")), "{lasting:?}");
}

/// A process that was killed isn't waited with: its lock lapses and the other goes on, untold.
#[tokio::test]
async fn procs_a_circle_with_a_dead_process_is_none() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let workers = circle(&server, &["alpha", "beta"], true).await;
    for worker in &workers {
        worker.wait_line("the wait", LIMIT, |line| (line == "waiting").then_some(())).await.unwrap();
    }
    workers[1].kill().unwrap();
    assert_eq!(outcome(&workers[0]).await, "granted");
}

/// Off by default: the wait budget ends it, and nobody publishes anything.
#[tokio::test]
async fn procs_without_the_option_nothing_is_published() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let workers = circle(&server, &["alpha", "beta"], false).await;
    for worker in &workers {
        worker.wait_line("the wait", LIMIT, |line| (line == "waiting").then_some(())).await.unwrap();
    }
    // Several times as long as it takes to find one.
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let keys = server.keys().await.unwrap();
        assert!(!keys.iter().any(|key| key.contains("}!h:")), "{keys:?}");
    }
    for worker in &workers {
        assert!(
            worker.lines().iter().all(|line| line == "holding" || line == "waiting"),
            "{:?}",
            worker.lines()
        );
    }
}
