//! The spans of a lock's life: waiting, holding, renewing; the template as a field, the key only at debug.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock::{LockError, LockManager, testkit};
use tracing::{Instrument, Level};
use tracing_subscriber::fmt::{MakeWriter, format::FmtSpan};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn lines_with(&self, words: &[&str]) -> usize {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

async fn a_life(locks: &LockManager) {
    let lock = locks.mutex("order:4711").template("order:<id>").ttl(Duration::from_secs(3));
    lock.run(tokio::time::sleep(Duration::from_secs(10))).await.unwrap();
}

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn two_calls(locks: &LockManager) {
    for n in 0..2 {
        let call = locks.idempotent("call:4711").template("call:<id>").trace(TRACE);
        let call = call.run(async { Ok::<u8, LockError>(1) });
        call.instrument(tracing::info_span!("test", n)).await.unwrap();
    }
}

fn logged(level: Level) -> Log {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_span_events(FmtSpan::NEW | FmtSpan::CLOSE)
        .with_ansi(false)
        .with_writer(log.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(async {
            let locks = testkit::memory_paused();
            a_life(&locks).await;
            two_calls(&locks).await;
        });
    });
    log
}

#[test]
fn wait_and_hold_are_spans_named_by_template() {
    let log = logged(Level::INFO);
    for span in ["distlock.wait", "distlock.hold"] {
        assert_eq!(log.lines_with(&[span, "lock=\"order:<id>\"", "new"]), 1, "{span}");
        assert_eq!(log.lines_with(&[span, "close"]), 1, "{span}");
    }
    assert_eq!(log.lines_with(&["4711"]), 0, "no rendered key above debug");
}

#[test]
fn a_replayed_value_names_the_trace_of_its_execution() {
    let log = logged(Level::INFO);
    let call = ["distlock.call", "lock=\"call:<id>\"", "close"];
    let original = format!("original=\"{TRACE}\"");
    let lines = |more: &[&str]| log.lines_with(&[&call[..], more].concat());
    assert_eq!(lines(&["n=0", "outcome=\"executed\"", "token="]), 1);
    assert_eq!(lines(&["n=1", "outcome=\"replayed\"", &original]), 1);
    assert_eq!(lines(&["n=0", &original]), 0, "the first one is no replay");
}

#[test]
fn keys_and_renewals_are_seen_at_debug() {
    let log = logged(Level::DEBUG);
    assert!(log.lines_with(&["distlock.wait", "key=order:4711"]) > 0);
    assert!(log.lines_with(&["distlock.hold", "key=order:4711"]) > 0);
    assert!(
        log.lines_with(&["distlock.renew", "store=\"memory\"", "close"]) >= 3,
        "one for each third of the ttl"
    );
}
