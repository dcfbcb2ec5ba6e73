//! The Redis store when something is in the way.
//!
//! | room | what is in the way |
//! |---|---|
//! | `rights` | users that may do little, passwords that are wrong |
//! | `settings` | memory that is full, settings that endanger locks |
//! | `tls` | certificates |
//! | `connections` | restarts, silence, servers without push, socket files |
//! | `runtimes` | runtimes that go, or aren't there |

mod connections;
#[path = "../redis_backend/mod.rs"]
mod redis_backend;
mod rights;
mod runtimes;
mod settings;
mod tls;

use std::{sync::Arc, time::Duration};

use distlock_runtime::{
    OwnerToken, Ttl,
    backend::{
        Backend, Claim, ClaimOutcome, CrashPolicy, Fingerprint, RecordKey, RecordLease, RecordStore, Renewal,
        Settled, Settlement, redis::RedisBackend,
    },
};
use redis_backend::*;

/// Everything that a manager does, so that a missing right shows.
async fn everything(bench: &Bench, backend: &Arc<RedisBackend>) {
    backend.ping().await.unwrap();
    let serving = Serving::start(backend);
    listening(bench, backend).await;
    let (one, lease, _) = held(backend, "k", 30_000).await;
    let two = waiting("k", 30_000);
    queued(backend, &two).await;
    assert!(matches!(backend.renew(std::slice::from_ref(&lease)).await[..], [Renewal::Renewed { .. }]));
    assert_eq!(backend.inspect(&one.key).await.unwrap().waiters, 1);
    backend.release(&lease, None).await.unwrap();
    assert!(bench.ask::<String>("GET distlock:k").await.starts_with(&two.owner.to_hex()), "handed on");
    granted(backend, &two).await;
    backend.force_release(&two.key).await.unwrap().unwrap();
    let mut block = request("k", 1_000);
    block.tokens = 8;
    granted(backend, &block).await;
    backend.release(&block.lease(), Some(Duration::from_millis(1))).await.unwrap();
    backend.cancel(&block).await.unwrap();
    records(backend).await;
    backend.check().await.unwrap();
    drop(serving);
}

/// A claim of the record of this name.
fn claim(name: &[u8]) -> Claim {
    Claim {
        key: RecordKey::derive("test", &[name]),
        owner: OwnerToken::random().unwrap(),
        fingerprint: Fingerprint { version: 1, digest: [0; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: Duration::from_secs(60),
        note: distlock_runtime::RecordNote::new(),
    }
}

async fn records(store: &RedisBackend) {
    let claim = claim(OwnerToken::random().unwrap().to_hex().as_bytes());
    let ClaimOutcome::Claimed { fence, .. } = store.claim(&claim).await.unwrap() else {
        panic!("not claimed")
    };
    let lease = RecordLease { key: claim.key, owner: claim.owner, fence, ttl: claim.lease };
    assert!(matches!(store.renew_claims(std::slice::from_ref(&lease)).await[..], [Renewal::Renewed { .. }]));
    store.changed(&claim.key, Duration::from_millis(20)).await;
    let settlement = Settlement::Complete { response: "done".into(), retain: Duration::from_secs(60) };
    assert_eq!(store.settle(&lease, &settlement).await.unwrap(), Settled::Done);
    store.look_up(&claim.key).await.unwrap().unwrap();
    assert!(matches!(store.claim(&claim).await.unwrap(), ClaimOutcome::Present(_)));
}
