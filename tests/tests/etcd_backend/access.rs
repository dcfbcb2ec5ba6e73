//! TLS, users and rights, and what the server says when it can't.

use std::time::Duration;

use distlock_runtime::backend::{
    Backend as _, BackendErrorKind, Claim, CrashPolicy, Fingerprint, RecordKey, RecordLease, RecordNote,
    Settlement,
};
use distlock_runtime::{ErrorKind, LockKey, LockManager, backend::RecordStore as _};
use distlock_runtime::{OwnerToken, Ttl};
use distlock_tests::server::{EtcdCluster, EtcdSetup};

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions, DeleteOptions};

use super::tools::{Client, key, manager, ms, request};

#[tokio::test]
async fn tls_is_verified_both_ways() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1).tls()).await.unwrap();
    let files = cluster.tls().unwrap();
    let url = |ca: &std::path::Path| format!("{}?connect_timeout=2s&ca={}", cluster.url(), ca.display());
    let certificate = format!("&cert={}&key={}", files.client_cert.display(), files.client_key.display());
    let locks = manager(&(url(&files.ca) + &certificate), "one").await;
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    // The certificate is for 127.0.0.1 and localhost.
    let named = url(&files.ca) + &certificate + "&domain=localhost";
    manager(&named, "two").await.mutex("k").lock().await.unwrap().release().await.unwrap();
    for wrong in [
        url(&files.wrong_ca) + &certificate,
        url(&files.ca),
        url(&files.ca) + &certificate + "&domain=elsewhere.test",
    ] {
        let error = LockManager::connect(&wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    }
    let plain = cluster.url().replace("etcd+https", "etcd");
    assert_eq!(LockManager::connect(&plain).await.unwrap_err().kind(), ErrorKind::Connection);
}

/// A user with rights on the namespace alone can do everything; without a password, with a wrong one, or elsewhere, nothing. A
/// token that the server doesn't know any more is drawn again.
#[tokio::test]
async fn users_need_the_namespace_and_nothing_else() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1).auth()).await.unwrap();
    cluster.add_user("locks", "s3cret", "distlock/").await.unwrap();
    let locks = manager(&cluster.url_as("locks", "s3cret"), "one").await;
    let guard = locks.mutex("k").lock().await.unwrap();
    assert_eq!(locks.list("").await.unwrap().len(), 1);
    guard.extend(Duration::from_secs(30)).await.unwrap();

    for (url, kind) in [
        (cluster.url_as("locks", "wrong"), ErrorKind::Permission),
        (cluster.url_as("nobody", "s3cret"), ErrorKind::Permission),
        (cluster.url(), ErrorKind::Permission),
        (cluster.url_as("locks", "s3cret") + "?namespace=other", ErrorKind::Permission),
    ] {
        let error = LockManager::connect(&url).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
    let elsewhere = LockKey::raw("elsewhere").unwrap();
    let error = locks.mutex(&elsewhere).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");

    // Tokens are kept in memory: after a restart the server knows none of them.
    cluster.restart(0).await.unwrap();
    guard.extend(Duration::from_secs(30)).await.unwrap();
    locks.mutex("other").lock().await.unwrap().release().await.unwrap();
    guard.release().await.unwrap();
}

/// Out of space, a new lock is refused as such, what is held can be renewed and given back, and a manager that is strict
/// doesn't start.
#[tokio::test]
async fn a_full_store_is_told_as_such() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1).quota(4 << 20)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    let guard = locks.mutex("before").lock().await.unwrap();
    let one = Client::open(&cluster, "one");
    let undone = request(&key("undone"), 30_000);
    one.granted(&undone).await;
    let mut client = cluster.client().await.unwrap();
    let mut filled = 0;
    while client.put(format!("fill/{filled}"), vec![b'x'; 1 << 20], None).await.is_ok() {
        filled += 1;
        assert!(filled < 100);
    }
    let error = locks.mutex("after").wait(ms(500)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("NOSPACE"), "{error}");
    guard.extend(Duration::from_secs(30)).await.unwrap();
    guard.release().await.unwrap();
    // Nothing can be written that would refuse a late attempt: it is taken away, and the cancel has to come again.
    let error = one.cancel(&undone).await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("NOSPACE"), "{error}");
    assert!(locks.inspect("undone").await.unwrap().holder.is_none());
    let strict = LockManager::builder().strict().connect(&cluster.url()).await.unwrap_err();
    assert!(strict.to_string().contains("space"), "{strict}");

    client.delete("fill/", Some(DeleteOptions::new().with_prefix())).await.unwrap();
    let revision = client.get("fill/", None).await.unwrap().header().unwrap().revision();
    client.compact(revision, Some(CompactionOptions::new().with_physical())).await.unwrap();
    client.defragment().await.unwrap();
    let alarms = client.alarm(AlarmAction::Get, AlarmType::Nospace, None).await.unwrap();
    let mut of = AlarmOptions::new();
    of.with_member(alarms.alarms()[0].member_id());
    client.alarm(AlarmAction::Deactivate, AlarmType::Nospace, Some(of)).await.unwrap();
    one.cancel(&undone).await.unwrap();
    let late = Client::open(&cluster, "one").try_acquire(&undone).await.unwrap_err();
    assert!(late.to_string().contains("cancelled before"), "{late}");
}

/// A result that the server doesn't take is refused before it is sent, and the claim stays.
#[tokio::test]
async fn a_result_that_is_too_large_is_refused() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let one = Client::open(&cluster, "one");
    let claim = Claim {
        key: RecordKey::derive("test", &[b"large"]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [0; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: Duration::from_secs(3600),
        note: RecordNote::new(),
    };
    let distlock_runtime::backend::ClaimOutcome::Claimed { fence, .. } = one.claim(&claim).await.unwrap()
    else {
        panic!("not claimed");
    };
    let lease = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
    let large = |bytes: usize| Settlement::Complete { response: vec![7; bytes].into(), retain: claim.retain };
    let error = one.settle(&lease, &large(1_500_001)).await.unwrap_err();
    assert_eq!(error.kind(), BackendErrorKind::Unsupported, "{error}");
    one.settle(&lease, &large(1_500_000)).await.unwrap();
}

/// While nobody answers, whoever asks is told at once that the store is away, never that the lock is held; it recovers by itself.
#[tokio::test]
async fn fault_a_store_that_is_away_is_told_at_once() {
    let cluster = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    let locks = manager(&cluster.url(), "one").await;
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    cluster.kill(0).unwrap();
    let start = tokio::time::Instant::now();
    let error = locks.mutex("k").try_lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let waiting = tokio::spawn(locks.mutex("k").wait(Duration::from_secs(20)).lock());
    cluster.restart(0).await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_valid());
}
