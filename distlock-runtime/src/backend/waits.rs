//! The waist's small side door for circles of waiting processes: what those who hold a lock wait for themselves.

use std::fmt;

use async_trait::async_trait;

use super::{BackendError, LeaseHandle};
use crate::key::LockKey;
use crate::token::OwnerToken;

/// Somebody who holds locks and has to wait for another.
#[derive(Clone, Debug)]
pub struct PublishedWait {
    /// Names this wait; random.
    pub id: OwnerToken,
    /// Grows each time that it is published: who sees it grow knows that the wait goes on.
    pub beat: u32,
    /// What is waited for.
    pub key: LockKey,
    /// What is held meanwhile.
    pub under: Vec<LeaseHandle>,
    /// Who it is, for people, without blanks.
    pub who: String,
}

/// What a holder of a lock waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderWait {
    /// The wait.
    pub id: OwnerToken,
    /// How often it was published.
    pub beat: u32,
    /// The acquisition by which it holds the lock that was asked for.
    pub owner: OwnerToken,
    /// What it waits for.
    pub key: LockKey,
    /// Who it is, for people.
    pub who: String,
}

/// Where waits are published, beside the locks that are held meanwhile. What isn't published again is forgotten within seconds.
#[async_trait]
pub trait WaitBoard: fmt::Debug + Send + Sync + 'static {
    /// Publishes a wait, or says that it goes on. At most 100 waits stand beside one lock; more are left out.
    async fn publish(&self, wait: &PublishedWait) -> Result<(), BackendError>;

    /// The wait is over.
    async fn withdraw(&self, wait: &PublishedWait) -> Result<(), BackendError>;

    /// The waits of those who hold this lock at this moment.
    async fn waits_of_holders(&self, key: &LockKey) -> Result<Vec<HolderWait>, BackendError>;
}
