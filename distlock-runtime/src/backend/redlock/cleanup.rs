//! What a node must still be told: an attempt that it may have or get, and that is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;

use crate::backend::redis::RedisBackend;
use crate::backend::{AcquireRequest, Backend as _};
use crate::clock::{Clock, Moment, within};

/// How long one try may take.
const TRY: Duration = Duration::from_secs(2);
/// First and last pause between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long an attempt may be under way to a node, besides the ttl of what it leaves there.
const UNDER_WAY: Duration = Duration::from_secs(60);

struct Job {
    node: Arc<RedisBackend>,
    request: AcquireRequest,
    until: Moment,
}

pub(super) struct Cleanup {
    sender: mpsc::UnboundedSender<Job>,
    inbox: Mutex<mpsc::UnboundedReceiver<Job>>,
    clock: Clock,
}

impl Cleanup {
    pub(super) fn new(clock: Clock) -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        Self { sender, inbox: Mutex::new(inbox), clock }
    }

    /// Cancels an attempt at a node in the background, until the node has answered or everything of it has lapsed.
    pub(super) fn cancel(&self, node: &Arc<RedisBackend>, request: &AcquireRequest) {
        let until = self.clock.now() + request.ttl.as_duration() + UNDER_WAY;
        // Fails only while the backend itself is going away; then the ttl cleans up.
        let _ = self.sender.send(Job { node: node.clone(), request: request.clone(), until });
    }

    /// Works off the jobs; to be polled for as long as the manager lives.
    pub(super) async fn run(&self) {
        let mut inbox = self.inbox.lock().await;
        let mut under_way = JoinSet::new();
        loop {
            tokio::select! {
                job = inbox.recv() => match job {
                    Some(job) => drop(under_way.spawn(perform(job, self.clock))),
                    None => return,
                },
                Some(_) = under_way.join_next() => {}
            }
        }
    }
}

async fn perform(job: Job, clock: Clock) {
    let mut pause = PAUSE.0;
    while clock.now() < job.until {
        if let Some(Ok(())) = within(TRY, job.node.cancel(&job.request)).await {
            return;
        }
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}
