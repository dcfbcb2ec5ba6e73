//! What a store of one's own needs is there, through `distlock` alone.

use std::{fs, path::Path, time::Duration};

use distlock::backend::{
    Attempt, AttemptAll, BackendError, BackendErrorKind, Blocked, Capability, Charge, ClaimOutcome, Fault,
    FencingToken, Fingerprint, Grant, Guarantees, Holder, HolderState, HolderWait, Kind, LockKey, LockState,
    Mode, Moment, OwnerId, OwnerToken, Promise, Purged, Quota, Record, RecordFilter, RecordInfo, RecordKey,
    RecordNote, RecordScope, RecordState, RecordStatus, Released, Renewal, Reservation, Reserved, Resolved,
    Settled, Settlement, Turn, Warning,
};

/// Everything that a call gives back can be made, and everything that it is given can be read: by a store with all kinds of locks,
/// latches, circles and records.
#[test]
fn all_that_goes_through_the_waist_can_be_made_and_read() {
    let (owner, key) = (OwnerToken::random().unwrap(), LockKey::new("k").unwrap());
    let grant = Grant { sent: Moment::from_nanos(1), token: FencingToken::new(7), tokens: 1 };
    let holder = Holder::new(Some("label".to_owned()), Some(Duration::from_secs(1))).by(owner);
    let blocked = Blocked { holder: Some(holder) };
    let attempts =
        [Attempt::Granted(grant), Attempt::Busy(blocked.clone()), Attempt::Queued(blocked.clone())];
    assert_eq!(attempts.len(), 3);
    let _ = [AttemptAll::Granted(vec![grant]), AttemptAll::Busy { index: 0, blocked }, AttemptAll::Apart];
    let _ = [Turn::Again, Turn::Granted(grant)];
    let error = BackendError::refused(BackendErrorKind::Unavailable, "not now").with_open_outcome();
    let _ = [Renewal::Renewed { sent: grant.sent }, Renewal::Gone, Renewal::Unknown(error)];
    let _ = [Released::Confirmed, Released::NotHeld];
    let _ = Warning::new("CODE", "text", false);

    let shown = HolderState::new(None, None, Some(owner)).holding(Mode::Read).with_holds(2);
    let state = LockState::shared(key.clone(), Kind::Semaphore { limit: 3 }, vec![shown], 1, 0);
    assert_eq!(state.with_permits_in_use(2).permits_in_use, Some(2));
    assert_eq!(LockState::new(key.clone(), None, 0).holder_count, 0);

    let id = OwnerId::new("transaction").unwrap();
    assert_eq!(
        (OwnerId::from_hex(&id.to_hex()), OwnerToken::from_hex(&owner.to_hex())),
        (Some(id), Some(owner))
    );
    assert_ne!(owner.of_what_is_kept(), owner);
    let _ = HolderWait { id: owner, beat: 1, owner, key, who: "task".to_owned() };

    let promises =
        Guarantees::none("mine").promise(Fault::Failover, Promise::Holds).can_also(Capability::Records);
    assert_eq!((promises.under(Fault::Failover), promises.can(Capability::Records)), (Promise::Holds, true));
}

#[test]
fn all_that_a_store_of_records_needs_can_be_made_and_read() {
    let scope = RecordScope::derive(&[b"tenant"]);
    let note = RecordNote::new().with_scope(scope);
    assert_eq!(RecordNote::from_text(&note.to_text()), note);
    let key = RecordKey::derive("domain", &[b"key"]);
    assert_eq!(RecordKey::from_hex(&key.to_hex()), Some(key));

    let fingerprint = Fingerprint { version: 1, digest: [0; 32] };
    let states = [
        RecordState::InFlight { remaining: Duration::ZERO },
        RecordState::Completed { response: "done".into() },
        RecordState::Tombstone { reason: "large".to_owned() },
        RecordState::Unknown,
    ];
    for state in states {
        let _ = ClaimOutcome::Present(Record { fingerprint, state, note: note.clone() });
    }
    let _ = ClaimOutcome::Claimed { sent: Moment::NEVER, fence: FencingToken::new(1), taken_over: false };
    let _ = [Settled::Done, Settled::Fenced];
    let _ = [Resolved::Done, Resolved::Absent, Resolved::Refused];

    let filter = RecordFilter::unresolved().scope(scope);
    assert_eq!((filter.wanted_scope(), filter.wants_unresolved()), (Some(scope), true));
    assert!(filter.passes(&note, &RecordStatus::Unknown));
    assert!(!filter.passes(&note, &RecordStatus::Completed { bytes: 4 }));
    assert!(!filter.passes(&RecordNote::new(), &RecordStatus::Unknown));
    let _ = RecordInfo { key, status: RecordStatus::Unknown, kept_for: None, note };
    let _ = Purged { removed: 1, in_flight: 0, is_complete: true };

    let wanted = Reservation { scope, key, hold: Duration::ZERO, quota: Quota::new().keys(5) };
    assert_eq!((wanted.quota.max_keys(), wanted.quota.max_bytes()), (5, u64::MAX));
    let _ = [Reserved::Granted, Reserved::Full { keys: 5, bytes: 0 }];
    let charge = Charge::of(scope, key, &Settlement::Release);
    assert_eq!((charge.bytes, charge.retain), (0, Duration::ZERO));
}

/// The example, and the line that runs the suite on it, are what somebody writes who has `distlock` alone.
#[test]
fn the_example_names_no_crate_behind_the_facade() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = ["mod", "disk", "state"].map(|name| format!("examples/file_store/{name}.rs"));
    let others = ["examples/custom_store.rs", "tests/tests/conformance_custom_store.rs"].map(str::to_owned);
    for file in files.into_iter().chain(others) {
        let text = fs::read_to_string(root.join(&file)).unwrap();
        assert!(text.contains("use distlock::") && !text.contains("distlock_runtime"), "{file}");
    }
}
