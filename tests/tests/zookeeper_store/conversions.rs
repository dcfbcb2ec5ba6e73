//! Conversions whose answer is lost: neither half of one is forgotten, and no writer gets in beside a reader.

use std::{sync::Arc, time::Duration};

use distlock_runtime::backend::{
    AcquireRequest, Attempt, Backend as _, BackendErrorKind, LeaseHandle, Mode, Released, Renewal,
};
use distlock_tests::server::shared_zookeeper;

use zookeeper_client::{Acls, Client, CreateMode};

use super::{
    backend, fresh, ms, places, raw, request,
    wire::{MULTI, SYNC, Wire},
};

const SESSION: Duration = Duration::from_secs(20);

fn in_mode(key: &str, mode: Mode) -> AcquireRequest {
    AcquireRequest { mode, queue: false, ..request(key, ms(10_000)) }
}

fn token(attempt: Attempt) -> u64 {
    match attempt {
        Attempt::Granted(grant) => grant.token.get(),
        other => panic!("not granted: {other:?}"),
    }
}

/// The naive lock for readers and writers: one node for each hold, and a writer looks once, before it changes its node.
struct Naive {
    client: Client,
    lock: String,
    name: String,
}

impl Naive {
    /// Reads.
    async fn begin(client: Client, key: &str) -> Self {
        let (lock, name) = (format!("/naive-{key}"), format!("r-{:016x}", fastrand::u64(..)));
        client.mkdir(&lock, &CreateMode::Persistent.with_acls(Acls::anyone_all())).await.unwrap();
        let node = format!("{lock}/{name}");
        client.create(&node, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all())).await.unwrap();
        Self { client, lock, name }
    }

    /// Whether it writes from now on.
    async fn upgrade(&self) -> anyhow::Result<bool> {
        if self.names().await.len() > 1 {
            return Ok(false);
        }
        let mut both = self.client.new_multi_writer();
        both.add_delete(&self.path(), None)?;
        let written = self.path().replace("/r-", "/w-");
        both.add_create(&written, b"", &CreateMode::Ephemeral.with_acls(Acls::anyone_all()))?;
        both.commit().await?;
        Ok(true)
    }

    fn path(&self) -> String {
        format!("{}/{}", self.lock, self.name)
    }

    async fn names(&self) -> Vec<String> {
        self.client.list_children(&self.lock).await.unwrap()
    }
}

/// The control changes its node too, and doesn't look whether a lost answer was a yes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_conversion_without_an_answer_is_held_and_leaves_nothing_behind() {
    let server = shared_zookeeper().unwrap();
    let (wire, eyes) = (Wire::to(server).await, raw(server).await);
    let backend = backend(wire.address(), SESSION);
    for (number, (from, to)) in [(Mode::Read, Mode::Write), (Mode::Write, Mode::Read)].into_iter().enumerate()
    {
        for (turn, again) in [false, true].into_iter().enumerate() {
            let key = fresh("convert");
            let request = in_mode(&key, from);
            let first = token(backend.try_acquire(&request).await.unwrap());
            wire.lose_next_reply(MULTI);
            backend.convert(&request.lease(), to).await.expect_err("its answer is lost");
            assert_eq!(wire.lost(), 2 * number + turn + 1);
            let before = request.lease();
            let lease = if again { LeaseHandle { mode: to, ..request.lease() } } else { request.lease() };
            if again {
                let converted = token(backend.convert(&before, to).await.unwrap());
                // A right to write is a new one.
                assert!(if to == Mode::Write { converted > first } else { converted == first });
            }
            assert!(matches!(
                backend.renew(std::slice::from_ref(&lease)).await[..],
                [Renewal::Renewed { .. }]
            ));
            assert_eq!(places(&eyes, &key).await.len(), 1);
            assert_eq!(backend.release(&lease, None).await.unwrap(), Released::Confirmed);
            assert!(places(&eyes, &key).await.is_empty(), "{from:?} to {to:?}, again: {again}");
        }
    }
    let naive = Naive::begin(raw(wire.address()).await, &fresh("convert")).await;
    wire.lose_next_reply(MULTI);
    naive.upgrade().await.unwrap_err();
    naive.client.delete(&naive.path(), None).await.unwrap_err();
    assert_eq!(naive.names().await.len(), 1, "the naive one must forget its node");
}

/// The reader comes between the look at the line and the conversion, and the conversion's answer is lost. The control looks no second
/// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_repeated_upgrade_sees_the_reader_that_came_before_it() {
    let server = shared_zookeeper().unwrap();
    let wire = Wire::to(server).await;
    let (one, other) = (backend(wire.address(), SESSION), backend(server, SESSION));
    let key = fresh("upgrade");
    let (mine, theirs) = (in_mode(&key, Mode::Read), in_mode(&key, Mode::Read));
    token(one.try_acquire(&mine).await.unwrap());
    wire.lose_next_reply(MULTI);
    let held_up = wire.hold_next_request(MULTI);
    let upgrade = tokio::spawn({
        let (one, lease) = (Arc::clone(&one), mine.lease());
        async move { one.convert(&lease, Mode::Write).await }
    });
    held_up.arrived().await;
    token(other.try_acquire(&theirs).await.unwrap());
    held_up.let_go();
    upgrade.await.unwrap().expect_err("its answer is lost");
    let repeated = one.convert(&mine.lease(), Mode::Write).await.unwrap();
    assert!(matches!(repeated, Attempt::Busy(_)), "a writer beside a reader: {repeated:?}");
    let renewed = one.renew(&[mine.lease()]).await;
    assert!(matches!(renewed[..], [Renewal::Renewed { .. }]), "it reads on: {renewed:?}");
    // Others may read beside it again.
    let third = in_mode(&key, Mode::Read);
    token(other.try_acquire(&third).await.unwrap());
    for (backend, request) in [(&other, third), (&other, theirs)] {
        assert_eq!(backend.release(&request.lease(), None).await.unwrap(), Released::Confirmed);
    }
    token(one.convert(&mine.lease(), Mode::Write).await.unwrap());
    let late = other.convert(&mine.lease(), Mode::Read).await.unwrap_err();
    assert_eq!(late.kind(), BackendErrorKind::NotHeld);

    let naive = Naive::begin(raw(wire.address()).await, &key).await;
    let held_up = wire.hold_next_request(MULTI);
    let (writes, reader) = tokio::join!(naive.upgrade(), async {
        held_up.arrived().await;
        let reader = Naive::begin(raw(server).await, &key).await;
        held_up.let_go();
        reader
    });
    assert!(
        writes.unwrap() && reader.names().await.len() == 2,
        "the naive writer must be let in beside a reader"
    );
}

/// The upgrade is given up before it has looked whether a reader came in between; asked again, it looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_an_upgrade_given_up_half_way_is_no_grant() {
    let server = shared_zookeeper().unwrap();
    let wire = Wire::to(server).await;
    let (one, other) = (backend(wire.address(), SESSION), backend(server, SESSION));
    let key = fresh("halfway");
    let (mine, theirs) = (in_mode(&key, Mode::Read), in_mode(&key, Mode::Read));
    token(one.try_acquire(&mine).await.unwrap());
    let held_up = wire.hold_next_request(MULTI);
    let upgrade = tokio::spawn({
        let (one, lease) = (Arc::clone(&one), mine.lease());
        async move { one.convert(&lease, Mode::Write).await }
    });
    held_up.arrived().await;
    token(other.try_acquire(&theirs).await.unwrap());
    let look = wire.hold_next_request(SYNC);
    held_up.let_go();
    look.arrived().await;
    upgrade.abort();
    upgrade.await.unwrap_err();
    look.let_go();
    let repeated = one.convert(&mine.lease(), Mode::Write).await.unwrap();
    assert!(matches!(repeated, Attempt::Busy(_)), "a writer beside a reader: {repeated:?}");
    assert!(matches!(one.renew(&[mine.lease()]).await[..], [Renewal::Renewed { .. }]));
    assert_eq!(other.release(&theirs.lease(), None).await.unwrap(), Released::Confirmed);
    token(one.convert(&mine.lease(), Mode::Write).await.unwrap());
}
