//! Stores that break one rule of the waist.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use distlock_runtime::{
    Clock, FencingToken, HolderState, LockKey, LockState,
    backend::{
        AcquireRequest, Attempt, Backend, BackendError, Blocked, Grant, Guarantees, LeaseHandle, Released,
        Renewal, Turn, Warning,
    },
    testkit::Faulty,
};
use fastrand::Rng;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A repeated attempt says "granted" without bringing the lease to its full length.
    RepeatRenews,
    /// Being told of a turn counts as the grant, from the moment of being told.
    InvitationIsConfirmed,
    /// A grant or renewal counts from its reply.
    CountsFromSending,
    /// A release looks whose the lock is.
    ReleaseCompares,
    /// Tokens grow.
    TokensGrow,
    /// A cancelled attempt that arrives late does nothing.
    CancelLeavesTombstone,
}

impl Rule {
    pub(crate) const ALL: [Self; 6] = [
        Self::RepeatRenews,
        Self::InvitationIsConfirmed,
        Self::CountsFromSending,
        Self::ReleaseCompares,
        Self::TokensGrow,
        Self::CancelLeavesTombstone,
    ];
}

#[derive(Debug)]
pub(crate) struct Bent {
    store: Arc<Faulty>,
    rule: Rule,
    random: Mutex<Rng>,
    tokens: AtomicU64,
}

impl Bent {
    pub(crate) fn new(store: Arc<Faulty>, rule: Rule, random: Rng) -> Self {
        let tokens = AtomicU64::new(1_000_000);
        Self { store, rule, random: Mutex::new(random), tokens }
    }

    fn breaks(&self, rule: Rule) -> bool {
        self.rule == rule
    }

    /// Whether the store has given the lock to this owner.
    async fn owns(&self, request: &AcquireRequest) -> Result<bool, BackendError> {
        let holder = self.store.inner().inspect(&request.key).await?.holder;
        Ok(holder.is_some_and(|holder| holder.owner == Some(request.owner)))
    }

    fn grant(&self, sent: distlock_runtime::Moment) -> Grant {
        Grant { sent, token: FencingToken::new(self.tokens.fetch_add(1, Ordering::Relaxed)), tokens: 1 }
    }

    /// When a reply that takes its time was heard.
    async fn heard(&self) -> distlock_runtime::Moment {
        self.some_time().await;
        Clock::Tokio.now()
    }

    async fn some_time(&self) {
        let time = Duration::from_millis(self.random.lock().unwrap().u64(..1_500));
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Backend for Bent {
    fn name(&self) -> &'static str {
        "bent"
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        if self.breaks(Rule::RepeatRenews) && self.owns(request).await? {
            let sent = Clock::Tokio.now();
            self.some_time().await;
            return Ok(Attempt::Granted(self.grant(sent)));
        }
        let grant = match self.store.try_acquire(request).await? {
            Attempt::Granted(grant) => grant,
            other => return Ok(other),
        };
        let sent = if self.breaks(Rule::CountsFromSending) { self.heard().await } else { grant.sent };
        let token = match self.rule {
            Rule::TokensGrow => {
                let recent = grant.token.get().saturating_sub(self.random.lock().unwrap().u64(..20_000));
                FencingToken::new(recent)
            }
            _ => grant.token,
        };
        Ok(Attempt::Granted(Grant { sent, token, ..grant }))
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        let turn = self.store.turn(request, blocked).await?;
        if self.breaks(Rule::InvitationIsConfirmed) && self.owns(request).await? {
            self.some_time().await;
            return Ok(Turn::Granted(self.grant(Clock::Tokio.now())));
        }
        Ok(turn)
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let outcomes = self.store.renew(leases).await;
        if !self.breaks(Rule::CountsFromSending) {
            return outcomes;
        }
        let heard = self.heard().await;
        let bent = |outcome| match outcome {
            Renewal::Renewed { .. } => Renewal::Renewed { sent: heard },
            other => other,
        };
        outcomes.into_iter().map(bent).collect()
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        if self.breaks(Rule::ReleaseCompares) {
            // The request may be late, as any.
            self.some_time().await;
            self.store.force_release(&lease.key).await?;
            return Ok(Released::Confirmed);
        }
        self.store.release(lease, keep).await
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        if self.breaks(Rule::CancelLeavesTombstone) {
            return self.store.inner().cancel(request).await;
        }
        self.store.cancel(request).await
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        self.store.inspect(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        self.store.list(prefix, limit).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        self.store.force_release(key).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.store.ping().await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.store.check().await
    }

    async fn serve(&self) {
        self.store.serve().await;
    }
}
