//! Many in turn.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    task::{JoinError, JoinSet},
    time::{sleep, timeout},
};

use super::{LIMIT, PAUSE};
use crate::{
    contend::{Contender, Held},
    history::{History, Hold, Verdict, monotonic_ns},
    wait,
};

/// Tasks that take one lock in turn, each for about a millisecond, while something happens to the store.
pub struct Contest {
    holds: Arc<Mutex<Vec<Hold>>>,
    tasks: JoinSet<()>,
}

impl Contest {
    /// So many tasks begin, over these clients in turn.
    pub fn begin<C: Contender>(clients: &[Arc<C>], tasks: usize, key: &str, ttl: Duration) -> Self {
        let mut contest = Self { holds: Arc::default(), tasks: JoinSet::new() };
        for number in 0..tasks {
            let locks = clients[number % clients.len()].clone();
            let (holds, owner, key) = (contest.holds.clone(), format!("task-{number}"), key.to_owned());
            contest.tasks.spawn(async move {
                loop {
                    match timeout(LIMIT, turn(&*locks, &owner, &key, ttl)).await {
                        Ok(Ok(Some(hold))) => holds.lock().unwrap_or_else(PoisonError::into_inner).push(hold),
                        Ok(Ok(None)) => {}
                        _ => sleep(PAUSE).await,
                    }
                }
            });
        }
        contest
    }

    /// Waits for so many turns more.
    ///
    /// # Panics
    /// When they don't come within 40 s: nothing goes on any more.
    pub async fn more(&self, turns: usize) {
        let aim = self.turns() + turns;
        wait::until("more turns", LIMIT, async || (self.turns() >= aim).then_some(())).await.unwrap();
    }

    /// How many turns there were.
    pub fn turns(&self) -> usize {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends it, and judges.
    ///
    /// # Panics
    /// When a task did.
    pub async fn end(mut self) -> Verdict {
        // What is in the middle of a turn, or waits for one, doesn't count.
        self.tasks.abort_all();
        while let Some(ended) = self.tasks.join_next().await {
            assert!(ended.as_ref().err().is_none_or(JoinError::is_cancelled), "{ended:?}");
        }
        let mut history = History::new();
        self.holds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
            .for_each(|hold| history.add(hold));
        history.check()
    }
}

/// One turn; `None` if the hold had lapsed as it came.
async fn turn(locks: &impl Contender, owner: &str, key: &str, ttl: Duration) -> anyhow::Result<Option<Hold>> {
    let held = locks.acquire(key, ttl).await?;
    let start_ns = monotonic_ns();
    if !held.is_valid() {
        held.release().await?;
        return Ok(None);
    }
    let token = held.token();
    sleep(Duration::from_millis(1)).await;
    let now = monotonic_ns();
    let definite_end_ns = if held.is_valid() { now } else { start_ns };
    let hold = Hold { owner: owner.to_owned(), key: key.to_owned(), token, start_ns, definite_end_ns };
    // The hold counts whatever becomes of its release.
    let _ = held.release().await;
    Ok(Some(hold))
}
