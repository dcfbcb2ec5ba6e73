//! What the votes of the nodes come to. Pure: no node is asked here.

use crate::backend::{Applied, Attempt, BackendError, BackendErrorKind, Blocked, Grant, Renewal};
use crate::token::FencingToken;

/// A node's answer; `None` if it gave none within its budget.
pub(super) type Vote<T> = Option<Result<T, BackendError>>;

/// How many nodes must agree.
pub(super) const fn quorum(nodes: usize) -> usize {
    nodes / 2 + 1
}

/// What an attempt at all nodes came to.
#[derive(Debug)]
pub(super) enum Election {
    /// A quorum granted it. `granted` are those nodes with the first token that each drew.
    Won { granted: Vec<(usize, FencingToken)> },
    /// Others have it, or so many that nobody got a quorum.
    Busy(Blocked),
    /// Too few nodes answered.
    NoQuorum(BackendError),
}

/// Counts the votes of an attempt.
pub(super) fn elect(votes: &[Vote<Attempt>], addresses: &[String]) -> Election {
    let quorum = quorum(votes.len());
    let granted: Vec<(usize, FencingToken)> = votes
        .iter()
        .enumerate()
        .filter_map(|(node, vote)| match vote {
            Some(Ok(Attempt::Granted(Grant { token, .. }))) => Some((node, *token)),
            _ => None,
        })
        .collect();
    if granted.len() >= quorum {
        return Election::Won { granted };
    }
    let busy = votes.iter().filter_map(|vote| match vote {
        Some(Ok(Attempt::Busy(blocked) | Attempt::Queued(blocked))) => Some(blocked),
        _ => None,
    });
    if granted.len() + busy.clone().count() >= quorum {
        // The one that lets a quorum go first; who holds nothing but a minority is in nobody's way for long.
        let first = busy.min_by_key(|blocked| blocked.remaining().unwrap_or(std::time::Duration::MAX));
        return Election::Busy(first.cloned().unwrap_or_default());
    }
    Election::NoQuorum(no_quorum(votes, addresses, granted.len(), "granted it"))
}

/// The error for too few answers, with every node's vote in its text. A failure that trying again doesn't mend, on so many
/// nodes that there can be no quorum, is that failure.
pub(super) fn no_quorum<T>(
    votes: &[Vote<T>],
    addresses: &[String],
    agreed: usize,
    did: &str,
) -> BackendError {
    let failures = || votes.iter().flatten().filter_map(|vote| vote.as_ref().err());
    let lasting = || failures().filter(|failure| !failure.is_transient());
    if lasting().count() > votes.len() - quorum(votes.len()) {
        let open = failures().any(|failure| failure.applied() == Applied::Unknown);
        let failure = lasting().next().expect("there are several").clone();
        return if open || agreed > 0 { failure.with_open_outcome() } else { failure };
    }
    let listed = votes.iter().zip(addresses).map(|(vote, address)| match vote {
        None => format!("{address}: no answer in time"),
        Some(Ok(_)) => format!("{address}: answered"),
        Some(Err(failure)) => format!("{address}: {failure}"),
    });
    let text = format!(
        "{agreed} of {} nodes {did}, {} are needed ({})",
        votes.len(),
        quorum(votes.len()),
        listed.collect::<Vec<_>>().join("; ")
    );
    let refused = BackendError::refused(BackendErrorKind::NoQuorum, text);
    let certain = agreed == 0
        && votes.iter().all(|vote| matches!(vote, Some(Err(failure)) if failure.applied() == Applied::No));
    if certain { refused } else { refused.with_open_outcome() }
}

/// The fencing tokens of a grant: the quorum's largest, and which of the nodes that granted it must be raised to the end of
/// the block before the grant counts.
///
/// Any two quorums share a node. Were it not raised, the next grant could find a quorum whose counters are all smaller.
pub(super) fn tokens(
    granted: &[(usize, FencingToken)],
    block: u32,
) -> (FencingToken, FencingToken, Vec<usize>) {
    let first = granted.iter().map(|(_, token)| *token).max().expect("a quorum isn't empty");
    let last = FencingToken::new(first.get() + u64::from(block.max(1)) - 1);
    let behind = granted.iter().filter(|(_, token)| *token != first).map(|(node, _)| *node).collect();
    (first, last, behind)
}

/// What the votes on one lease's renewal come to.
pub(super) fn renewed<'a>(
    votes: impl Iterator<Item = Option<&'a Renewal>> + Clone,
    sent: crate::clock::Moment,
) -> Renewal {
    let nodes = votes.clone().count();
    let quorum = quorum(nodes);
    let count = |wanted: fn(&Renewal) -> bool| votes.clone().flatten().filter(|vote| wanted(vote)).count();
    let confirmed = count(|vote| matches!(vote, Renewal::Renewed { .. }));
    let gone = count(|vote| matches!(vote, Renewal::Gone));
    if confirmed >= quorum {
        Renewal::Renewed { sent }
    } else if gone > nodes - quorum {
        Renewal::Gone
    } else {
        Renewal::Unknown(
            BackendError::refused(
                BackendErrorKind::NoQuorum,
                format!("{confirmed} of {nodes} nodes renewed the lease, {quorum} are needed"),
            )
            .with_open_outcome(),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::Moment;
    use crate::error::Holder;

    fn granted(token: u64) -> Vote<Attempt> {
        let grant = Grant { sent: Moment::from_nanos(0), token: FencingToken::new(token), tokens: 1 };
        Some(Ok(Attempt::Granted(grant)))
    }

    fn busy(seconds: u64) -> Vote<Attempt> {
        let holder = Holder::new(Some("other".into()), Some(Duration::from_secs(seconds)));
        Some(Ok(Attempt::Busy(Blocked { holder: Some(holder) })))
    }

    fn down() -> Vote<Attempt> {
        Some(Err(BackendError::refused(BackendErrorKind::Unavailable, "refused")))
    }

    fn denied() -> Vote<Attempt> {
        Some(Err(BackendError::refused(BackendErrorKind::Permission, "no")))
    }

    fn addresses(nodes: usize) -> Vec<String> {
        (0..nodes).map(|node| format!("node{node}")).collect()
    }

    #[test]
    fn a_quorum_wins_and_a_tie_is_busy() {
        let election = |votes: &[Vote<Attempt>]| elect(votes, &addresses(votes.len()));
        assert!(
            matches!(election(&[granted(1), granted(2), busy(1)]), Election::Won { granted } if granted.len() == 2)
        );
        assert!(matches!(election(&[granted(1), busy(9), busy(5)]), Election::Busy(blocked)
            if blocked.remaining() == Some(Duration::from_secs(5))));
        assert!(matches!(election(&[granted(1), busy(9), None]), Election::Busy(_)));
        assert!(matches!(election(&[granted(1), granted(1), None, None, None]), Election::NoQuorum(_)));
        assert!(matches!(election(&[granted(1), granted(1), granted(1), None, None]), Election::Won { .. }));
    }

    #[test]
    fn what_is_missing_says_every_vote_and_whether_something_may_be_left() {
        let error = |votes: &[Vote<Attempt>]| match elect(votes, &addresses(votes.len())) {
            Election::NoQuorum(error) => error,
            other => panic!("{other:?}"),
        };
        let open = error(&[granted(1), down(), None]);
        assert_eq!((open.kind(), open.applied()), (BackendErrorKind::NoQuorum, Applied::Unknown));
        let text = open.to_string();
        for part in ["1 of 3 nodes granted it, 2 are needed", "node1: refused", "node2: no answer in time"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(error(&[down(), down(), down()]).applied(), Applied::No);
        let lasting = error(&[denied(), denied(), down()]);
        assert_eq!((lasting.kind(), lasting.applied()), (BackendErrorKind::Permission, Applied::No));
        assert_eq!(error(&[denied(), down(), down()]).kind(), BackendErrorKind::NoQuorum);
    }

    #[test]
    fn renewals_need_a_quorum_and_a_loss_needs_that_there_can_be_none() {
        let sent = Moment::from_nanos(7);
        let yes = Renewal::Renewed { sent };
        let unknown = Renewal::Unknown(BackendError::unknown("?"));
        let judge = |votes: &[Option<&Renewal>]| renewed(votes.iter().copied(), sent);
        let gone = Renewal::Gone;
        assert!(matches!(judge(&[Some(&yes), Some(&yes), None]), Renewal::Renewed { .. }));
        assert!(matches!(judge(&[Some(&yes), Some(&gone), None]), Renewal::Unknown(_)));
        assert!(matches!(judge(&[Some(&yes), Some(&gone), Some(&unknown)]), Renewal::Unknown(_)));
        assert!(matches!(judge(&[Some(&yes), Some(&gone), Some(&gone)]), Renewal::Gone));
    }

    /// Grants one after the other, each at a random quorum whose nodes' counters are durable: are the tokens increasing?
    fn tokens_increase(seed: u64, nodes: usize, write_back: bool) -> bool {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut counters: Vec<u64> = (0..nodes).map(|_| random.u64(1..20)).collect();
        let mut highest = 0;
        for _ in 0..12 {
            // Nodes count other locks of the same slot as well.
            for counter in &mut counters {
                *counter += random.u64(0..3);
            }
            let mut order: Vec<usize> = (0..nodes).collect();
            random.shuffle(&mut order);
            let answering = random.usize(quorum(nodes)..=nodes);
            let block = random.u32(1..4);
            let granted: Vec<(usize, FencingToken)> = order[..answering]
                .iter()
                .map(|node| {
                    let first = counters[*node] + 1;
                    counters[*node] += u64::from(block);
                    (*node, FencingToken::new(first))
                })
                .collect();
            let (first, last, behind) = tokens(&granted, block);
            if write_back {
                for node in behind {
                    counters[node] = counters[node].max(last.get());
                }
            }
            if first.get() <= highest {
                return false;
            }
            highest = last.get();
        }
        true
    }

    #[test]
    fn tokens_increase_over_quorums_only_with_the_write_back() {
        for nodes in [3, 5, 7] {
            let violated =
                |write_back| (0..20_000).filter(|seed| !tokens_increase(*seed, nodes, write_back)).count();
            assert_eq!(violated(true), 0, "{nodes} nodes");
            assert!(violated(false) > 100, "{nodes} nodes: the model catches a grant without the write-back");
        }
    }
}
