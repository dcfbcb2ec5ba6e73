//! Attempts.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use zookeeper_client::Error;

use super::call::Ask;
use super::kept::InFront;
use super::line::{Line, Verdict};
use super::nodes::TRIES;
use super::session::Session;
use super::table::{Known, Node, cancelled};
use super::{Core, error};
use crate::backend::{
    AcquireRequest, Applied, Attempt, BackendError, BackendErrorKind, Blocked, Grant, Mode,
};
use crate::clock::Moment;
use crate::error::Holder;
use crate::token::FencingToken;

/// How often an attempt begins anew under changes of others before it says so.
const ROUNDS: usize = 16;

impl Core {
    /// One attempt.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        request: &AcquireRequest,
        lane: &Handle,
    ) -> Result<Attempt, BackendError> {
        let request = Ask { request, call: self.table().call() };
        let outcome = self.rounds(request, lane).await;
        self.with_table(|table| table.end(request));
        outcome
    }

    async fn rounds(self: &Arc<Self>, request: Ask<'_>, lane: &Handle) -> Result<Attempt, BackendError> {
        let mut open = false;
        for _ in 0..ROUNDS {
            match self.round(request, lane, &mut open).await {
                Ok(Some(attempt)) => return Ok(attempt),
                Ok(None) => {}
                // The connection was lost under the creation: the next round looks for the node.
                Err(error) if open && error.applied() == Applied::Unknown && self.connected().is_none() => {}
                Err(error) if open => return Err(error.with_open_outcome()),
                Err(error) => return Err(error),
            }
        }
        let error =
            BackendError::refused(BackendErrorKind::Unavailable, "the nodes of the lock change all the time");
        Err(if open { error.with_open_outcome() } else { error })
    }

    /// `None` to begin anew. `open` says whether a node of ours may be there.
    async fn round(
        self: &Arc<Self>,
        request: Ask<'_>,
        lane: &Handle,
        open: &mut bool,
    ) -> Result<Option<Attempt>, BackendError> {
        let session = self.session().await?;
        session.check_ttl(request.ttl)?;
        let sent = self.now();
        let known = self.with_table(|table| table.known(request, session.id, sent))?;
        *open = !matches!(known, Known::Nothing);
        let (node, line) = match known {
            Known::Told(blocked) => return Ok(Some(Attempt::Queued(blocked))),
            Known::Held(node, token) => {
                let there = self.confirm(&session, &node.path()).await?;
                return self.granted_again(request, &node, there, token, sent);
            }
            Known::Waiting(node) => {
                let line = self.look(&session, &node.lock).await?;
                (node, line)
            }
            Known::Asked => match self.find(&session, request, &self.names.lock(&request.key)).await? {
                Some(found) => found,
                None => return self.with_table(|table| table.nothing_left(request)).map(|()| None),
            },
            Known::Nothing => {
                let lock = self.names.lock(&request.key);
                // An owner who has the lock enters in front of those who wait.
                if let Mode::Owned { .. } = request.mode
                    && let Some(entered) = self.enter(&session, request, &lock, None, sent, open).await?
                {
                    return Ok(entered);
                }
                if !request.queue
                    && let Some(blocked) = self.in_the_way(&session, &request, &lock).await?
                {
                    return Ok(Some(Attempt::Busy(blocked)));
                }
                *open = true;
                let made = match request.mode {
                    Mode::Permits { limit, .. } => self.make_permits(&session, request, &lock, limit).await,
                    _ => self.make(&session, request, &lock).await,
                };
                *open = made.as_ref().err().is_none_or(|error| error.applied() == Applied::Unknown);
                made?
            }
        };
        self.settle(&session, request, &node, &line, sent, lane).await
    }

    fn granted_again(
        &self,
        request: Ask<'_>,
        node: &Node,
        there: bool,
        token: u64,
        sent: Moment,
    ) -> Result<Option<Attempt>, BackendError> {
        let ttl = request.ttl.as_duration();
        self.with_table(|table| {
            if !there {
                table.hold_gone(request, node);
                return Ok(None);
            }
            match table.renewed(request.owner, ttl, self.clock.now()) {
                true => Ok(Some(granted(sent, token))),
                false => Err(cancelled()),
            }
        })
    }

    /// Who stands in the way of somebody who comes now, found out without leaving a trace. `None`: nobody, as far as that tells.
    async fn in_the_way(
        &self,
        session: &Session,
        request: &AcquireRequest,
        lock: &str,
    ) -> Result<Option<Blocked>, BackendError> {
        let line = self.look(session, lock).await?;
        if line.conflicts(request.mode, None) {
            return Err(BackendError::key_in_use());
        }
        line.check_limit(request.mode)?;
        // Whether what is kept is over, only a node of ours can tell: by the servers' time of its creation.
        let free = line.verdict(request.mode, None) == Verdict::Granted;
        if free || line.places().iter().any(|place| place.kept) {
            return Ok(None);
        }
        self.blocked(session, lock, &line).await.map(Some)
    }

    /// What the look says about a node of ours.
    async fn settle(
        self: &Arc<Self>,
        session: &Session,
        request: Ask<'_>,
        node: &Node,
        line: &Line,
        sent: Moment,
        lane: &Handle,
    ) -> Result<Option<Attempt>, BackendError> {
        let Some(position) = line.position(&node.place.name) else {
            // Somebody took it away: it begins anew at the end of the line.
            return self.with_table(|table| table.nothing_left(request)).map(|()| None);
        };
        if line.conflicts(request.mode, Some(position)) {
            self.withdraw(session, request, node).await?;
            return Err(BackendError::key_in_use());
        }
        if let Err(error) = line.check_limit(request.mode) {
            self.withdraw(session, request, node).await?;
            return Err(error);
        }
        match line.verdict(request.mode, Some(position)) {
            Verdict::Granted => {
                let token = match request.mode {
                    Mode::Owned { .. } => match self.share_token(session, request, node, line).await? {
                        Some(token) => token,
                        None => return Ok(None),
                    },
                    _ => node.czxid,
                };
                if let Mode::Permits { .. } = request.mode
                    && self.table().was_told(request.owner)
                {
                    self.tell_next(session, &request, node);
                }
                match self.with_table(|table| table.held(request, token, self.clock.now())) {
                    true => Ok(Some(granted(sent, token))),
                    false => Err(cancelled().with_open_outcome()),
                }
            }
            verdict => {
                if let Mode::Owned { .. } = request.mode {
                    let mut open = true;
                    let entered =
                        self.enter(session, request, &node.lock, Some((node, line)), sent, &mut open);
                    if let Some(entered) = entered.await? {
                        return Ok(entered);
                    }
                }
                let InFront::Rest(rest) = self.clear_kept(session, node, line.before(Some(position))).await?
                else {
                    return Ok(None);
                };
                // Nobody may be left to remove it in time: who stands next to it does, and the others behind are told.
                let is_next = !matches!(verdict, Verdict::Behind(other) if !other.kept);
                let over = rest.filter(|_| is_next).map(|rest| self.clock.now() + rest);
                self.with_table(|table| table.look_at(request.owner, over));
                if request.queue {
                    return self.queued(session, request, node, line, verdict, lane).await.map(Some);
                }
                let blocked = self.blocked(session, &node.lock, line).await?;
                self.withdraw(session, request, node).await?;
                Ok(Some(Attempt::Busy(blocked)))
            }
        }
    }

    /// Takes an own place back that isn't a hold, unless a later call has it.
    pub(super) async fn withdraw(
        &self,
        session: &Session,
        request: Ask<'_>,
        node: &Node,
    ) -> Result<(), BackendError> {
        let path = node.path();
        for _ in 0..TRIES {
            let Some(live) = self.same_session(session.id).await? else { return Ok(()) };
            // Handed over before a later call can look.
            let deleted =
                self.with_table(|table| table.withdraw(request).map(|()| live.client.delete(&path, None)))?;
            match deleted.await {
                Ok(()) | Err(Error::NoNode) => {
                    return self.with_table(|table| table.nothing_left(request));
                }
                Err(failed) if error::is_open(&failed) => {}
                Err(failed) => return Err(error::of("delete", &failed).with_open_outcome()),
            }
        }
        Err(BackendError::unknown("ZooKeeper gives no answer that could be read (delete)"))
    }

    /// Who is in the way: the first of those that hold.
    pub(super) async fn blocked(
        &self,
        session: &Session,
        lock: &str,
        line: &Line,
    ) -> Result<Blocked, BackendError> {
        let Some(first) = line.places().first() else { return Ok(Blocked::default()) };
        let path = format!("{lock}/{}", first.name);
        let Some((note, _)) = self.note(session, &path).await? else { return Ok(Blocked::default()) };
        let remaining = self.remaining(first.owner, &path, note.length);
        let holder = Holder::new(Some(note.label), Some(remaining)).by(first.owner);
        Ok(Blocked { holder: Some(holder) })
    }

    /// How long a hold still runs unless it is renewed. Of another process' only its length is known.
    pub(super) fn remaining(
        &self,
        owner: crate::token::OwnerToken,
        path: &str,
        length: Duration,
    ) -> Duration {
        let (table, now) = (self.table(), self.clock.now());
        table.remaining(owner, now).or_else(|| table.kept_for(path, now)).unwrap_or(length)
    }
}

pub(super) fn granted(sent: Moment, token: u64) -> Attempt {
    Attempt::Granted(Grant { sent, token: FencingToken::new(token), tokens: 1 })
}
