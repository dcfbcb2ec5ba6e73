//! Which call meets which fault.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::BackendErrorKind;

/// A kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Call {
    /// [`Backend::cancel`](crate::backend::Backend::cancel)
    Cancel,
    /// [`RecordStore::charge`](crate::backend::RecordStore::charge)
    Charge,
    /// [`RecordStore::claim`](crate::backend::RecordStore::claim)
    Claim,
    /// [`Backend::force_release`](crate::backend::Backend::force_release)
    ForceRelease,
    /// [`Backend::inspect`](crate::backend::Backend::inspect)
    Inspect,
    /// [`Backend::list`](crate::backend::Backend::list)
    List,
    /// [`RecordStore::list_records`](crate::backend::RecordStore::list_records)
    ListRecords,
    /// [`RecordStore::look_up`](crate::backend::RecordStore::look_up)
    LookUp,
    /// [`Backend::ping`](crate::backend::Backend::ping)
    Ping,
    /// [`RecordStore::purge`](crate::backend::RecordStore::purge)
    Purge,
    /// [`Backend::release`](crate::backend::Backend::release)
    Release,
    /// [`Backend::renew`](crate::backend::Backend::renew)
    Renew,
    /// [`RecordStore::renew_claims`](crate::backend::RecordStore::renew_claims)
    RenewClaims,
    /// [`RecordStore::reserve`](crate::backend::RecordStore::reserve)
    Reserve,
    /// [`RecordStore::resolve`](crate::backend::RecordStore::resolve)
    Resolve,
    /// [`RecordStore::settle`](crate::backend::RecordStore::settle)
    Settle,
    /// [`Backend::try_acquire`](crate::backend::Backend::try_acquire)
    TryAcquire,
    /// [`Backend::turn`](crate::backend::Backend::turn)
    Turn,
    /// [`RecordStore::withdraw`](crate::backend::RecordStore::withdraw)
    Withdraw,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Applied after this time, if the caller still waits.
    Delay(Duration),
    /// Applied at once, answered after this time.
    DelayReply(Duration),
    /// Never applied, never answered.
    Hang,
    /// Applied, never answered.
    HangApplied,
    /// Never answered, and applied after this time whether or not the caller still waits: a command on a dying
    /// connection. An attempt that was cancelled by then does nothing.
    Late(Duration),
    /// Applied; the outcome is unknown to the caller.
    LoseReply,
    /// Not applied; the outcome is unknown to the caller.
    LoseRequest,
    /// Not applied, and the caller is told so.
    Refuse(BackendErrorKind),
}

#[derive(Debug, Default)]
pub(super) struct Script(Mutex<HashMap<Call, Part>>);

#[derive(Debug, Default)]
struct Part {
    count: usize,
    next: VecDeque<Option<Fault>>,
    always: Option<Fault>,
}

impl Script {
    pub(super) fn push(&self, call: Call, fault: Option<Fault>) {
        self.parts().entry(call).or_default().next.push_back(fault);
    }

    pub(super) fn always(&self, call: Call, fault: Fault) {
        self.parts().entry(call).or_default().always = Some(fault);
    }

    pub(super) fn clear(&self) {
        for part in self.parts().values_mut() {
            part.next.clear();
            part.always = None;
        }
    }

    pub(super) fn count(&self, call: Call) -> usize {
        self.parts().get(&call).map_or(0, |part| part.count)
    }

    /// Counts a call and gives its fault.
    pub(super) fn meet(&self, call: Call) -> Option<Fault> {
        let mut parts = self.parts();
        let part = parts.entry(call).or_default();
        part.count += 1;
        part.next.pop_front().unwrap_or(part.always)
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<Call, Part>> {
        // No code of others runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_order_then_the_lasting_one() {
        let script = Script::default();
        script.always(Call::Renew, Fault::Hang);
        script.push(Call::Renew, Some(Fault::LoseReply));
        script.push(Call::Renew, None);
        let met: Vec<_> = (0..3).map(|_| script.meet(Call::Renew)).collect();
        assert_eq!(met, [Some(Fault::LoseReply), None, Some(Fault::Hang)]);
        assert_eq!((script.count(Call::Renew), script.meet(Call::Release)), (3, None));
        script.clear();
        assert_eq!(script.meet(Call::Renew), None);
    }
}
