//! Asking all nodes at once, each within a budget.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use super::ballot::Vote;
use crate::backend::BackendError;

/// The longest that an attempt waits for a node, unless the options say otherwise.
const LONGEST: Duration = Duration::from_millis(50);

/// How long an attempt waits for each node: 5 % of the ttl, at most 50 ms.
pub(super) fn attempt_budget(ttl: Duration) -> Duration {
    (ttl / 20).min(LONGEST)
}

/// Polls all of them until each has answered, the votes are `enough`, or the time is over. Those that haven't answered are
/// dropped, and their votes are `None`.
pub(super) async fn ask_all<T, F>(
    budget: Duration,
    calls: impl Iterator<Item = F>,
    enough: impl Fn(&[Vote<T>]) -> bool,
) -> Vec<Vote<T>>
where
    F: Future<Output = Result<T, BackendError>>,
{
    let mut calls: Vec<Option<Pin<Box<F>>>> = calls.map(|call| Some(Box::pin(call))).collect();
    let mut votes: Vec<Vote<T>> = calls.iter().map(|_| None).collect();
    let mut timer = pin!(tokio::time::sleep(budget));
    poll_fn(|cx| {
        for (call, vote) in calls.iter_mut().zip(&mut votes) {
            if let Some(polled) = call
                && let Poll::Ready(answer) = polled.as_mut().poll(cx)
            {
                *vote = Some(answer);
                *call = None;
            }
        }
        if votes.iter().all(Option::is_some) || enough(&votes) {
            return Poll::Ready(());
        }
        timer.as_mut().poll(cx)
    })
    .await;
    votes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    async fn after(ms: u64) -> Result<u64, BackendError> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_with_the_last_answer_with_enough_or_with_the_budget() {
        let second = Duration::from_secs(1);
        let took = async |calls: &[u64], enough: fn(&[Vote<u64>]) -> bool| {
            let start = Clock::Tokio.now();
            let votes = ask_all(second, calls.iter().map(|ms| after(*ms)), enough).await;
            let answered: Vec<bool> = votes.iter().map(Option::is_some).collect();
            (answered, (Clock::Tokio.now() - start).as_millis())
        };
        assert_eq!(took(&[5, 90, 20], |_| false).await, (vec![true, true, true], 90));
        assert_eq!(took(&[5, 9000, 20], |_| false).await, (vec![true, false, true], 1000));
        let two = |votes: &[Vote<u64>]| votes.iter().flatten().count() >= 2;
        assert_eq!(took(&[5, 9000, 20], two).await, (vec![true, false, true], 20));
    }

    #[test]
    fn an_attempt_waits_for_a_twentieth_of_the_ttl_and_50_ms_at_most() {
        assert_eq!(attempt_budget(Duration::from_millis(400)), Duration::from_millis(20));
        assert_eq!(attempt_budget(Duration::from_secs(30)), LONGEST);
    }
}
