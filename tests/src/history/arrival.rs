//! First come, first served, as the server saw it.
//!
//! The record is the server's own (`MONITOR`): a request arrives with the first script that is called with its owner and the lock (and
//! that runs: a server that doesn't know the script yet has done nothing), and is granted when a script writes that owner's value into the lock. Between the two it may go: a tombstone says that its process
//! cancelled it, the line `dying:<pid>` that the test is about to kill that process.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// A grant that passed by somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedBy {
    /// Who got the lock, as `<owner>:<label>`.
    pub granted: String,
    /// Who had arrived before, and waited alive.
    pub waits: String,
}

/// What the record shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// How many grants were judged.
    pub grants: usize,
    /// How many of them went to somebody who hadn't got it at once.
    pub waited: usize,
    /// How many requests were cancelled before they were granted.
    pub cancelled: usize,
    /// How many waited when their processes were killed.
    pub killed: usize,
    /// Every grant that wasn't in order.
    pub faults: Vec<PassedBy>,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { grants, waited, cancelled, killed, faults } = self;
        write!(
            f,
            "{grants} grants, {waited} after a wait, {cancelled} cancelled, {killed} killed, {} passed by",
            faults.len()
        )?;
        faults.iter().take(5).try_for_each(|fault| write!(f, "\n{fault:?}"))
    }
}

/// What the test says on the server's record before it kills a process, as an `ECHO`.
pub fn dying(pid: u32) -> String {
    format!("dying:{pid}")
}

/// Judges the record of a fair lock that stands under this name.
pub fn judge<L: AsRef<str>>(record: impl IntoIterator<Item = L>, lock: &str) -> Order {
    let (mut order, mut line) = (Order::default(), Line::default());
    for entry in record {
        let entry = entry.as_ref();
        let words: Vec<&str> = entry.split('"').skip(1).step_by(2).collect();
        let in_script = entry.split('"').next().is_some_and(|head| head.ends_with("lua] "));
        if in_script {
            line.arrive();
        }
        match words[..] {
            [command, text] if command.eq_ignore_ascii_case("echo") => {
                if let Some(pid) = text.strip_prefix("dying:") {
                    order.killed += line.leave(|_, value| pid_of(value) == pid);
                    line.dying.insert(pid.to_owned());
                }
            }
            [command, name, value, ..] if in_script && command == "set" && name == lock => {
                let Some((place, _)) = line.waiting.iter().find(|(_, waits)| *waits == value) else {
                    continue;
                };
                let place = *place;
                order.grants += 1;
                order.waited += usize::from(line.newest != value);
                let before = line.waiting.range(..place).map(|(_, value)| value.clone());
                let granted = value.to_owned();
                order.faults.extend(before.map(|waits| PassedBy { granted: granted.clone(), waits }));
                line.leave(|_, waits| waits == value);
            }
            [command, name, _, owner] if in_script && command == "zadd" && name.contains("}!x:") => {
                order.cancelled += line.leave(|waits, _| waits == owner);
                line.known.insert(owner.to_owned());
            }
            _ if !in_script && words.contains(&lock) => {
                line.newest.clear();
                line.called = words.iter().find(|word| is_value(word)).map(|word| (*word).to_owned());
            }
            _ => {}
        }
    }
    order
}

/// Those who wait, in order of arrival.
#[derive(Default)]
struct Line {
    arrivals: usize,
    waiting: BTreeMap<usize, String>,
    /// Who called the script that runs next.
    called: Option<String>,
    /// Who arrived with the present command.
    newest: String,
    /// Every owner that was heard of.
    known: BTreeSet<String>,
    dying: BTreeSet<String>,
}

impl Line {
    fn arrive(&mut self) {
        let Some(value) = self.called.take() else { return };
        if self.known.insert(owner_of(&value).to_owned()) && !self.dying.contains(pid_of(&value)) {
            self.arrivals += 1;
            self.newest.clone_from(&value);
            self.waiting.insert(self.arrivals, value);
        }
    }

    fn leave(&mut self, who: impl Fn(&str, &str) -> bool) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|_, value| !who(owner_of(value), value));
        before - self.waiting.len()
    }
}

fn owner_of(value: &str) -> &str {
    value.split(':').next().unwrap_or(value)
}

/// The end of a label is the pid.
fn pid_of(value: &str) -> &str {
    value.rsplit(':').next().unwrap_or(value)
}

/// `<32 hex digits>:<label>`
fn is_value(word: &str) -> bool {
    word.split_once(':')
        .is_some_and(|(owner, _)| owner.len() == 32 && owner.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(n: u32, pid: u32) -> String {
        format!("{n:032x}:host:{pid}")
    }

    fn asks(n: u32, pid: u32) -> String {
        format!("{}\n1.0 [0 lua] \"exists\" \"k\"", calls(n, pid))
    }

    fn calls(n: u32, pid: u32) -> String {
        format!("1.0 [0 127.0.0.1:5] \"EVALSHA\" \"hash\" \"1\" \"k\" \"{}\" \"900\"", value(n, pid))
    }

    fn judged<const N: usize>(record: [String; N], lock: &str) -> Order {
        judge(record.join("\n").lines(), lock)
    }

    fn grant(n: u32, pid: u32) -> String {
        format!("1.0 [0 lua] \"set\" \"k\" \"{}\" \"PX\" \"900\"", value(n, pid))
    }

    #[test]
    fn in_order_is_clean_and_passing_by_is_named() {
        let order = judged([asks(1, 7), asks(2, 8), grant(1, 7), asks(2, 8), grant(2, 8)], "k");
        assert_eq!(order, Order { grants: 2, waited: 2, ..Order::default() });
        let order = judged([asks(1, 7), asks(2, 8), grant(2, 8), grant(1, 7)], "k");
        assert_eq!(order.faults, [PassedBy { granted: value(2, 8), waits: value(1, 7) }]);
        assert_eq!(judged([asks(1, 7), grant(1, 7)], "other"), Order::default());
        // Its first call was refused, so it hasn't arrived by then.
        let order = judged([calls(1, 7), asks(2, 8), asks(1, 7), grant(2, 8), grant(1, 7)], "k");
        assert_eq!((order.grants, order.faults.len()), (2, 0));
    }

    #[test]
    fn who_cancelled_or_was_killed_may_be_passed_by() {
        let tomb = format!("1.0 [0 lua] \"zadd\" \"ns{{a}}!x:k\" \"99\" \"{:032x}\"", 1);
        let order = judged([asks(1, 7), asks(2, 8), tomb.clone(), grant(2, 8)], "k");
        assert_eq!((order.cancelled, order.faults.len()), (1, 0));
        // Cancelled before it ever arrived: what comes later doesn't count.
        let order = judged([tomb, asks(1, 7), asks(2, 8), grant(2, 8)], "k");
        assert_eq!((order.grants, order.faults.len()), (1, 0));
        let echo = format!("1.0 [0 127.0.0.1:6] \"ECHO\" \"{}\"", dying(7));
        let order = judged([asks(1, 7), asks(3, 7), asks(2, 8), echo.clone(), asks(4, 7), grant(2, 8)], "k");
        assert_eq!((order.killed, order.faults.len()), (2, 0));
        let order = judged([asks(1, 7), asks(2, 9), asks(3, 8), echo, grant(3, 8)], "k");
        assert_eq!(order.faults.len(), 1, "another process's waiters live on");
    }
}
