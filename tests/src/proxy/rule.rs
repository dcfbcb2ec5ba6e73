//! Which command meets which fault.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context;
use tokio::sync::watch;

use super::command::Command;

/// What happens to a command that a rule picks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server never sees it.
    DropRequest(Then),
    /// The server applies it; its answer is lost.
    DropReply(Then),
    /// The server never sees it; the client gets this line as the answer, like `-LOADING Redis is loading`.
    Answer(String),
    /// The server sees it later. What follows on the same connection waits behind it, as on a real one; if the client has gone
    /// meanwhile, the server still sees it.
    Delay(Duration),
    /// As `Delay`, until [`RuleHandle::release`].
    Hold,
    /// The client gets the answer later, and what follows it too.
    DelayReply(Duration),
    /// As `DelayReply`, until [`RuleHandle::release`].
    HoldReply,
    /// The server gets this many bytes of it, then both connections are reset.
    TruncateRequest(usize),
    /// The server applies it; the client gets this many bytes of the answer, then a reset.
    TruncateReply(usize),
}

/// What becomes of the connection after a loss. A stream can't lose something from its middle and go on: either it ends, or the
/// direction in which something was lost is dead from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Ends in order (FIN). Answers to earlier commands are delivered before.
    Close,
    /// Ends by a reset (RST). Answers to earlier commands are delivered before.
    Reset,
    /// Stays open. After a lost request nothing more goes to the server; after a lost answer nothing more comes to the client,
    /// while its requests are still applied.
    Silence,
}

/// A condition on commands; conditions combine by [`and`](Self::and) and [`negate`](Self::negate).
#[derive(Clone)]
pub struct When(Arc<dyn Fn(&Command) -> bool + Send + Sync>);

impl When {
    /// What `condition` says.
    pub fn matches(condition: impl Fn(&Command) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(condition))
    }

    /// Every command but those that clients send when they connect.
    pub fn work() -> Self {
        Self::matches(|command| !command.is_handshake())
    }

    /// Commands of this name, in whatever case.
    pub fn command(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::matches(move |command| command.is(&name))
    }

    /// `EVALSHA` of this script.
    pub fn script(sha: impl Into<String>) -> Self {
        let sha = sha.into();
        Self::matches(move |command| {
            command.script_sha().is_some_and(|found| found.eq_ignore_ascii_case(&sha))
        })
    }

    /// Commands with a key that contains `text`.
    pub fn key_contains(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::matches(move |command| command.keys().iter().any(|key| key.contains(&text)))
    }

    /// Commands from connections of this user.
    pub fn user(name: impl Into<String>) -> Self {
        let name = name.into();
        Self::matches(move |command| command.is_by(&name))
    }

    /// Commands with some argument that contains `text`.
    pub fn mentions(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::matches(move |command| command.mentions(&text))
    }

    /// Both conditions.
    pub fn and(self, other: Self) -> Self {
        Self::matches(move |command| (self.0)(command) && (other.0)(command))
    }

    /// The opposite.
    pub fn negate(self) -> Self {
        Self::matches(move |command| !(self.0)(command))
    }
}

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("When(..)")
    }
}

/// A fault and the commands that meet it: all that match, unless bounded by [`skip`](Self::skip) and [`times`](Self::times).
#[derive(Clone, Debug)]
pub struct Rule {
    when: When,
    fault: Fault,
    skip: u64,
    times: u64,
}

impl Rule {
    /// `fault` for every command that meets `when`.
    pub fn new(when: When, fault: Fault) -> Self {
        Self { when, fault, skip: 0, times: u64::MAX }
    }

    /// Lets the first `count` matching commands pass, over all connections: the fault comes at step `count`, counted from 0.
    pub fn skip(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Lets all matching commands pass after `count` faults.
    pub fn times(mut self, count: u64) -> Self {
        self.times = count;
        self
    }

    /// A single fault.
    pub fn once(self) -> Self {
        self.times(1)
    }
}

/// The rules of a proxy. A command meets the first that picks it, in the order of adding.
#[derive(Clone, Debug, Default)]
pub struct Rules(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    active: Vec<Active>,
    next_id: u64,
}

#[derive(Debug)]
struct Active {
    id: u64,
    rule: Rule,
    matched: u64,
    hits: watch::Sender<u64>,
    gate: Gate,
}

impl Rules {
    /// Adds a rule. It stays until removed by its handle or by [`clear`](Self::clear); dropping the handle doesn't end it.
    pub fn add(&self, rule: Rule) -> RuleHandle {
        let mut book = self.book();
        let id = book.next_id;
        book.next_id += 1;
        let (hits, gate) = (watch::Sender::new(0), Gate::default());
        let handle = RuleHandle { id, hits: hits.subscribe(), gate: gate.clone(), rules: self.clone() };
        book.active.push(Active { id, rule, matched: 0, hits, gate });
        handle
    }

    /// Removes all rules. Commands that are held are let go.
    pub fn clear(&self) {
        for active in self.book().active.drain(..) {
            active.gate.open();
        }
    }

    /// The fault that `command` meets, with the gate that holds it if it is to be held.
    pub(super) fn judge(&self, command: &Command) -> Option<(Fault, Gate)> {
        for active in &mut self.book().active {
            if !(active.rule.when.0)(command) {
                continue;
            }
            let step = active.matched;
            active.matched += 1;
            let range = active.rule.skip..active.rule.skip.saturating_add(active.rule.times);
            if range.contains(&step) {
                active.hits.send_modify(|hits| *hits += 1);
                return Some((active.rule.fault.clone(), active.gate.clone()));
            }
        }
        None
    }

    fn remove(&self, id: u64) {
        self.book().active.retain(|active| active.id != id);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rule that was added.
#[derive(Clone, Debug)]
pub struct RuleHandle {
    id: u64,
    hits: watch::Receiver<u64>,
    gate: Gate,
    rules: Rules,
}

impl RuleHandle {
    /// How many commands have met the fault.
    pub fn hits(&self) -> u64 {
        *self.hits.borrow()
    }

    /// Waits until `count` commands have met the fault.
    ///
    /// # Errors
    /// When the time is up, or the rule was removed before.
    pub async fn wait_hits(&self, count: u64, limit: Duration) -> anyhow::Result<()> {
        let mut hits = self.hits.clone();
        let enough = tokio::time::timeout(limit, hits.wait_for(|hits| *hits >= count)).await;
        let seen = self.hits();
        enough
            .with_context(|| format!("{seen} of {count} commands met the fault within {limit:?}"))?
            .with_context(|| format!("the rule was removed after {seen} of {count} commands"))?;
        Ok(())
    }

    /// Lets go what is held, and holds nothing more.
    pub fn release(&self) {
        self.gate.open();
    }

    /// Ends the rule and lets go what is held.
    pub fn remove(&self) {
        self.rules.remove(self.id);
        self.gate.open();
    }
}

/// Closed until opened once.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<watch::Sender<bool>>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }
}

impl Gate {
    fn open(&self) {
        self.0.send_replace(true);
    }

    pub(super) async fn passed(&self) {
        // Its sender lives in `self`, so the wait ends only by an opening.
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn command(line: &str) -> Command {
        Command::new(line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect())
    }

    #[test]
    fn skip_and_times_bound_the_fault() {
        let rules = Rules::default();
        let cut = Fault::DropRequest(Then::Close);
        let handle = rules.add(Rule::new(When::command("SET"), cut.clone()).skip(1).times(2));
        let met: Vec<bool> = (0..5)
            .map(|_| {
                assert!(rules.judge(&command("get k")).is_none());
                rules.judge(&command("set k v")).is_some()
            })
            .collect();
        assert_eq!(met, [false, true, true, false, false]);
        assert_eq!(handle.hits(), 2);
    }

    #[test]
    fn the_first_rule_that_picks_wins() {
        let rules = Rules::default();
        let first = rules.add(Rule::new(When::key_contains("order"), Fault::Hold).once());
        rules.add(Rule::new(When::work(), Fault::HoldReply));
        assert_eq!(rules.judge(&command("GET order:1")).unwrap().0, Fault::Hold);
        assert_eq!(rules.judge(&command("GET order:1")).unwrap().0, Fault::HoldReply);
        assert!(rules.judge(&command("HELLO 3")).is_none());
        first.remove();
        rules.clear();
        assert!(rules.judge(&command("GET order:1")).is_none());
    }
}
