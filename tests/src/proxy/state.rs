//! What all connections of a proxy share, and what can be done to them from outside.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{log::Recorder, rule::Rules};

/// What the proxy does with everything that passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Forwards.
    #[default]
    Pass,
    /// Keeps what comes, in both directions, and forwards it on the change to another mode: a partition that heals, with TCP sending
    /// again what was under way.
    Hold,
    /// Accepts and forwards nothing, in both directions. What came is lost: on the change to another mode the connections that lost
    /// something are reset.
    BlackHole,
    /// Requests pass and are applied, nothing comes back. The connections that lost something are reset at the end, as above.
    LoseReplies,
    /// Everything passes but what the server sends unasked: messages of subscriptions, invalidations.
    LosePushes,
    /// New connections are refused; open ones go on (until [`cut_all`](super::FaultProxy::cut_all)).
    Refuse,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// In order (FIN).
    Close,
    /// RST.
    Reset,
}

/// What is about to be handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Request,
    Reply,
    Push,
}

/// Delays that everything meets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latency {
    pub(super) to_server: Duration,
    pub(super) to_client: Duration,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) rules: Rules,
    pub(super) recorder: Recorder,
    state: Mutex<State>,
    mode_changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    latency: Latency,
    open: BTreeMap<u64, Arc<Control>>,
    accepted: u64,
    pushes_lost: u64,
}

/// The handle by which a connection is ended from outside.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) id: u64,
    /// The mode made it lose something, so it can't be trusted any more.
    lost_something: AtomicBool,
    end: watch::Sender<Option<Ending>>,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self {
            rules: Rules::default(),
            recorder: Recorder::new(),
            state: Mutex::default(),
            mode_changed: watch::Sender::new(()),
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.state().mode
    }

    pub(super) fn latency(&self) -> Latency {
        self.state().latency
    }

    pub(super) fn set_latency(&self, latency: Latency) {
        self.state().latency = latency;
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        let mut state = self.state();
        if state.mode == mode {
            return;
        }
        state.mode = mode;
        for control in state.open.values() {
            if control.lost_something.load(Ordering::Relaxed) {
                control.end(Ending::Reset);
            }
        }
        drop(state);
        self.mode_changed.send_replace(());
    }

    /// Whether the mode swallows `traffic`; if it does, the connection is marked in the same step, so that no change of mode can
    /// miss it.
    pub(super) fn loses(&self, control: &Control, traffic: Traffic) -> bool {
        let mut state = self.state();
        let lost = match state.mode {
            Mode::BlackHole => true,
            Mode::LoseReplies => traffic != Traffic::Request,
            Mode::LosePushes => traffic == Traffic::Push,
            Mode::Pass | Mode::Hold | Mode::Refuse => false,
        };
        if lost && state.mode != Mode::LosePushes {
            control.lost_something.store(true, Ordering::Relaxed);
        }
        if lost && traffic == Traffic::Push {
            state.pushes_lost += 1;
            drop(state);
            self.recorder.nudge();
        }
        lost
    }

    /// Waits while the mode is [`Mode::Hold`].
    pub(super) async fn not_held(&self) {
        let mut changes = self.mode_changed.subscribe();
        while self.mode() == Mode::Hold {
            // The sender lives in `self`.
            let _ = changes.changed().await;
        }
    }

    pub(super) fn open(&self) -> Arc<Control> {
        let mut state = self.state();
        let id = state.accepted;
        state.accepted += 1;
        let control =
            Arc::new(Control { id, lost_something: AtomicBool::new(false), end: watch::Sender::new(None) });
        state.open.insert(id, Arc::clone(&control));
        drop(state);
        self.recorder.nudge();
        control
    }

    pub(super) fn closed(&self, id: u64) {
        self.state().open.remove(&id);
        self.recorder.drop_waiting(id);
    }

    pub(super) fn end_all(&self, ending: Ending) {
        for control in self.state().open.values() {
            control.end(ending);
        }
    }

    pub(super) fn open_count(&self) -> usize {
        self.state().open.len()
    }

    pub(super) fn accepted(&self) -> u64 {
        self.state().accepted
    }

    pub(super) fn pushes_lost(&self) -> u64 {
        self.state().pushes_lost
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control {
    fn end(&self, ending: Ending) {
        self.end.send_replace(Some(ending));
    }

    /// Waits until somebody ends this connection.
    pub(super) async fn ended(&self) -> Ending {
        let mut end = self.end.subscribe();
        let ending = end.wait_for(Option::is_some).await.ok().and_then(|ending| *ending);
        ending.unwrap_or(Ending::Reset)
    }
}
