//! What isn't a plain lock, while a primary is replaced.

use std::time::Duration;

use distlock::{
    ErrorKind, LockError, LockManager,
    records::{Quota, RecordScope},
};
use distlock_tests::{server::ClusterGroup, wait::renewal};

use super::{LIMIT, until};

/// Who leads goes on to lead, a latch that was half counted is counted on, an execution under way ends once, kept results are given again, and a full
/// quota stays full: all of it on servers of which one was killed, whose replica had everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_elections_latches_records_and_quotas_outlive_their_primary() {
    const TTL: Duration = Duration::from_secs(30);
    let group = ClusterGroup::start();
    let url = group.url("");
    let connect = || LockManager::builder().ttl(TTL).quota(Quota::new().keys(1)).connect(&url);
    let (locks, other) = (connect().await.unwrap(), connect().await.unwrap());
    let name = group.name_at(0);

    let mut first = locks.election(format!("{name}:lead")).stand();
    let lead = first.elected().await.unwrap();
    let mut second = other.election(format!("{name}:lead")).stand();
    let latch = |locks: &LockManager| locks.latch(format!("{name}:latch"), 3).within(LIMIT);
    assert_eq!(latch(&locks).count_down().await.unwrap(), 2);
    let waiting = tokio::spawn({
        let latch = latch(&other);
        async move { latch.wait().await }
    });
    // Records have slots of their own: of so many some are on the server that is killed.
    let scope = |tenant: u8| RecordScope::derive(&[&[tenant]]);
    let call = async |locks: &LockManager, tenant: u8, id: u8| {
        let call = locks.idempotent(format!("{tenant}/{id}")).scope(scope(tenant)).wait(LIMIT);
        call.run(async { Ok::<_, LockError>(tenant) }).await
    };
    for tenant in 0..12 {
        assert_eq!(call(&locks, tenant, 1).await.unwrap(), tenant);
    }
    let (go, gone_on) = tokio::sync::oneshot::channel::<()>();
    let long = tokio::spawn({
        let call = locks.idempotent("long").wait(LIMIT);
        async move {
            call.run(async {
                gone_on.await.unwrap();
                Ok::<_, LockError>(7)
            })
            .await
        }
    });
    until("the long one is under way", async || {
        let records = locks.records().unwrap();
        records.list(&distlock::records::RecordFilter::all(), 100).await.unwrap().len() == 13
    })
    .await;
    group.replicated(0).await;

    group.servers()[0].kill().unwrap();
    group.failed_over(0).await;
    assert_eq!(latch(&other).count_down_by(2).await.unwrap(), 0);
    waiting.await.unwrap().unwrap();
    renewal(LIMIT, || lead.remaining()).await.unwrap();
    assert!(first.is_leader() && !second.is_leader());
    first.resign().await;
    let next = tokio::time::timeout(LIMIT, second.elected()).await.unwrap().unwrap();
    assert!(next.fencing_token() > lead.fencing_token());

    go.send(()).unwrap();
    assert_eq!(long.await.unwrap().unwrap(), 7);
    let again = other.idempotent("long").wait(LIMIT).run(async { Ok::<_, LockError>(8) });
    assert_eq!(again.await.unwrap(), 7, "it ran once");
    for tenant in 0..12 {
        let again = other.idempotent(format!("{tenant}/1")).scope(scope(tenant)).wait(LIMIT);
        assert_eq!(again.run(async { Ok::<_, LockError>(99) }).await.unwrap(), tenant);
        let error = call(&other, tenant, 2).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    }
}
