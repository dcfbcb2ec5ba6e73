//! Random histories of several processes on one store, in paused time: the real engine, queue and leases, with a network between them
//! and the store that delays, loses and reorders. Stores with one rule broken show that the judge would notice.
//!
//! * `bent` - the stores with a broken rule

mod bent;

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use distlock_runtime::{
    Clock, LockManager,
    backend::{Backend, BackendErrorKind, memory::MemoryBackend},
    testkit::{self, Call, Fault, Faulty},
};
use distlock_tests::history::{History, Hold, Verdict};
use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use bent::{Bent, Rule};

const KEY: &str = "simulated";
const TTL: Duration = Duration::from_secs(4);
const PROCESSES: usize = 3;
const TASKS: usize = 2;
const LENGTH: Duration = Duration::from_secs(40);
/// The longest that a command may be under way.
const LATEST: Duration = Duration::from_secs(6);

/// Plays the histories of these seeds; none may go wrong.
pub(crate) fn assert_clean(seeds: Range<u64>) {
    let mut holds = 0;
    for seed in seeds.clone() {
        let Findings { verdict, ghosts } = history(seed, None);
        assert!(verdict.is_clean() && ghosts == 0, "DISTLOCK_SEED={seed}: {verdict}, {ghosts} ghosts");
        holds += verdict.holds as u64;
    }
    let histories = seeds.end - seeds.start;
    assert!(holds > 5 * histories, "only {holds} holds in {histories} histories");
}

/// The control: with any one rule broken, `count` histories are soon found that go wrong in the way that this rule prevents.
pub(crate) fn assert_each_broken_rule_shows(first_seed: u64, count: usize) {
    let most = 150 * count as u64;
    for rule in Rule::ALL {
        let shows = |seed: &u64| {
            let Findings { verdict, ghosts } = history(*seed, Some(rule));
            match rule {
                Rule::CancelLeavesTombstone => ghosts > 0,
                Rule::TokensGrow => !verdict.token_faults.is_empty(),
                _ => !verdict.overlaps.is_empty(),
            }
        };
        let found: Vec<u64> = (first_seed..first_seed + most).filter(shows).take(count).collect();
        println!("without {rule:?}: {found:?}");
        assert_eq!(found.len(), count, "without {rule:?}, only {found:?} of {most} histories go wrong");
    }
}

/// What the judge found in a history.
struct Findings {
    verdict: Verdict,
    /// How often the lock was held when everybody had gone.
    ghosts: usize,
}

/// What all tasks of a history write into. The order of events is that of the one thread they run on: exact, also within a moment.
#[derive(Default)]
struct Record {
    clock: AtomicU64,
    holds: Mutex<Vec<Hold>>,
}

impl Record {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

/// Plays one history; everything in it follows from the seed.
fn history(seed: u64, broken: Option<Rule>) -> Findings {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    // The engine's jitter, too.
    fastrand::seed(seed);
    runtime.block_on(play(Rng::with_seed(seed), seed, broken))
}

async fn play(mut random: Rng, seed: u64, broken: Option<Rule>) -> Findings {
    let name = format!("simulation-{seed}-{broken:?}");
    let record = Arc::new(Record::default());
    let end = Instant::now() + LENGTH;
    let mut stores = Vec::new();
    let mut managers = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for process in 0..PROCESSES {
        let memory = MemoryBackend::named(&name, Clock::Tokio, &format!("process-{process}"));
        let store = Faulty::new(memory, Clock::Tokio);
        let backend: Arc<dyn Backend> = match broken {
            Some(rule) => Arc::new(Bent::new(store.clone(), rule, random.fork())),
            None => store.clone(),
        };
        let locks = testkit::paused_on(backend, LockManager::builder());
        for _ in 0..TASKS {
            tasks.spawn(contend(locks.clone(), record.clone(), end, random.fork()));
        }
        stores.push(store);
        managers.push(locks);
    }
    let trouble = tokio::spawn(trouble(stores.clone(), end, random.fork()));
    tasks.join_all().await;
    trouble.await.unwrap();
    for store in &stores {
        store.heal();
    }
    for locks in &managers {
        locks.shutdown(Duration::from_secs(30)).await;
    }
    let ghosts = ghosts(&stores[0]).await;

    let mut history = History::new();
    record.holds.lock().unwrap().drain(..).for_each(|hold| history.add(hold));
    Findings { verdict: history.check(), ghosts }
}

/// Looks whether a command that is still under way locks what nobody wants any more.
async fn ghosts(store: &Faulty) -> usize {
    let key = distlock_runtime::LockKey::new(KEY).unwrap();
    // What was left when somebody gave up on a release lapses first.
    sleep(TTL).await;
    let end = Instant::now() + LATEST + TTL;
    while Instant::now() < end {
        if store.inner().inspect(&key).await.unwrap().holder.is_some() {
            return 1;
        }
        sleep(Duration::from_millis(500)).await;
    }
    0
}

/// One task: takes the lock again and again, in all the ways there are.
async fn contend(locks: LockManager, record: Arc<Record>, end: Instant, mut random: Rng) {
    while Instant::now() < end {
        sleep(some_time(&mut random, 1_000)).await;
        let wait = some_time(&mut random, 12_000);
        let mutex = locks.mutex(KEY).ttl(TTL).wait(wait);
        let patience = if random.u8(..5) == 0 { some_time(&mut random, 3_000) } else { 2 * LENGTH };
        let Ok(Ok(guard)) = timeout(patience, mutex.lock()).await else { continue };
        let start = record.now();
        if !guard.is_valid() {
            continue;
        }
        let mut definite_end = start;
        let until = Instant::now() + some_time(&mut random, 6_000);
        while Instant::now() < until {
            sleep(Duration::from_millis(random.u64(1..200))).await;
            // The order's clock first: what is valid after that was valid then.
            let now = record.now();
            if !guard.is_valid() {
                break;
            }
            definite_end = now;
        }
        record.holds.lock().unwrap().push(Hold {
            // Each hold for itself: not even two of one process may overlap.
            owner: start.to_string(),
            key: KEY.to_owned(),
            token: Some(guard.fencing_token().get()),
            start_ns: start,
            definite_end_ns: definite_end,
        });
        if random.bool() {
            drop(guard);
        } else {
            let _ = guard.release().await;
        }
    }
}

/// Mostly short, sometimes as long as `most` milliseconds.
fn some_time(random: &mut Rng, most: u64) -> Duration {
    let scale = [0.002, 0.02, 0.2, 1.0][random.usize(..4)];
    Duration::from_millis(most).mul_f64(scale * random.f64())
}

/// The network, the server and its administrator.
async fn trouble(stores: Vec<Arc<Faulty>>, end: Instant, mut random: Rng) {
    let calls = [Call::TryAcquire, Call::TryAcquire, Call::Turn, Call::Renew, Call::Release, Call::Cancel];
    while Instant::now() < end {
        sleep(some_time(&mut random, 1_500)).await;
        let store = &stores[random.usize(..stores.len())];
        if random.u8(..6) == 0 {
            // Nothing gets through for a while.
            let lost = [Fault::LoseRequest, Fault::Hang, Fault::LoseReply][random.usize(..3)];
            calls.iter().for_each(|call| store.always(*call, lost));
            sleep(some_time(&mut random, 8_000)).await;
            store.heal();
            continue;
        }
        let call = calls[random.usize(..calls.len())];
        let late = LATEST.mul_f64(random.f64());
        let fault = match random.u8(..9) {
            0 | 1 => Fault::Delay(some_time(&mut random, 5_000)),
            2 | 3 => Fault::DelayReply(some_time(&mut random, 5_000)),
            4 => Fault::LoseReply,
            5 => Fault::LoseRequest,
            6 => Fault::HangApplied,
            7 => Fault::Refuse(BackendErrorKind::Unavailable),
            // A wait, which changes nothing, can't be late.
            _ if call == Call::Turn => Fault::Hang,
            _ => Fault::Late(late),
        };
        store.next(call, fault);
    }
}
