//! Locks that were given back lately. A replica that takes over may not have heard of it, and the lock would stand there for its whole
//! ttl, held by nobody: so where another server takes the place of the one that was told, it is told again.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::RedisBackend;
use super::spread::all;
use crate::backend::wakeups::jittered;
use crate::backend::{BackendError, BackendErrorKind, LeaseHandle};
use crate::clock::{Clock, Moment, within};
use crate::key::LockKey;

/// How many are remembered: what thousands of tasks give back in the time by which a replica is usually behind.
const MOST: usize = 4096;
/// How many are told at once.
const TOGETHER: usize = 64;
/// How long one try may take.
const TRY: Duration = Duration::from_secs(2);
/// The pause before those that weren't told are told again, more or less.
const PAUSE: Duration = Duration::from_millis(200);

/// The last locks that were given back, oldest first.
pub(super) struct GivenBack {
    given: Mutex<VecDeque<Given>>,
    clock: Clock,
}

#[derive(Clone)]
struct Given {
    lease: LeaseHandle,
    /// From when on the lock may be taken by others, if not at once.
    taken_until: Option<Moment>,
    slot: u16,
    /// Which server was told; `None` if that wasn't known beforehand.
    told: Option<Arc<str>>,
    /// After that nothing of it is left on any server.
    lapses: Moment,
}

impl GivenBack {
    pub(super) fn new(clock: Clock) -> Self {
        Self { given: Mutex::default(), clock }
    }

    fn push(&self, given: Given) {
        let now = self.clock.now();
        let mut all = self.all();
        while all.front().is_some_and(|oldest| all.len() >= MOST || oldest.lapses <= now) {
            all.pop_front();
        }
        all.push_back(given);
    }

    /// Takes out those that were told to another server than the present one of their slot.
    fn take_lost(&self, present: impl Fn(u16) -> Option<Arc<str>>) -> Vec<Given> {
        let now = self.clock.now();
        let mut lost = Vec::new();
        self.all().retain(|given| {
            let elsewhere = present(given.slot).is_some_and(|server| given.told.as_ref() != Some(&server));
            if elsewhere && given.lapses > now {
                lost.push(given.clone());
            }
            !elsewhere && given.lapses > now
        });
        lost
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Given>> {
        // Nothing panics under this lock.
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedisBackend {
    /// The server that will be told at this moment.
    pub(super) fn telling(&self, key: &LockKey) -> Option<Arc<str>> {
        self.given_back.as_ref()?;
        self.connections.told(self.namespace.lock(key).slot())
    }

    /// A lock that is given back to this server, or an attempt at it that is undone: the last that is done under its owner.
    pub(super) fn remember(&self, lease: &LeaseHandle, keep: Option<Duration>, told: Option<Arc<str>>) {
        let Some(given_back) = &self.given_back else { return };
        let slot = self.namespace.lock(&lease.key).slot();
        let now = given_back.clock.now();
        given_back.push(Given {
            taken_until: keep.filter(|keep| !keep.is_zero()).map(|keep| now + keep),
            slot,
            told,
            lapses: now + lease.ttl.as_duration().max(keep.unwrap_or_default()),
            lease: lease.clone(),
        });
    }

    /// Tells other servers when they take over, for as long as it is polled. Returns if none can.
    pub(super) async fn tell_again(&self) {
        let (Some(given_back), Some(mut changes)) = (&self.given_back, self.connections.changes()) else {
            return;
        };
        loop {
            changes.mark_unchanged();
            let mut lost = given_back.take_lost(|slot| self.connections.present(slot));
            if lost.is_empty() {
                if changes.changed().await.is_err() {
                    return;
                }
                continue;
            }
            tracing::debug!(
                count = lost.len(),
                "another redis has taken over: telling it what was given back"
            );
            let mut again = false;
            for some in lost.chunks_mut(TOGETHER) {
                let outcomes =
                    all(some.iter().map(|given| within(TRY, self.tell(given, given_back.clock.now())))).await;
                for (given, outcome) in some.iter_mut().zip(outcomes) {
                    match outcome {
                        Some(Ok(told)) => given.told = Some(told),
                        Some(Err(failure)) if !failure.is_transient() => {
                            tracing::debug!(%failure, "a lock that was given back stays until its ttl is over");
                            continue;
                        }
                        _ => again = true,
                    }
                    given_back.push(given.clone());
                }
            }
            if again {
                tokio::time::sleep(jittered(PAUSE)).await;
            }
        }
    }

    /// Gives the server that was told.
    async fn tell(&self, given: &Given, now: Moment) -> Result<Arc<str>, BackendError> {
        self.connections.reach().await?;
        let told = self.connections.told(given.slot);
        let told = told.filter(|told| self.connections.present(given.slot).as_ref() == Some(told));
        let told = told.ok_or_else(|| {
            BackendError::refused(BackendErrorKind::Unavailable, "the new primary isn't reached yet")
        })?;
        let keep = given.taken_until.map(|until| until.since(now)).filter(|keep| !keep.is_zero());
        self.give_back(&given.lease, keep).await?;
        Ok(told)
    }
}

impl fmt::Debug for GivenBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenBack").field("locks", &self.all().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Mode;
    use crate::token::OwnerToken;
    use crate::ttl::Ttl;

    fn given(number: usize, told: &str, now: Moment, ttl: Duration) -> Given {
        let lease = LeaseHandle {
            key: LockKey::new(format!("k{number}")).unwrap(),
            owner: OwnerToken::random().unwrap(),
            ttl: Ttl::new(ttl).unwrap(),
            mode: Mode::Exclusive,
        };
        Given { lease, taken_until: None, slot: 7, told: Some(told.into()), lapses: now + ttl }
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_are_remembered_for_as_long_as_they_may_stand() {
        let clock = Clock::Tokio;
        let all = GivenBack::new(clock);
        let second = Duration::from_secs(1);
        for number in 0..MOST + 10 {
            all.push(given(number, "a", clock.now(), 5 * second));
        }
        assert_eq!(all.all().len(), MOST);
        assert_eq!(all.all().front().unwrap().lease.key.as_str(), "k10");
        tokio::time::advance(5 * second).await;
        all.push(given(0, "a", clock.now(), 5 * second));
        assert_eq!(all.all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn those_are_lost_that_another_server_was_told() {
        let clock = Clock::Tokio;
        let all = GivenBack::new(clock);
        let second = Duration::from_secs(1);
        all.push(given(1, "a", clock.now(), second));
        all.push(given(2, "a", clock.now(), 5 * second));
        all.push(given(3, "b", clock.now(), 5 * second));
        all.push(Given { told: None, ..given(4, "", clock.now(), 5 * second) });
        tokio::time::advance(2 * second).await;
        assert!(all.take_lost(|_| None).is_empty(), "nobody knows who serves them");
        let lost = all.take_lost(|_| Some("b".into()));
        let keys: Vec<&str> = lost.iter().map(|given| given.lease.key.as_str()).collect();
        assert_eq!(keys, ["k2", "k4"]);
        assert!(all.take_lost(|_| Some("b".into())).is_empty(), "taken out");
    }
}
