//! Attempts, renewals and releases on all nodes.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::ask::{ask_all, attempt_budget};
use super::ballot::{self, Election, Vote};
use super::{RedlockBackend, Sighting};
use crate::backend::{
    AcquireRequest, Applied, Attempt, Backend as _, BackendError, BackendErrorKind, Grant, LeaseHandle, Mode,
    Released, Renewal,
};
use crate::token::{FencingToken, OwnerToken};

/// How long calls wait that aren't attempts: for the slowest node that is needed.
const PATIENCE: Duration = Duration::from_secs(2);

impl RedlockBackend {
    pub(super) fn quorum(&self) -> usize {
        ballot::quorum(self.nodes.len())
    }

    pub(super) async fn attempt(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        if request.is_fair() {
            return Err(unsupported(request.mode));
        }
        let plain = AcquireRequest { queue: false, ..request.clone() };
        let budget = self.node_timeout.unwrap_or_else(|| attempt_budget(request.ttl.as_duration()));
        let sent = self.clock.now();
        let mut attempt = Under::way(self, &plain);
        let mut votes =
            ask_all(budget, self.nodes.iter().map(|node| node.try_acquire(&plain)), |_| false).await;
        self.leave_out_the_restarted(&mut votes, budget).await;
        attempt.heard(&votes);
        match ballot::elect(&votes, &self.addresses) {
            Election::Won { granted } => {
                let (token, last, behind) = ballot::tokens(&granted, request.tokens);
                self.write_back(&plain, last, &granted, &behind, budget).await?;
                attempt.won();
                Ok(Attempt::Granted(Grant { sent, token, tokens: request.tokens.max(1) }))
            }
            Election::Busy(blocked) => {
                // What was granted is in the way of whoever can get a quorum.
                let left = attempt.withdraw(budget).await;
                if left && request.queue {
                    // Not gone without a trace: whoever gives up now has to cancel.
                    return Ok(Attempt::Queued(blocked));
                }
                if left {
                    self.nodes.iter().for_each(|node| self.cleanup.cancel(node, request));
                }
                Ok(Attempt::Busy(blocked))
            }
            Election::NoQuorum(failure) => {
                attempt.withdraw(budget).await;
                Err(failure)
            }
        }
    }

    /// Makes a quorum know the last token of the block, before anybody gets the first.
    async fn write_back(
        &self,
        request: &AcquireRequest,
        last: FencingToken,
        granted: &[(usize, FencingToken)],
        behind: &[usize],
        budget: Duration,
    ) -> Result<(), BackendError> {
        let know = granted.len() - behind.len();
        let wanted = self.quorum().saturating_sub(know);
        if wanted == 0 {
            return Ok(());
        }
        let calls = behind.iter().map(|node| self.nodes[*node].raise(&request.key, last));
        let raised = |votes: &[Vote<()>]| votes.iter().filter(|vote| matches!(vote, Some(Ok(())))).count();
        let votes = ask_all(budget, calls, |votes| raised(votes) >= wanted).await;
        if raised(&votes) >= wanted {
            return Ok(());
        }
        let addresses: Vec<String> = behind.iter().map(|node| self.addresses[*node].clone()).collect();
        let failure = ballot::no_quorum(&votes, &addresses, raised(&votes), "confirmed the fencing token");
        Err(failure.with_open_outcome())
    }

    pub(super) async fn renew_all(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let shortest = leases.iter().map(|lease| lease.ttl.as_duration()).min().unwrap_or(PATIENCE);
        let sent = self.clock.now();
        let calls = self.nodes.iter().map(async |node| Ok(node.renew(leases).await));
        let judge = |votes: &[Vote<Vec<Renewal>>], index: usize| {
            let votes = votes.iter().map(|vote| match vote {
                Some(Ok(renewals)) => renewals.get(index),
                _ => None,
            });
            ballot::renewed(votes, sent)
        };
        let decided = |votes: &[Vote<Vec<Renewal>>]| {
            votes.iter().flatten().count() >= self.quorum()
                && (0..leases.len()).all(|index| !matches!(judge(votes, index), Renewal::Unknown(_)))
        };
        let votes = ask_all((shortest / 6).min(PATIENCE), calls, decided).await;
        (0..leases.len()).map(|index| judge(&votes, index)).collect()
    }

    pub(super) async fn give_back(
        &self,
        lease: &LeaseHandle,
        keep: Option<Duration>,
    ) -> Result<Released, BackendError> {
        let request = attempt_of(lease);
        let silent = self.silent().remove(&lease.owner).unwrap_or_default();
        let calls = self.nodes.iter().map(|node| node.release(lease, keep));
        let count = |votes: &[Vote<Released>], wanted: Released| {
            votes.iter().filter(|vote| matches!(vote, Some(Ok(released)) if *released == wanted)).count()
        };
        let quorum = self.quorum();
        let decided = |votes: &[Vote<Released>]| {
            count(votes, Released::Confirmed) >= quorum
                || count(votes, Released::NotHeld) > self.nodes.len() - quorum
        };
        let votes = ask_all(PATIENCE, calls, decided).await;
        if keep.is_none() {
            for (index, (node, vote)) in self.nodes.iter().zip(&votes).enumerate() {
                if !matches!(vote, Some(Ok(_))) || silent.contains(&index) {
                    self.cleanup.cancel(node, &request);
                }
            }
        }
        if count(&votes, Released::Confirmed) >= quorum {
            Ok(Released::Confirmed)
        } else if count(&votes, Released::NotHeld) > self.nodes.len() - quorum {
            Ok(Released::NotHeld)
        } else {
            let confirmed = count(&votes, Released::Confirmed);
            let failure = ballot::no_quorum(&votes, &self.addresses, confirmed, "confirmed the release");
            Err(failure.with_open_outcome())
        }
    }

    pub(super) async fn undo(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        self.silent().remove(&request.owner);
        let votes = ask_all(PATIENCE, self.nodes.iter().map(|node| node.cancel(request)), |_| false).await;
        self.clean_the_rest(&votes, request);
        let agreed = votes.iter().filter(|vote| matches!(vote, Some(Ok(())))).count();
        if agreed >= self.quorum() {
            return Ok(());
        }
        Err(ballot::no_quorum(&votes, &self.addresses, agreed, "took the cancel").with_open_outcome())
    }

    fn clean_the_rest<T>(&self, votes: &[Vote<T>], request: &AcquireRequest) {
        for (node, vote) in self.nodes.iter().zip(votes) {
            if !matches!(vote, Some(Ok(_))) {
                self.cleanup.cancel(node, request);
            }
        }
    }

    /// Takes the votes of nodes away that restarted less than `restart_delay` ago.
    async fn leave_out_the_restarted(&self, votes: &mut [Vote<Attempt>], budget: Duration) {
        let Some(delay) = self.restart_delay else { return };
        let now = self.clock.now();
        let changed: Vec<usize> = {
            let recent = self.recent();
            let differs = |(index, sighting): (usize, &Sighting)| {
                (sighting.connection != self.nodes[index].connection()).then_some(index)
            };
            recent.iter().enumerate().filter_map(differs).collect()
        };
        if !changed.is_empty() {
            let calls = changed.iter().map(|index| self.nodes[*index].uptime());
            let uptimes = ask_all(budget, calls, |_| false).await;
            let mut recent = self.recent();
            for (index, uptime) in changed.into_iter().zip(uptimes) {
                // Who doesn't say counts as restarted just now, and is asked again.
                recent[index] = match uptime {
                    Some(Ok(uptime)) => Sighting {
                        connection: self.nodes[index].connection(),
                        counts_from: now + delay.saturating_sub(uptime),
                    },
                    _ => Sighting { connection: 0, counts_from: now + delay },
                };
            }
        }
        let recent = self.recent();
        for ((vote, sighting), address) in votes.iter_mut().zip(recent.iter()).zip(&self.addresses) {
            if sighting.counts_from > now && matches!(vote, Some(Ok(Attempt::Granted(_)))) {
                let text = format!(
                    "redis at {address} restarted less than restart_delay ago: its vote doesn't count"
                );
                *vote =
                    Some(Err(BackendError::refused(BackendErrorKind::Unavailable, text).with_open_outcome()));
            }
        }
    }

    pub(super) fn silent(&self) -> MutexGuard<'_, std::collections::HashMap<OwnerToken, Vec<usize>>> {
        // Nothing panics under this lock.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, Vec<Sighting>> {
        // Nothing panics under this lock.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was asked for that isn't a plain lock.
fn unsupported(mode: Mode) -> BackendError {
    let (what, why) = match mode {
        Mode::Exclusive => ("fair locks", "order"),
        Mode::Read | Mode::Write => ("read/write locks", "holders"),
        Mode::Owned { .. } => ("locks of explicit owners", "holders"),
        Mode::Permits { .. } => ("semaphores", "holders"),
    };
    BackendError::refused(
        BackendErrorKind::Unsupported,
        format!(
            "redlock has no {what}, since its nodes know nothing of each other's {why}: use one Redis beside it"
        ),
    )
}

fn attempt_of(lease: &LeaseHandle) -> AcquireRequest {
    AcquireRequest {
        key: lease.key.clone(),
        owner: lease.owner,
        ttl: lease.ttl,
        mode: lease.mode,
        fair: false,
        queue: false,
        tokens: 1,
    }
}

/// An attempt from its first command until its outcome is known. Dropped before, the engine cancels it on all nodes.
struct Under<'a> {
    backend: &'a RedlockBackend,
    request: &'a AcquireRequest,
    granted: Vec<usize>,
    silent: Vec<usize>,
}

impl<'a> Under<'a> {
    fn way(backend: &'a RedlockBackend, request: &'a AcquireRequest) -> Self {
        Self { backend, request, granted: Vec::new(), silent: Vec::new() }
    }

    fn heard(&mut self, votes: &[Vote<Attempt>]) {
        for (node, vote) in votes.iter().enumerate() {
            match vote {
                Some(Ok(Attempt::Granted(_))) => self.granted.push(node),
                Some(Ok(_)) => {}
                Some(Err(failure)) if failure.applied() == Applied::No => {}
                None | Some(Err(_)) => self.silent.push(node),
            }
        }
    }

    /// The grant stands. Nodes that didn't answer may have it too, or get it later: its release tells them.
    fn won(self) {
        if !self.silent.is_empty() {
            self.backend.silent().insert(self.request.owner, self.silent);
        }
    }

    /// Gives back what was granted. Whether something may be left, which a repeat finds again and a cancel takes away.
    async fn withdraw(self, budget: Duration) -> bool {
        let lease = self.request.lease();
        let calls = self.granted.iter().map(|node| self.backend.nodes[*node].release(&lease, None));
        let votes = ask_all(budget, calls, |_| false).await;
        !self.silent.is_empty() || votes.iter().any(|vote| !matches!(vote, Some(Ok(_))))
    }
}
