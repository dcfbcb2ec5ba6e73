//! The fault sweep: a scenario whose commands pass a proxy, played again with a fault at its k-th command, for every k and every mode.
//! Checked each time: I1 (no overlap of definite holds), I2 (growing tokens), I4 (the lock is to be had again), I7 (nothing stays),
//! I10 (every outcome has the kind that fits; a lost reply is never reported as something definite).
//!
//! * `modes` - the faults
//! * `scenario` - the story, and the naive one that fails

mod modes;
mod scenario;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use distlock::{ErrorKind, Guard, LockManager};
use distlock_tests::{
    history::{History, Hold, monotonic_ns},
    proxy::{FaultProxy, Rule, When},
    server::{ClusterGroup, RedisOptions, RedisServer},
    wait,
};
use futures_util::StreamExt;

pub(crate) use modes::Mode;
pub(crate) use scenario::{naive, ours};

pub(crate) const TTL: Duration = Duration::from_millis(1_500);
/// How many plays at once: they mostly wait.
const AT_ONCE: usize = 6;

/// The user whose commands meet the faults.
const SWEPT: &str = "swept";

/// What the locks are kept on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ground {
    Server,
    /// A Cluster of one primary: it names the proxy's port when it is asked where a slot is.
    Cluster,
}

/// Where a scenario plays, and what it did.
pub(crate) struct Stage {
    ground: Ground,
    servers: Servers,
    pub proxy: FaultProxy,
    holds: Mutex<Vec<Hold>>,
    outcomes: Mutex<Vec<Outcome>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub step: &'static str,
    pub error: Option<ErrorKind>,
    pub text: String,
}

/// How a play went.
#[derive(Debug)]
pub(crate) struct Report {
    /// How many commands met the sweep.
    pub commands: u64,
    /// What was wrong.
    pub faults: Vec<String>,
}

enum Servers {
    One(Box<RedisServer>),
    Cluster(ClusterGroup),
}

impl Servers {
    fn first(&self) -> &RedisServer {
        match self {
            Self::One(server) => server,
            Self::Cluster(group) => &group.servers()[0],
        }
    }
}

impl Stage {
    async fn new(ground: Ground) -> Self {
        let options = RedisOptions::new().user(format!("{SWEPT} on >secret ~* &* +@all"));
        // A Cluster takes two seconds to start, and others play meanwhile.
        let start = tokio::task::spawn_blocking(move || match ground {
            Ground::Server => Servers::One(Box::new(RedisServer::start(options).unwrap())),
            Ground::Cluster => Servers::Cluster(ClusterGroup::start_with(1, 0, options)),
        });
        let servers = start.await.unwrap();
        let proxy = FaultProxy::start(servers.first().address()).unwrap();
        if let Servers::Cluster(group) = &servers {
            group.announce(0, proxy.address().port()).await.unwrap();
        }
        Self { ground, servers, proxy, holds: Mutex::default(), outcomes: Mutex::default() }
    }

    /// The URL for who meets the faults, and for who doesn't.
    pub(crate) fn urls(&self) -> [String; 2] {
        self.urls_of(match self.ground {
            Ground::Server => "redis",
            Ground::Cluster => "redis+cluster",
        })
    }

    /// The same for clients that know nothing of Clusters: one primary redirects nobody.
    pub(crate) fn plain_urls(&self) -> [String; 2] {
        self.urls_of("redis")
    }

    fn urls_of(&self, scheme: &str) -> [String; 2] {
        let (proxy, server) = (self.proxy.address(), self.server().address());
        [format!("{scheme}://{SWEPT}:secret@{proxy}"), format!("{scheme}://{server}")]
    }

    pub(crate) fn server(&self) -> &RedisServer {
        self.servers.first()
    }

    /// Notes how a step went; gives its value if it went well.
    pub(crate) fn note<T>(&self, step: &'static str, outcome: Result<T, distlock::LockError>) -> Option<T> {
        let (error, text) = match &outcome {
            Ok(_) => (None, String::new()),
            Err(error) => (Some(error.kind()), error.to_string()),
        };
        self.outcomes.lock().unwrap().push(Outcome { step, error, text });
        outcome.ok()
    }

    /// Something that must hold and doesn't.
    pub(crate) fn complain(&self, step: &'static str, text: impl Into<String>) {
        self.outcomes.lock().unwrap().push(Outcome {
            step,
            error: Some(ErrorKind::Config),
            text: text.into(),
        });
    }

    /// Holds a lock for a while, and records for how long it was definitely held. False if it was lost. A second time with the
    /// same name goes on with the same hold.
    pub(crate) async fn hold(&self, name: &str, guard: &Guard, length: Duration) -> bool {
        let token = guard.fencing_token().get();
        self.hold_while(name, token, length, || guard.is_valid()).await
    }

    pub(crate) async fn hold_while(
        &self,
        name: &str,
        token: u64,
        length: Duration,
        is_valid: impl Fn() -> bool,
    ) -> bool {
        let end = wait::Deadline::after(length);
        let start_ns = monotonic_ns();
        let mut definite_end_ns = None;
        loop {
            // The clock first: what is valid after that was valid then.
            let now = monotonic_ns();
            if !is_valid() {
                break;
            }
            definite_end_ns = Some(now);
            if end.is_past() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5).min(end.remaining())).await;
        }
        let lost = !end.is_past();
        if let Some(definite_end_ns) = definite_end_ns {
            let mut holds = self.holds.lock().unwrap();
            match holds.iter_mut().find(|hold| hold.owner == name) {
                Some(hold) => hold.definite_end_ns = definite_end_ns,
                None => holds.push(Hold {
                    owner: name.to_owned(),
                    key: "swept".to_owned(),
                    token: Some(token),
                    start_ns,
                    definite_end_ns,
                }),
            }
        }
        !lost
    }
}

/// Plays `scenario` with a fault at its command number `at`.
pub(crate) async fn play<F>(
    ground: Ground,
    scenario: impl FnOnce(Arc<Stage>) -> F,
    fault: Option<(u64, Mode)>,
) -> Report
where
    F: Future<Output = ()>,
{
    let stage = Arc::new(Stage::new(ground).await);
    if let Some((at, mode)) = fault {
        let when = mode.when().and(When::user(SWEPT));
        stage.proxy.rules().add(Rule::new(when, mode.fault()).skip(at).once());
    }
    scenario(stage.clone()).await;
    let log = stage.proxy.log();
    let commands = log.work().filter(|entry| Mode::may_meet(&entry.command) && entry.command.is_by(SWEPT));
    let commands = commands.count() as u64;

    let mut faults = Vec::new();
    let mut history = History::new();
    stage.holds.lock().unwrap().drain(..).for_each(|hold| history.add(hold));
    let verdict = history.check();
    if !verdict.is_clean() {
        faults.push(verdict.to_string());
    }
    for Outcome { step, error, text } in stage.outcomes.lock().unwrap().iter() {
        if let Some(kind) = error
            && !fault.is_some_and(|(_, mode)| mode.explains(step, *kind))
        {
            faults.push(format!("{step}: {kind:?}: {text}"));
        }
    }
    let lasting = stage.server().keys_without_ttl().await.unwrap();
    if lasting.iter().any(|key| !key.ends_with("}!f")) {
        faults.push(format!("these stay for ever: {lasting:?}"));
    }
    Report { commands, faults }
}

/// The lock is to be had again soon, and then nothing is left.
pub(crate) async fn recovered(stage: &Stage, name: &str, locks: &LockManager) {
    let free = async || locks.mutex("swept").ttl(TTL).try_lock().await.ok();
    match wait::until("the lock to be free", TTL + Duration::from_millis(1_500), free).await {
        Ok(guard) => {
            let well = stage.hold(name, &guard, Duration::from_millis(10)).await;
            drop(guard);
            if !well {
                stage.complain("recovery", "lost at once");
            }
        }
        Err(error) => stage.complain("recovery", error.to_string()),
    }
}

/// Plays with every one of `faults`, several at a time; panics with all that went wrong.
pub(crate) async fn sweep(ground: Ground, faults: Vec<(u64, Mode)>) {
    let count = faults.len();
    let plays = futures_util::stream::iter(faults).map(|fault| async move {
        let report = play(ground, ours, Some(fault)).await;
        let faults = report.faults.iter().map(move |text| format!("at {} {:?}: {text}", fault.0, fault.1));
        faults.collect::<Vec<_>>()
    });
    let wrong: Vec<String> = plays.buffer_unordered(AT_ONCE).concat().await;
    assert!(wrong.is_empty(), "{} of {count} plays went wrong:\n{}", wrong.len(), wrong.join("\n"));
}
