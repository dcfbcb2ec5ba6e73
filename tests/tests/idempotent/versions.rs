//! A rolling deploy: records whose fingerprints an older or a newer version made.

use std::future::pending;
use std::time::Duration;

use distlock::records::{
    ClaimRequest, Claimed, CrashPolicy, Fingerprint, Fingerprints, RecordKey, RecordNote, Settlement,
};
use distlock::{LockManager, Ttl};
use distlock_runtime::__layers::{Found, Obtained, Seeker, Waiters, obtain};

use crate::{Store, on_every_store};

on_every_store!(
    a_record_is_compared_by_the_algorithm_that_made_it,
    what_an_older_version_left_in_flight_is_taken_over,
);

const HOUR: Duration = Duration::from_secs(3600);

fn print(version: u16, digit: u8) -> Fingerprint {
    Fingerprint { version, digest: [digit; 32] }
}

fn request(name: &str, fingerprint: Fingerprint, lease: Duration) -> ClaimRequest {
    ClaimRequest {
        key: RecordKey::derive("test", &[name.as_bytes()]),
        fingerprint,
        lease: Ttl::new(lease).unwrap(),
        after_crash: CrashPolicy::Takeover,
        retain: HOUR,
        note: RecordNote::new(),
    }
}

async fn ask(locks: &LockManager, name: &str, fingerprints: &Fingerprints) -> Obtained {
    let seeker = Seeker {
        records: &locks.records().unwrap(),
        waiters: &Waiters::new(10),
        request: request(name, fingerprints.current(), Ttl::DEFAULT.as_duration()),
        matches: &|stored| fingerprints.matches(stored),
        wait: Some(Duration::from_secs(10)),
    };
    obtain(seeker, pending(), || {}).await
}

async fn a_record_is_compared_by_the_algorithm_that_made_it(store: Store) {
    let locks = store.manager().await;
    let older = request("done", print(1, 10), Ttl::DEFAULT.as_duration());
    let Claimed::Execute(claim) = locks.records().unwrap().claim(older).await.unwrap() else {
        panic!("the key is free")
    };
    claim.settle(Settlement::Complete { response: "done".into(), retain: HOUR }).await.unwrap();
    let found = async |fingerprints: Fingerprints| match ask(&locks, "done", &fingerprints).await {
        Obtained::Present(found) => found,
        other => panic!("{other:?}"),
    };
    let same = Fingerprints::new(print(2, 20)).or(print(1, 10));
    assert!(matches!(found(same).await, Found::Completed(bytes, _) if bytes == "done"));
    let other = Fingerprints::new(print(2, 20)).or(print(1, 11));
    assert_eq!(found(other).await, Found::Other);
    let forgetful = Fingerprints::new(print(2, 20));
    assert!(matches!(found(forgetful).await, Found::Unreadable(_)), "neither replayed nor run again");
}

async fn what_an_older_version_left_in_flight_is_taken_over(store: Store) {
    let locks = store.manager().await;
    let gone = store.manager().await;
    let older = request("died", print(1, 10), Ttl::MIN);
    let Claimed::Execute(claim) = gone.records().unwrap().claim(older).await.unwrap() else {
        panic!("the key is free")
    };
    let fence = claim.fence();
    // Its process is gone; nothing renews the claim any more.
    drop(claim);
    let newer = Fingerprints::new(print(2, 20)).or(print(1, 10));
    let Obtained::Execute(heir) = ask(&locks, "died", &newer).await else { panic!("it was left behind") };
    assert!(heir.taken_over() && heir.fence() > fence);
    let other = Fingerprints::new(print(2, 20)).or(print(1, 11));
    assert!(matches!(ask(&locks, "died", &other).await, Obtained::Present(Found::Other)));
}
