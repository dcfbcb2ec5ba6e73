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
    /// [`Backend::convert`](crate::backend::Backend::convert)
    Convert,
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
    /// [`Backend::resize`](crate::backend::Backend::resize)
    Resize,
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

impl Call {
    /// Every kind.
    pub const ALL: &'static [Self] = &[
        Self::Cancel,
        Self::Charge,
        Self::Claim,
        Self::Convert,
        Self::ForceRelease,
        Self::Inspect,
        Self::List,
        Self::ListRecords,
        Self::LookUp,
        Self::Ping,
        Self::Purge,
        Self::Release,
        Self::Renew,
        Self::RenewClaims,
        Self::Reserve,
        Self::Resize,
        Self::Resolve,
        Self::Settle,
        Self::TryAcquire,
        Self::Turn,
        Self::Withdraw,
    ];
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
    /// Each how manieth call that has none of its own meets this fault.
    lasting: Option<(usize, Fault)>,
}

impl Script {
    pub(super) fn push(&self, call: Call, fault: Option<Fault>) {
        self.parts().entry(call).or_default().next.push_back(fault);
    }

    pub(super) fn every(&self, call: Call, n: usize, fault: Fault) {
        self.parts().entry(call).or_default().lasting = (n > 0).then_some((n, fault));
    }

    pub(super) fn clear(&self) {
        for part in self.parts().values_mut() {
            part.next.clear();
            part.lasting = None;
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
        let lasting = || part.lasting.filter(|(n, _)| part.count.is_multiple_of(*n)).map(|(_, fault)| fault);
        part.next.pop_front().unwrap_or_else(lasting)
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
        script.every(Call::Renew, 1, Fault::Hang);
        script.push(Call::Renew, Some(Fault::LoseReply));
        script.push(Call::Renew, None);
        let met: Vec<_> = (0..3).map(|_| script.meet(Call::Renew)).collect();
        assert_eq!(met, [Some(Fault::LoseReply), None, Some(Fault::Hang)]);
        assert_eq!((script.count(Call::Renew), script.meet(Call::Release)), (3, None));
        script.clear();
        assert_eq!(script.meet(Call::Renew), None);
    }

    #[test]
    fn each_third_call_meets_its_fault() {
        let script = Script::default();
        script.every(Call::Renew, 3, Fault::Hang);
        let met: Vec<_> = (0..6).map(|_| script.meet(Call::Renew).is_some()).collect();
        assert_eq!(met, [false, false, true, false, false, true]);
        script.every(Call::Renew, 0, Fault::Hang);
        assert!((0..6).all(|_| script.meet(Call::Renew).is_none()));
    }
}
