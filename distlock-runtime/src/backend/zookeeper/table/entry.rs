//! One acquisition of this process, as far as is known.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::backend::Blocked;
use crate::backend::zookeeper::call::Call;
use crate::backend::zookeeper::names::Place;
use crate::clock::Moment;
use crate::key::LockKey;

#[derive(Debug)]
pub(in super::super) struct Entry {
    pub(in super::super) key: LockKey,
    /// The session that it was asked in.
    pub(in super::super) session: i64,
    /// The latest call for it.
    pub(super) call: Call,
    pub(in super::super) stage: Stage,
    /// Where it stands, once that is known.
    pub(in super::super) node: Option<Node>,
    /// Since when it has seen what is kept in front of it.
    pub(super) kept_seen: HashMap<String, Moment>,
    /// The node that may stand there in its stead: a conversion was sent.
    pub(in super::super) other: Option<String>,
    pub(super) expires: Moment,
    pub(super) bell: Arc<Notify>,
    pub(super) watch: Option<Watch>,
    /// It was told to wait.
    pub(super) told: bool,
    /// Its last wait ended without a ring.
    pub(super) slept: bool,
    /// When what is kept in front of it is over, which rings no bell.
    pub(super) look_at: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stage {
    /// A call is at it, and has left nothing at the servers.
    Begun,
    /// A node may have been asked for.
    Asked,
    Waiting,
    Held {
        token: u64,
    },
    /// Given back, or lapsed: the node must go.
    Leaving,
}

/// A node of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Node {
    /// The lock's node.
    pub(in super::super) lock: String,
    pub(in super::super) place: Place,
    pub(in super::super) czxid: u64,
    /// The servers' time of its creation, in milliseconds.
    pub(in super::super) ctime: i64,
    /// When its creation was confirmed.
    pub(in super::super) made: Moment,
}

impl Node {
    pub(in super::super) fn path(&self) -> String {
        format!("{}/{}", self.lock, self.place.name)
    }
}

/// Somebody tells when another look is worth it.
#[derive(Debug)]
pub(super) struct Watch {
    pub(super) task: AbortHandle,
    pub(super) blocked: Blocked,
    pub(super) looked: Moment,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What is known of an acquisition when it is asked for.
#[derive(Debug)]
pub(in super::super) enum Known {
    Nothing,
    /// A node may be there.
    Asked,
    Waiting(Node),
    /// The same, and its watch hasn't seen a change since the last look.
    Told(Blocked),
    Held(Node, u64),
}
