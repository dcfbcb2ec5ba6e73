//! What was sent before something else and arrives after it: two connections keep no order between them.

use distlock::{
    Ttl,
    records::{ClaimRequest, Claimed, CrashPolicy, Fingerprint, RecordKey, Settlement},
};
use distlock_tests::proxy::{Command, Entry, Fault, FaultProxy, Log, Rule, When};

use crate::{LIMIT, connect, ms, start};

/// Renewals of this lock: the one script with a single key.
fn renewal_of(name: &str) -> impl Fn(&Command) -> bool + Send + Sync + use<> {
    let name = name.to_owned();
    move |command| command.is("EVALSHA") && command.keys() == [name.clone()]
}

/// How many renewals of this lock were answered, and not by an error.
fn answered(log: &Log, name: &str) -> usize {
    let renewal = renewal_of(name);
    let is_answered = |entry: &&Entry| {
        renewal(&entry.command) && entry.reply.as_ref().is_some_and(|reply| !reply.starts_with(b"-"))
    };
    log.entries().iter().filter(is_answered).count()
}

/// A renewal to the old length is overtaken by an extension. The holder believes in the long one, so the store must, too: else
/// another holds the lock beside it.
#[tokio::test]
async fn a_renewal_that_arrives_after_an_extension_never_shortens_the_lease() {
    let server = start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let (locks, rival) = (connect(&proxy.url()).await, connect(&server.url()).await);
    let name = "distlock:late";
    // The scripts are known and both connections are open.
    let warm = locks.mutex("late").ttl(ms(300)).lock().await.unwrap();
    proxy.wait_until("a renewal", LIMIT, |log| (answered(log, name) >= 1).then_some(())).await.unwrap();
    warm.release().await.unwrap();

    // A renewal may take a sixth of the ttl: long enough here for what is to overtake it.
    let guard = locks.mutex("late").ttl(ms(9_000)).lock().await.unwrap();
    let rule = proxy.rules().add(Rule::new(When::matches(renewal_of(name)), Fault::Hold).once());
    rule.wait_hits(1, LIMIT).await.unwrap();
    let before = answered(&proxy.log(), name);
    guard.extend(ms(60_000)).await.unwrap();
    rule.remove();
    proxy
        .wait_until("both renewals", LIMIT, |log| (answered(log, name) >= before + 2).then_some(()))
        .await
        .unwrap();

    let mut admin = server.admin().await.unwrap();
    let left: i64 = redis::cmd("PTTL").arg(name).query_async(&mut admin).await.unwrap();
    assert!(guard.is_valid() && guard.remaining() > ms(20_000));
    assert!(left > 50_000, "the lock lapses in {left} ms, and its holder counts on {:?}", guard.remaining());
    rival.mutex("late").try_lock().await.unwrap_err();
    guard.release().await.unwrap();
}

/// A claim that was repeated on another connection, granted and given up, when the first one arrives: it must not stand there,
/// executed by nobody.
#[tokio::test]
async fn a_claim_that_was_repeated_never_comes_back_after_its_release() {
    let server = start();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let locks = connect(&proxy.url()).await;
    let records = locks.records().unwrap();
    let request = || ClaimRequest {
        key: RecordKey::derive("reordering", &[b"late"]),
        fingerprint: Fingerprint { version: 1, digest: [7; 32] },
        lease: Ttl::DEFAULT,
        after_crash: CrashPolicy::Reject,
        retain: ms(60_000),
        note: distlock_runtime::RecordNote::new(),
    };
    let executed = |claimed: Claimed| match claimed {
        Claimed::Execute(guard) => guard,
        Claimed::Present(record) => panic!("it stands there: {record:?}"),
    };
    // The scripts are known.
    executed(records.claim(request()).await.unwrap()).settle(Settlement::Release).await.unwrap();

    // A connection that is silent for 2 s is left when somebody gives up on it, with the claim that came in between.
    let rule = proxy.rules().add(Rule::new(When::command("PING"), Fault::Hold).once());
    let silent = tokio::spawn({
        let locks = locks.clone();
        async move { tokio::time::timeout(ms(2_200), locks.ping()).await }
    });
    rule.wait_hits(1, LIMIT).await.unwrap();
    let claims = |log: &Log| {
        let is_claim = |command: &Command| command.keys().len() == 3 && command.keys()[0].contains("!r:");
        let claims = log.entries().iter().filter(|entry| is_claim(&entry.command));
        claims.map(|entry| entry.reply.is_some()).collect::<Vec<_>>()
    };
    let before = claims(&proxy.log()).len();
    let mut claiming = std::pin::pin!(records.claim(request()));
    // Well within its own patience when the connection is left.
    assert!(tokio::time::timeout(ms(1_000), std::future::pending::<()>()).await.is_err());
    let guard = executed(claiming.as_mut().await.unwrap());
    silent.await.unwrap().unwrap_err();
    guard.settle(Settlement::Release).await.unwrap();
    let withdrawn = |log: &Log| {
        let mark = |entry: &Entry| {
            entry.command.keys().get(1).is_some_and(|key| key.contains("}!v:"))
                && entry.reply.as_ref().is_some_and(|reply| !reply.starts_with(b"-"))
        };
        log.entries().iter().any(mark).then_some(())
    };
    proxy.wait_until("the withdrawal", LIMIT, withdrawn).await.unwrap();
    assert_eq!(claims(&proxy.log())[before..], [false, true], "the first is still on its way");
    rule.remove();
    let all_answered = |log: &Log| claims(log).iter().all(|answered| *answered).then_some(());
    proxy.wait_until("the first claim", LIMIT, all_answered).await.unwrap();
    executed(records.claim(request()).await.unwrap()).settle(Settlement::Release).await.unwrap();
}
