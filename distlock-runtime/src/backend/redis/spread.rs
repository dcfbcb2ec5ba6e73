//! Work on many keys: one call for those that a script may take together, all calls at once.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use redis::Cmd;

use super::RedisBackend;
use super::locks::renewals;
use super::script::Script;
use crate::backend::{Applied, BackendErrorKind, Renewal};

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

    /// Renews what the indexes stand for.
    pub(super) async fn renew_groups(
        &self,
        script: &Script,
        groups: Vec<Vec<usize>>,
        build: &(dyn Fn(&[usize]) -> Cmd + Send + Sync),
    ) -> Vec<(usize, Renewal)> {
        let outcomes = all(groups.iter().map(|group| self.renew_group(script, group, build))).await;
        outcomes.into_iter().flatten().collect()
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
