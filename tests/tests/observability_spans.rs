//! The spans of a lock's life: waiting, holding, renewing; the template as a field, the key only at debug.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock::{LockManager, testkit};
use tracing::Level;
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
        runtime.unwrap().block_on(async { a_life(&testkit::memory_paused()).await });
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
fn keys_and_renewals_are_seen_at_debug() {
    let log = logged(Level::DEBUG);
    assert!(log.lines_with(&["distlock.wait", "key=order:4711"]) > 0);
    assert!(log.lines_with(&["distlock.hold", "key=order:4711"]) > 0);
    assert!(
        log.lines_with(&["distlock.renew", "store=\"memory\"", "close"]) >= 3,
        "one for each third of the ttl"
    );
}
