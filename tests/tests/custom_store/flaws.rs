//! The conformance suite can fail: each of these variants of the file store has one flaw, and the case that is about it says so.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use distlock::{
    backend::{
        AcquireRequest, Attempt, Backend, BackendError, BackendErrorKind, Blocked, Capability, Clock,
        FencingToken, Grant, Guarantees, HolderState, LeaseHandle, LockKey, LockState, Released, Renewal,
        Ttl, Turn, Warning,
    },
    testkit::conformance::{Case, OverFaults, Store, Trouble},
};
use tempfile::TempDir;

use crate::file_store::FileStore;

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// A release gives the lock back whoever holds it.
    BlindRelease,
    /// A cancel gives the lock back whoever holds it.
    BlindCancel,
    /// A renewal of a lease that is gone makes it anew.
    RenewalMakesLocks,
    /// A renewal sets the ttl, also to less than is left.
    RenewalShortens,
    /// Expiry is ignored: a dead holder's lock is nobody else's ever again.
    NeverLapses,
    /// The lease in the store is shorter than the one that was asked for.
    LapsesEarly,
    /// Nobody is ever refused.
    NoExclusion,
    /// Every hold has the same token.
    SameToken,
    /// Tokens grow by one, whatever block was asked for.
    OverlappingBlocks,
    /// The deadline counts from a moment that is still to come.
    SentInTheFuture,
    /// The owner's own repeat finds the lock held.
    RepeatIsBusy,
    /// A cancel changes nothing.
    CancelDoesNothing,
    /// A release forgets `hold_at_least`.
    KeepIsIgnored,
    /// A lock that was refused is an error of the connection.
    BusyIsAnError,
    /// All locks are listed, whatever their names.
    ListIgnoresPrefix,
    /// It does something weaker where it should refuse.
    WeakerInsteadOfRefusing,
    /// It says that it can what it can't.
    ClaimsTooMuch,
    /// A renewal gives outcomes in another order.
    RenewsOutOfOrder,
    /// Nobody is told who holds a lock.
    HolderUnknown,
}

/// Every flaw, and the case that must notice.
const FLAWS: &[(Flaw, &str)] = &[
    (Flaw::BlindRelease, "a_release_by_others_is_refused"),
    (Flaw::BlindRelease, "a_repeated_release_is_harmless"),
    (Flaw::BlindCancel, "a_cancelled_attempt_leaves_nothing"),
    (Flaw::RenewalMakesLocks, "a_renewal_never_makes_a_lock"),
    (Flaw::RenewalShortens, "what_comes_late_never_shortens_the_lease"),
    (Flaw::NeverLapses, "a_dead_holders_lock_is_had_after_its_ttl"),
    (Flaw::LapsesEarly, "a_lease_lapses_after_its_ttl_and_never_early"),
    (Flaw::NoExclusion, "of_many_at_once_one_is_granted"),
    (Flaw::NoExclusion, "two_processes_take_turns_without_overlap"),
    (Flaw::SameToken, "tokens_grow_whatever_ended_the_hold_before"),
    (Flaw::OverlappingBlocks, "blocks_of_tokens_are_disjoint"),
    (Flaw::SentInTheFuture, "first_owner_is_granted_and_the_next_is_told_who_holds"),
    (Flaw::SentInTheFuture, "a_renewed_lease_lives_on"),
    (Flaw::RepeatIsBusy, "a_repeated_attempt_is_granted_again"),
    (Flaw::CancelDoesNothing, "a_cancelled_attempt_leaves_nothing"),
    (Flaw::KeepIsIgnored, "a_release_can_keep_the_lock_taken"),
    (Flaw::BusyIsAnError, "a_single_try_says_busy_and_by_whom"),
    (Flaw::ListIgnoresPrefix, "list_gives_held_locks_by_prefix"),
    (Flaw::WeakerInsteadOfRefusing, "readers_share_and_a_writer_excludes"),
    (Flaw::ClaimsTooMuch, "the_store_answers_and_names_itself"),
    (Flaw::RenewsOutOfOrder, "many_leases_are_renewed_in_one_call"),
    (Flaw::HolderUnknown, "first_owner_is_granted_and_the_next_is_told_who_holds"),
];

#[derive(Debug)]
struct Flawed {
    flaw: Flaw,
    inner: Arc<FileStore>,
    last_token: AtomicU64,
}

impl Flawed {
    fn token(&self, request: &AcquireRequest, grant: Grant) -> Grant {
        match self.flaw {
            Flaw::SameToken => Grant { token: FencingToken::new(7), ..grant },
            Flaw::OverlappingBlocks => {
                let token = FencingToken::new(self.last_token.fetch_add(1, Ordering::Relaxed));
                Grant { token, tokens: request.tokens, ..grant }
            }
            Flaw::SentInTheFuture => Grant { sent: grant.sent + Duration::from_secs(5), ..grant },
            _ => grant,
        }
    }

    fn with_ttl(&self, ttl: Ttl) -> Ttl {
        let length = match self.flaw {
            Flaw::NeverLapses => Ttl::MAX,
            Flaw::LapsesEarly => (ttl.as_duration() / 3).max(Ttl::MIN),
            _ => ttl.as_duration(),
        };
        Ttl::new(length).unwrap()
    }
}

#[async_trait]
impl Backend for Flawed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn guarantees(&self) -> Guarantees {
        let promises = self.inner.guarantees();
        if self.flaw == Flaw::ClaimsTooMuch { promises.can_also(Capability::Records) } else { promises }
    }

    async fn try_acquire(&self, request: &AcquireRequest) -> Result<Attempt, BackendError> {
        let mut asked = AcquireRequest { ttl: self.with_ttl(request.ttl), ..request.clone() };
        if self.flaw == Flaw::WeakerInsteadOfRefusing {
            (asked.mode, asked.fair) = (distlock::backend::Mode::Exclusive, false);
        }
        let state = self.inner.inspect(&request.key).await?;
        let holder = state.holder.as_ref().and_then(|holder| holder.owner);
        match self.flaw {
            Flaw::NoExclusion => drop(self.inner.force_release(&request.key).await?),
            Flaw::RepeatIsBusy if holder == Some(request.owner) => {
                return Ok(Attempt::Busy(Blocked::default()));
            }
            _ => {}
        }
        match self.inner.try_acquire(&asked).await? {
            Attempt::Granted(grant) => Ok(Attempt::Granted(self.token(request, grant))),
            Attempt::Busy(_) if self.flaw == Flaw::HolderUnknown => Ok(Attempt::Busy(Blocked::default())),
            Attempt::Busy(_) if self.flaw == Flaw::BusyIsAnError => {
                Err(BackendError::refused(BackendErrorKind::Script, "somebody has it"))
            }
            other => Ok(other),
        }
    }

    async fn turn(&self, request: &AcquireRequest, blocked: &Blocked) -> Result<Turn, BackendError> {
        self.inner.turn(request, blocked).await
    }

    async fn renew(&self, leases: &[LeaseHandle]) -> Vec<Renewal> {
        let asked: Vec<LeaseHandle> = leases
            .iter()
            .map(|lease| LeaseHandle { ttl: self.with_ttl(lease.ttl), ..lease.clone() })
            .collect();
        let mut renewals = self.inner.renew(&asked).await;
        for (lease, renewal) in asked.iter().zip(&mut renewals) {
            let anew = AcquireRequest {
                key: lease.key.clone(),
                owner: lease.owner,
                ttl: lease.ttl,
                mode: lease.mode,
                fair: false,
                queue: false,
                tokens: 1,
            };
            match (self.flaw, &*renewal) {
                (Flaw::RenewalMakesLocks, Renewal::Gone) => {
                    if let Ok(Attempt::Granted(grant)) = self.inner.try_acquire(&anew).await {
                        *renewal = Renewal::Renewed { sent: grant.sent };
                    }
                }
                (Flaw::RenewalShortens, Renewal::Renewed { .. }) => {
                    self.inner.release(lease, None).await.unwrap();
                    drop(self.inner.try_acquire(&anew).await.unwrap());
                }
                (Flaw::SentInTheFuture, Renewal::Renewed { sent }) => {
                    *renewal = Renewal::Renewed { sent: *sent + Duration::from_secs(5) };
                }
                _ => {}
            }
        }
        if self.flaw == Flaw::RenewsOutOfOrder {
            renewals.reverse();
        }
        renewals
    }

    async fn release(&self, lease: &LeaseHandle, keep: Option<Duration>) -> Result<Released, BackendError> {
        match self.flaw {
            Flaw::BlindRelease => {
                let taken = self.inner.force_release(&lease.key).await?;
                Ok(if taken.is_some() { Released::Confirmed } else { Released::NotHeld })
            }
            Flaw::KeepIsIgnored => self.inner.release(lease, None).await,
            _ => self.inner.release(lease, keep).await,
        }
    }

    async fn cancel(&self, request: &AcquireRequest) -> Result<(), BackendError> {
        match self.flaw {
            Flaw::BlindCancel => self.inner.force_release(&request.key).await.map(drop),
            Flaw::CancelDoesNothing => Ok(()),
            _ => self.inner.cancel(request).await,
        }
    }

    async fn inspect(&self, key: &LockKey) -> Result<LockState, BackendError> {
        self.inner.inspect(key).await
    }

    async fn list(&self, prefix: &str, limit: usize) -> Result<Vec<LockState>, BackendError> {
        self.inner.list(if self.flaw == Flaw::ListIgnoresPrefix { "" } else { prefix }, limit).await
    }

    async fn force_release(&self, key: &LockKey) -> Result<Option<HolderState>, BackendError> {
        self.inner.force_release(key).await
    }

    async fn ping(&self) -> Result<(), BackendError> {
        self.inner.ping().await
    }

    async fn check(&self) -> Result<Vec<Warning>, BackendError> {
        self.inner.check().await
    }

    async fn serve(&self) {
        self.inner.serve().await;
    }
}

struct Variant {
    flaw: Flaw,
    directory: TempDir,
}

impl Variant {
    fn of(flaw: Flaw) -> Self {
        Self { flaw, directory: TempDir::new().unwrap() }
    }
}

#[async_trait]
impl Store for Variant {
    async fn backend(&self, label: &str) -> Arc<dyn Backend> {
        let inner = FileStore::open(self.directory.path(), label, Clock::System).unwrap();
        Arc::new(Flawed { flaw: self.flaw, inner, last_token: AtomicU64::new(1) })
    }

    fn calls_outlive_their_futures(&self) -> bool {
        false
    }

    fn has_records(&self) -> bool {
        self.flaw == Flaw::ClaimsTooMuch
    }

    fn has_latches(&self) -> bool {
        false
    }
}

fn check(flaw: Flaw, case: &str) -> Result<(), String> {
    let case = Case::named(case).unwrap_or_else(|| panic!("there is no case {case}"));
    case.check(async || Variant::of(flaw)).map_err(|shortfall| shortfall.to_string())
}

/// And without a flaw, the same variant passes the same cases: it is the flaw that is noticed.
#[test]
fn every_flaw_is_caught_by_the_case_that_is_about_it() {
    let judged: Vec<_> = std::thread::scope(|scope| {
        let runs = FLAWS.iter().map(|&(flaw, case)| {
            scope.spawn(move || (flaw, case, check(flaw, case), check(Flaw::None, case)))
        });
        let runs: Vec<_> = runs.collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for (flaw, case, flawed, sound) in judged {
        assert_eq!(sound, Ok(()), "{case}, without a flaw");
        let told = flawed.expect_err(&format!("{case} doesn't notice {flaw:?}"));
        assert!(told.contains(case) && !told.contains("still runs after"), "{told}");
    }
}

/// Over a connection that loses what is sent, managers repeat and undo: what a store does wrong there is noticed.
#[test]
fn what_can_t_be_repeated_or_undone_is_caught_over_lost_messages() {
    let case = Case::named("nobody_gets_in_whatever_is_lost").unwrap();
    let check = |flaw, trouble| case.check(async || OverFaults::new(Variant::of(flaw), trouble));
    std::thread::scope(|scope| {
        for trouble in [Trouble::LostReplies, Trouble::LostRequests, Trouble::Refusals] {
            scope.spawn(move || check(Flaw::None, trouble).unwrap());
            scope.spawn(move || check(Flaw::NoExclusion, trouble).unwrap_err());
        }
        // What was granted, and not heard, is asked for again, or undone.
        for flaw in [Flaw::RepeatIsBusy, Flaw::CancelDoesNothing] {
            scope.spawn(move || check(flaw, Trouble::LostReplies).expect_err(&format!("{flaw:?}")));
        }
    });
}

/// A failure says which rule was broken, by which call, and what came back instead.
#[test]
fn a_failure_tells_what_the_store_did() {
    let told = check(Flaw::RepeatIsBusy, "a_repeated_attempt_is_granted_again").unwrap_err();
    for part in [
        "attempts::a_repeated_attempt_is_granted_again",
        "A repeat by the same owner is granted again",
        "try_acquire of repeat-",
        "must be granted, and is Busy",
    ] {
        assert!(told.contains(part), "{part:?} isn't in {told}");
    }
}
