//! What the log says of an outage and of a loss: once, at `warn`, and without keys.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock_runtime::{
    Clock, LockManager,
    backend::memory::MemoryBackend,
    testkit::{self, Call, Fault, Faulty},
};
use distlock_tests::wait;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;

const TTL: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// How many lines have all these words.
    fn count(&self, words: &[&str]) -> usize {
        self.text().lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
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

/// Until there were so many renewals.
async fn renewals(store: &Faulty, count: usize) {
    let enough = async || (store.count(Call::Renew) >= count).then_some(());
    wait::until("renewals", Duration::from_secs(20), enough).await.unwrap();
}

/// The only test of its program: the log is that of all tasks.
#[tokio::test(start_paused = true)]
async fn an_outage_is_one_warning_and_a_loss_says_how_to_name_the_lock() {
    let log = Log::default();
    tracing_subscriber::fmt().with_max_level(Level::INFO).with_ansi(false).with_writer(log.clone()).init();
    let store = Faulty::new(MemoryBackend::new(Clock::Tokio, "tests"), Clock::Tokio);
    let locks = testkit::paused_on(store.clone(), LockManager::builder());
    let unnamed = locks.mutex("customer:7").ttl(TTL).lock().await.unwrap();
    let named = locks.mutex("order:7").template("order:<id>").ttl(TTL).lock().await.unwrap();

    for outage in 1..=2 {
        let failed = store.count(Call::Renew) + 3;
        store.always(Call::Renew, Fault::LoseRequest);
        renewals(&store, failed).await;
        assert_eq!(log.count(&["WARN", "a renewal failed", "lost by script"]), outage, "{}", log.text());
        store.heal();
        let renewed = store.count(Call::Renew) + 2;
        renewals(&store, renewed).await;
        assert_eq!(log.count(&["INFO", "renewals work again"]), outage, "{}", log.text());
    }
    assert!(unnamed.is_valid() && named.is_valid());

    locks.force_release("customer:7", "a test").await.unwrap();
    locks.force_release("order:7", "a test").await.unwrap();
    let hint = ".template(…)";
    assert_eq!(log.count(&["WARN", "lock lost", "lock=\"-\"", hint]), 1, "{}", log.text());
    assert_eq!(log.count(&["WARN", "lock lost", "lock=\"order:<id>\""]), 1, "{}", log.text());
    assert_eq!(log.count(&["lock lost", hint]), 1, "{}", log.text());
}
