//! Work on many keys: one call for those that a script may take together, all calls at once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::Duration;

use redis::Cmd;
use tokio::time::Sleep;

use super::RedisBackend;
use super::locks::renewals;
use super::script::Script;
use crate::backend::{Applied, BackendError, BackendErrorKind, Renewal};

/// How much later than the first of them a server of a Cluster may answer to renewals that left together, at most.
const LATER: Duration = Duration::from_millis(100);

impl RedisBackend {
    /// These indexes in groups of at most so many, each for one call: one server takes any keys together, a Cluster those of one
    /// slot.
    pub(super) fn groups(
        &self,
        indexes: impl Iterator<Item = usize>,
        most: usize,
        slot: impl Fn(usize) -> u16,
    ) -> Vec<Vec<usize>> {
        let by_slot: Vec<Vec<usize>> = if self.connections.cluster().is_none() {
            vec![indexes.collect()]
        } else {
            let mut slots: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
            indexes.for_each(|index| slots.entry(slot(index)).or_default().push(index));
            slots.into_values().collect()
        };
        by_slot.iter().flat_map(|all| all.chunks(most)).map(<[usize]>::to_vec).collect()
    }

    /// Renews what the indexes stand for, whose shortest lease is `ttl`. A silent server of a Cluster holds up no lease of another one:
    /// its own are left open soon after the others have answered.
    pub(super) async fn renew_groups(
        &self,
        script: &Script,
        groups: Vec<Vec<usize>>,
        ttl: Duration,
        build: &(dyn Fn(&[usize]) -> Cmd + Send + Sync),
    ) -> Vec<(usize, Renewal)> {
        let renewals = groups.iter().map(|group| self.renew_group(script, group, build));
        if self.connections.cluster().is_none() {
            return all(renewals).await.into_iter().flatten().collect();
        }
        let limit = ttl / 8;
        let late = |group: &[usize]| {
            let open = BackendError::unknown("a server of the Cluster was silent for longer than the others");
            group.iter().map(|index| (*index, Renewal::Unknown(open.clone()))).collect()
        };
        let outcomes = all_in_time(renewals, limit, limit.min(LATER)).await;
        let outcomes = groups.iter().zip(outcomes);
        outcomes.flat_map(|(group, outcome)| outcome.unwrap_or_else(|| late(group))).collect()
    }

    async fn renew_group(
        &self,
        script: &Script,
        group: &[usize],
        build: &(dyn Fn(&[usize]) -> Cmd + Send + Sync),
    ) -> Vec<(usize, Renewal)> {
        let several = group.len() > 1 && self.connections.cluster().is_some();
        let reply = if several {
            self.connections.run_now(script, || build(group)).await
        } else {
            self.connections.run(script, || build(group)).await
        };
        // Their slot may be on its way from server to server, some of them here and some there: each by itself can be found.
        if several
            && let Err(failure) = &reply
            && failure.kind() == BackendErrorKind::Unavailable
            && failure.applied() == Applied::No
        {
            let each = |index: &usize| {
                let index = *index;
                async move {
                    let reply = self.connections.run(script, || build(&[index])).await;
                    renewals(1, script.name, reply).map(|renewal| (index, renewal)).collect::<Vec<_>>()
                }
            };
            return all(group.iter().map(each)).await.into_iter().flatten().collect();
        }
        group.iter().copied().zip(renewals(group.len(), script.name, reply)).collect()
    }
}

/// The results of all, in order.
pub(super) async fn all<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|cx| {
        for (future, result) in waiting.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                *result = Some(value);
            }
        }
        if waiting.iter().all(|(_, result)| result.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    waiting.into_iter().filter_map(|(_, result)| result).collect()
}

/// The results of those that are there within `limit`, and within `later` after the first; in order.
async fn all_in_time<T>(
    futures: impl Iterator<Item = impl Future<Output = T>>,
    limit: Duration,
    later: Duration,
) -> Vec<Option<T>> {
    let mut waiting: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    let mut over = pin!(tokio::time::sleep(limit));
    let mut last: Option<Pin<Box<Sleep>>> = None;
    poll_fn(|cx| {
        for (future, result) in waiting.iter_mut().filter(|(_, result)| result.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                *result = Some(value);
            }
        }
        let done = waiting.iter().filter(|(_, result)| result.is_some()).count();
        if done == waiting.len() {
            return Poll::Ready(());
        }
        if done > 0 {
            let last = last.get_or_insert_with(|| Box::pin(tokio::time::sleep(later)));
            ready!(last.as_mut().poll(cx));
            return Poll::Ready(());
        }
        over.as_mut().poll(cx)
    })
    .await;
    waiting.into_iter().map(|(_, result)| result).collect()
}

/// The first that works, or the last failure. At least one is needed.
pub(super) async fn any<T, E>(
    futures: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
) -> Result<T, E> {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|cx| {
        let mut index = 0;
        while index < waiting.len() {
            match waiting[index].as_mut().poll(cx) {
                Poll::Ready(Err(_)) if waiting.len() > 1 => drop(waiting.swap_remove(index)),
                Poll::Ready(outcome) => return Poll::Ready(outcome),
                Poll::Pending => index += 1,
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_that_works_counts_and_a_silent_one_holds_up_nobody() {
        let after = |seconds: u64, outcome: Result<u64, u64>| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            outcome
        };
        let start = tokio::time::Instant::now();
        let outcomes = [after(1, Err(1)), after(2, Ok(2)), after(9, Ok(9))];
        assert_eq!(any(outcomes.into_iter()).await, Ok(2));
        assert_eq!(start.elapsed().as_secs(), 2);
        assert_eq!(any([after(3, Err(3)), after(1, Err(1))].into_iter()).await, Err(3));
        let (limit, later) = (Duration::from_secs(5), Duration::from_secs(2));
        let outcomes = [after(3, Ok(3)), after(9, Ok(9)), after(1, Ok(1))];
        assert_eq!(all_in_time(outcomes.into_iter(), limit, later).await, [Some(Ok(3)), None, Some(Ok(1))]);
        assert_eq!(all_in_time([after(9, Ok(9))].into_iter(), limit, later).await, [None]);
        assert_eq!(all([after(2, Ok(2)), after(1, Err(1))].into_iter()).await, [Ok(2), Err(1)]);
    }
}
