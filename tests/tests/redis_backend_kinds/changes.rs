//! What changes a hold or a limit from within or from outside: conversions, resizing, taking away.

use distlock_runtime::{
    LockKey,
    backend::{AcquireRequest, Attempt, Backend, BackendErrorKind, LeaseHandle, Mode, Released},
};

use super::redis_backend::*;
use super::*;

#[tokio::test]
async fn conversions_have_no_gap_and_change_nothing_when_refused() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let lease = shared("k", Mode::Write);
    let write = granted(&backend, &lease).await;
    let (reader, writer, behind) =
        (in_line("k", Mode::Read), in_line("k", Mode::Write), in_line("k", Mode::Read));
    for waiter in [&reader, &writer, &behind] {
        queued(&backend, waiter).await;
    }
    for _ in 0..2 {
        let Attempt::Granted(read) = backend.convert(&lease.lease(), Mode::Read).await.unwrap() else {
            panic!("a writer can always read")
        };
        assert_eq!(read.token, write.token);
        assert!(
            holds(&bench, &reader).await && !holds(&bench, &writer).await && !holds(&bench, &behind).await
        );
    }
    let lease = LeaseHandle { mode: Mode::Read, ..lease.lease() };
    let refused = async || {
        let before = dump(&bench).await;
        assert!(matches!(backend.convert(&lease, Mode::Write).await.unwrap(), Attempt::Busy(_)));
        assert_eq!(dump(&bench).await, before);
    };
    refused().await;
    granted(&backend, &reader).await;
    released(&backend, &reader).await;
    refused().await;
    backend.cancel(&writer).await.unwrap();
    granted(&backend, &behind).await;
    refused().await;
    released(&backend, &behind).await;
    let mut last = write.token;
    for _ in 0..2 {
        let Attempt::Granted(again) = backend.convert(&lease, Mode::Write).await.unwrap() else {
            panic!("the only reader, and nobody waits")
        };
        assert!(again.token > last);
        last = again.token;
        busy(&backend, &shared("k", Mode::Read)).await;
    }
    assert_eq!(backend.release(&lease, None).await.unwrap(), Released::Confirmed);
    for to in [Mode::Read, Mode::Write] {
        assert_eq!(backend.convert(&lease, to).await.unwrap_err().kind(), BackendErrorKind::NotHeld);
    }
    assert_eq!(left(&bench).await, [""; 0]);
}

#[tokio::test]
async fn a_limit_is_changed_for_all() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let key = LockKey::new("k").unwrap();
    assert!(!backend.resize(&key, 3).await.unwrap());
    let (first, second) = (shared("k", permits(1, 1)), in_line("k", permits(1, 1)));
    granted(&backend, &first).await;
    queued(&backend, &second).await;
    assert!(backend.resize(&key, 2).await.unwrap());
    assert!(holds(&bench, &second).await, "there is room for it now");
    assert_eq!(refusal(&backend, &second).await, BackendErrorKind::LimitMismatch);
    let third = shared("k", permits(2, 1));
    busy(&backend, &third).await;
    // Holders beyond a lower limit stay until they end.
    assert!(backend.resize(&key, 1).await.unwrap());
    let third = shared("k", permits(1, 1));
    assert!(renews(&backend, &first.lease()).await && renews(&backend, &second.lease()).await);
    released(&backend, &first).await;
    busy(&backend, &third).await;
    released(&backend, &second).await;
    granted(&backend, &third).await;
}

#[tokio::test]
async fn shares_are_seen_listed_and_taken_away() {
    let bench = Bench::start().await;
    let (backend, _serving) = told(&bench).await;
    let (brief, long) = (AcquireRequest { mode: Mode::Read, ..request("k", 5_000) }, shared("k", Mode::Read));
    granted(&backend, &brief).await;
    granted(&backend, &long).await;
    let waiter = in_line("k", Mode::Write);
    queued(&backend, &waiter).await;
    let state = backend.inspect(&long.key).await.unwrap();
    let holder = state.holder.unwrap();
    assert_eq!((holder.owner, state.waiters), (Some(long.owner), 1));
    assert!(holder.label.unwrap().ends_with(&format!(":{}", std::process::id())));
    held(&backend, "j", LONG).await;
    let listed = backend.list("", 10).await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|state| state.key.to_string()).collect();
    names.sort();
    assert_eq!(names, ["j", "k"]);
    let taken = backend.force_release(&long.key).await.unwrap().unwrap();
    assert_eq!(taken.owner, Some(long.owner));
    assert!(!renews(&backend, &long.lease()).await && !renews(&backend, &brief.lease()).await);
    assert!(holds(&bench, &waiter).await, "handed on");
    granted(&backend, &waiter).await;
    released(&backend, &waiter).await;
    assert_eq!(backend.force_release(&long.key).await.unwrap(), None);
}
