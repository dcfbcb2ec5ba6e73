//! Who waits in the line, and who tells them that another look is worth it.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::entry::{Stage, Watch};
use super::{LIVE, Table};
use crate::backend::Blocked;
use crate::backend::zookeeper::call::Ask;
use crate::clock::Moment;
use crate::token::OwnerToken;

impl Table {
    /// What rings, and the moment when it is worth looking without.
    pub(in super::super) fn bell(&mut self, owner: OwnerToken, now: Moment) -> Option<(Arc<Notify>, Moment)> {
        let entry = self.entries.get(&owner).filter(|entry| entry.stage == Stage::Waiting)?;
        let bell = (entry.bell.clone(), entry.look_at);
        self.expire_at(owner, now + LIVE);
        Some(bell)
    }

    /// Until then nothing but the bell is worth a look.
    pub(in super::super) fn look_at(&mut self, owner: OwnerToken, moment: Option<Moment>) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.look_at = moment.unwrap_or(Moment::NEVER);
        }
    }

    /// A wait ended, by the bell or not.
    pub(in super::super) fn waited(&mut self, owner: OwnerToken, rung: bool) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.slept = !rung;
        }
    }

    pub(in super::super) fn ring(&mut self, owner: OwnerToken) {
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.watch = None;
            entry.bell.notify_one();
        }
    }

    /// `task` rings the bell when another look is worth it.
    pub(in super::super) fn watched(
        &mut self,
        request: Ask<'_>,
        task: AbortHandle,
        blocked: &Blocked,
        looked: Moment,
    ) {
        let watch = Watch { task, blocked: blocked.clone(), looked };
        if let Some(entry) = self.mine(request).filter(|entry| entry.stage == Stage::Waiting) {
            entry.watch = Some(watch);
            entry.told = true;
        }
    }

    /// Whether it stood in the line for a while, so that somebody may watch it.
    pub(in super::super) fn was_told(&self, owner: OwnerToken) -> bool {
        self.entries.get(&owner).is_some_and(|entry| entry.told)
    }
}
