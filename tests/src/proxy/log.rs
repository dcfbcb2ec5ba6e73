//! What the proxy saw: every command with its fate.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tokio::sync::watch;

use super::command::Command;

/// One command that a client sent.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which connection: the first that the proxy accepted is 0.
    pub connection: u64,
    /// When it arrived, since the proxy's start.
    pub at: Duration,
    /// The command.
    pub command: Command,
    /// What became of the request.
    pub request: Fate,
    /// The server's answer, delivered or not. A server that has answered has applied.
    pub reply: Option<Bytes>,
    /// Whether an answer, the server's or the proxy's own, was handed to the client's socket.
    pub delivered: bool,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The proxy has it and the server hasn't: delayed, held, or behind one that is.
    Waiting,
    /// Handed to the server's socket.
    Forwarded,
    /// The server will never see it.
    Dropped,
}

/// A copy of the record at one moment, in the order of arrival.
#[derive(Clone, Debug)]
pub struct Log {
    entries: Vec<Entry>,
}

impl Log {
    /// All commands, those of the handshakes too.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All commands but those that clients send when they connect.
    pub fn work(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| !entry.command.is_handshake())
    }

    /// All commands of this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(move |entry| entry.command.is(name))
    }

    /// How many commands of this name arrived.
    pub fn count(&self, name: &str) -> usize {
        self.named(name).count()
    }
}

/// The record that all connections of a proxy write.
#[derive(Debug)]
pub(super) struct Recorder {
    start: Instant,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    /// How many entries were cleared away before the first of `entries`.
    cleared: usize,
}

/// An entry's place in the record; stays right when the record is cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryId(usize);

impl Recorder {
    #[allow(clippy::disallowed_methods, reason = "time stamps of a record, not a lease")]
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), state: Mutex::default(), changed: watch::Sender::new(()) }
    }

    pub(super) fn add(&self, connection: u64, command: Command) -> EntryId {
        let at = self.start.elapsed();
        let mut state = self.state();
        let id = EntryId(state.cleared + state.entries.len());
        state.entries.push(Entry {
            connection,
            at,
            command,
            request: Fate::Waiting,
            reply: None,
            delivered: false,
        });
        drop(state);
        self.changed.send_replace(());
        id
    }

    pub(super) fn update(&self, id: EntryId, change: impl FnOnce(&mut Entry)) {
        let mut state = self.state();
        let Some(index) = id.0.checked_sub(state.cleared) else { return };
        if let Some(entry) = state.entries.get_mut(index) {
            change(entry);
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// What a connection that has ended hadn't forwarded yet, the server will never see.
    pub(super) fn drop_waiting(&self, connection: u64) {
        let mut state = self.state();
        let waiting = |entry: &&mut Entry| entry.connection == connection && entry.request == Fate::Waiting;
        state.entries.iter_mut().filter(waiting).for_each(|entry| entry.request = Fate::Dropped);
        drop(state);
        self.changed.send_replace(());
    }

    /// Tells those who wait for changes that something outside the record has changed.
    pub(super) fn nudge(&self) {
        self.changed.send_replace(());
    }

    pub(super) fn snapshot(&self) -> Log {
        Log { entries: self.state().entries.clone() }
    }

    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.cleared += state.entries.len();
        state.entries.clear();
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
