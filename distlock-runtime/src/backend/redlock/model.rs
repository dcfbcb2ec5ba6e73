//! All that three nodes and two clients can do, looked through by a model checker (stateright): in every order, with lost messages and
//! replies, slow attempts, lapsing leases and restarting nodes. The decisions are those of `ballot`.
//!
//! Time is left out: a lease may lapse at any moment from which on its client doesn't count on it, and an attempt during which one
//! lapsed was too slow to count.

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use super::ballot::{self, Election, Vote};
use crate::backend::{Attempt, BackendError, Blocked, Grant};
use crate::clock::Moment;
use crate::token::FencingToken;

const NODES: usize = 3;
const CLIENTS: usize = 2;
/// How many attempts each client makes.
const ATTEMPTS: [u8; CLIENTS] = [1, 2];
/// How many messages are lost, leases lapse under an attempt, or nodes restart, in all.
const FAULTS: u8 = 2;
/// An attempt that is over.
const OVER: Who = (0, 0);

/// Redlock, or what is left of it without one of its rules.
#[derive(Clone, Copy, Debug)]
struct Redlock {
    write_back: bool,
    restart_delay: bool,
}

/// A client, and which of its attempts.
type Who = (usize, u8);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Node {
    counter: u8,
    holder: Option<Who>,
    /// Attempts that were alive when the node restarted: its vote doesn't count before they are over.
    mute_for: Vec<Who>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Open,
    Lost,
    Granted(u8),
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Asking([Answer; NODES]),
    /// So many nodes know the token; those that are `open` were sent it and haven't answered.
    Raising {
        token: u8,
        know: usize,
        open: Vec<usize>,
    },
    Holding,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Client {
    phase: Phase,
    attempt: u8,
    /// A lease of this attempt has lapsed already.
    late: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    /// The largest token that was given out.
    highest: u8,
    grants: u8,
    faults: u8,
    /// A token was given out that isn't larger than all before.
    fell: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Start(usize),
    /// A node answers an attempt. What is left there of an attempt that is over has lapsed, or been given back.
    Answer(usize, usize),
    /// What is left of an attempt that is over is still in the way.
    Busy(usize, usize),
    /// It does, and nobody hears of it.
    AnswerIsLost(usize, usize),
    /// It is never asked.
    AskIsLost(usize, usize),
    Raise(usize, usize),
    RaiseIsLost(usize, usize),
    /// The client's time is over, or it gives the lock back.
    End(usize),
    /// The lease on a node lapses before the attempt has come to anything.
    Lapse(usize),
    Restart(usize),
}

impl Step {
    fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::AnswerIsLost(..)
                | Self::AskIsLost(..)
                | Self::RaiseIsLost(..)
                | Self::Lapse(_)
                | Self::Restart(_)
        )
    }
}

impl State {
    fn alive(&self, (client, attempt): Who) -> bool {
        self.clients[client].attempt == attempt && self.clients[client].phase != Phase::Idle
    }

    /// The node's part of an attempt.
    fn ask(&mut self, client: usize, node: usize) -> Answer {
        let who = (client, self.clients[client].attempt);
        let alive = self.nodes[node].holder.is_some_and(|holder| self.alive(holder));
        let mute = self.nodes[node].mute_for.iter().any(|other| self.alive(*other));
        let node = &mut self.nodes[node];
        match node.holder {
            Some(other) if other != who && alive => Answer::Busy,
            _ => {
                node.holder = Some(who);
                node.counter += 1;
                if mute { Answer::Lost } else { Answer::Granted(node.counter) }
            }
        }
    }

    /// One form for states that differ in nothing that counts.
    fn forget_what_is_over(&mut self) {
        for client in &mut self.clients {
            client.late &= client.phase != Phase::Idle;
        }
        for node in 0..NODES {
            let mut mute_for = std::mem::take(&mut self.nodes[node].mute_for);
            mute_for.retain(|who| self.alive(*who));
            self.nodes[node].mute_for = mute_for;
            if self.nodes[node].holder.is_some_and(|holder| !self.alive(holder)) {
                self.nodes[node].holder = Some(OVER);
            }
        }
    }

    fn hold(&mut self, client: usize, token: u8) {
        // A lease that lapsed meanwhile: the attempt took longer than the ttl, and its deadline counts from its start.
        if self.clients[client].late {
            self.clients[client].phase = Phase::Idle;
            return;
        }
        self.clients[client].phase = Phase::Holding;
        self.fell |= token <= self.highest;
        self.highest = self.highest.max(token);
        self.grants += 1;
    }
}

impl Redlock {
    /// What becomes of an attempt when every node has answered or will never.
    fn decide(self, state: &mut State, client: usize) {
        let Phase::Asking(answers) = &state.clients[client].phase else { return };
        if answers.contains(&Answer::Open) {
            return;
        }
        let votes: Vec<Vote<Attempt>> = answers.iter().map(|answer| vote(*answer)).collect();
        let addresses = vec![String::new(); NODES];
        let Election::Won { granted } = ballot::elect(&votes, &addresses) else {
            state.clients[client].phase = Phase::Idle;
            return;
        };
        let (token, _, behind) = ballot::tokens(&granted, 1);
        let token = u8::try_from(token.get()).expect("there are few");
        let know = granted.len() - behind.len();
        if !self.write_back || know >= ballot::quorum(NODES) {
            state.hold(client, token);
        } else {
            state.clients[client].phase = Phase::Raising { token, know, open: behind };
        }
    }
}

fn vote(answer: Answer) -> Vote<Attempt> {
    match answer {
        Answer::Granted(token) => {
            let token = FencingToken::new(token.into());
            Some(Ok(Attempt::Granted(Grant { sent: Moment::from_nanos(0), token, tokens: 1 })))
        }
        Answer::Busy => Some(Ok(Attempt::Busy(Blocked { holder: None }))),
        Answer::Lost => Some(Err(BackendError::unknown("lost"))),
        Answer::Open => None,
    }
}

impl Model for Redlock {
    type State = State;
    type Action = Step;

    /// Counters as other locks of the slot have left them.
    fn init_states(&self) -> Vec<State> {
        [[0, 0, 0], [2, 0, 0]]
            .into_iter()
            .map(|counters| State {
                nodes: counters.map(|counter| Node { counter, ..Node::default() }),
                clients: [const { Client { phase: Phase::Idle, attempt: 0, late: false } }; CLIENTS],
                highest: 0,
                grants: 0,
                faults: 0,
                fell: false,
            })
            .collect()
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (client, now) in state.clients.iter().enumerate() {
            match &now.phase {
                Phase::Idle if now.attempt < ATTEMPTS[client] => steps.push(Step::Start(client)),
                Phase::Idle => {}
                Phase::Asking(answers) => {
                    for node in (0..NODES).filter(|node| answers[*node] == Answer::Open) {
                        if state.nodes[node].holder.is_some_and(|holder| !state.alive(holder)) {
                            steps.push(Step::Busy(client, node));
                        }
                        steps.extend([
                            Step::Answer(client, node),
                            Step::AnswerIsLost(client, node),
                            Step::AskIsLost(client, node),
                        ]);
                    }
                }
                Phase::Raising { open, .. } => {
                    let both = |node: &usize| [Step::Raise(client, *node), Step::RaiseIsLost(client, *node)];
                    steps.extend(open.iter().flat_map(both));
                }
                Phase::Holding => steps.push(Step::End(client)),
            }
        }
        if state.faults == FAULTS {
            steps.retain(|step| !step.is_fault());
            return;
        }
        for (place, node) in state.nodes.iter().enumerate() {
            let Some(holder) = node.holder.filter(|holder| state.alive(*holder)) else { continue };
            steps.push(Step::Restart(place));
            if state.clients[holder.0].phase != Phase::Holding {
                steps.push(Step::Lapse(place));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        state.faults += u8::from(step.is_fault());
        match step {
            Step::Start(client) => {
                let attempt = state.clients[client].attempt + 1;
                state.clients[client] =
                    Client { phase: Phase::Asking([Answer::Open; NODES]), attempt, late: false };
            }
            Step::Answer(client, node)
            | Step::Busy(client, node)
            | Step::AnswerIsLost(client, node)
            | Step::AskIsLost(client, node) => {
                let answer = match step {
                    Step::Busy(..) => Answer::Busy,
                    Step::AskIsLost(..) => Answer::Lost,
                    Step::AnswerIsLost(..) => {
                        state.ask(client, node);
                        Answer::Lost
                    }
                    _ => state.ask(client, node),
                };
                if let Phase::Asking(answers) = &mut state.clients[client].phase {
                    answers[node] = answer;
                }
                self.decide(&mut state, client);
            }
            Step::Raise(client, node) | Step::RaiseIsLost(client, node) => {
                let Phase::Raising { token, know, open } = &mut state.clients[client].phase else {
                    return None;
                };
                open.retain(|other| *other != node);
                let arrived = matches!(step, Step::Raise(..));
                *know += usize::from(arrived);
                let (token, enough, over) = (*token, *know >= ballot::quorum(NODES), open.is_empty());
                if arrived {
                    state.nodes[node].counter = state.nodes[node].counter.max(token);
                }
                if enough {
                    state.hold(client, token);
                } else if over {
                    state.clients[client].phase = Phase::Idle;
                }
            }
            Step::End(client) => state.clients[client].phase = Phase::Idle,
            Step::Lapse(node) => {
                let (client, _) = state.nodes[node].holder.take()?;
                state.clients[client].late = true;
            }
            Step::Restart(node) => {
                let alive = |client: usize| (client, state.clients[client].attempt);
                let alive: Vec<Who> = (0..CLIENTS).map(alive).filter(|who| state.alive(*who)).collect();
                let node = &mut state.nodes[node];
                node.holder = None;
                if self.restart_delay {
                    node.mute_for = alive;
                }
            }
        }
        state.forget_what_is_over();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one holder", |_, state: &State| {
                state.clients.iter().filter(|client| client.phase == Phase::Holding).count() <= 1
            }),
            Property::always("tokens increase", |_, state: &State| !state.fell),
            Property::sometimes("every attempt may be granted", |_, state: &State| {
                state.grants == ATTEMPTS.iter().sum::<u8>()
            }),
        ]
    }
}

/// Which properties have an example, or a counterexample: of all states, or until the first counterexample.
fn discoveries(model: Redlock) -> Vec<&'static str> {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!("{model:?}: {} states", checker.unique_state_count());
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    found.sort_unstable();
    found
}

#[test]
fn every_order_of_events_keeps_one_holder_and_growing_tokens() {
    let whole = Redlock { write_back: true, restart_delay: true };
    assert_eq!(discoveries(whole), ["every attempt may be granted"]);
}

#[test]
fn the_checker_finds_what_each_rule_is_for() {
    let without_write_back = discoveries(Redlock { write_back: false, restart_delay: true });
    assert!(without_write_back.contains(&"tokens increase"), "{without_write_back:?}");
    let without_delay = discoveries(Redlock { write_back: true, restart_delay: false });
    assert!(without_delay.contains(&"one holder"), "{without_delay:?}");
}
