//! Three members and two clients, each on a host of its own, and what happens to them.

use std::{sync::Arc, time::Duration};

use distlock_runtime::{ErrorKind, Guard, LockManager};
use distlock_tests::{
    history::{History, Hold, monotonic_ns},
    server::{Host, Network},
    wait,
};
use tokio::sync::oneshot;

/// How long anything that must happen may take: elections, and connections that have to notice on a machine that is busy.
const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const TTL: Duration = Duration::from_secs(3);
/// Of who goes on with the majority: members that come back may call for one more election, which a short lease needn't outlive.
const LONG: Duration = Duration::from_secs(30);

/// Servers of the store under test.
pub(crate) trait Servers: Send + Sync + Sized + 'static {
    /// One on each host. Runs on one of the hosts, as all that follows.
    async fn start(hosts: &[Host]) -> Self;

    /// Where all of them are, for clients with leases of this length.
    fn url(&self, ttl: Duration) -> String;

    /// Which of them leads.
    async fn leader(&self) -> usize;

    /// Takes a name as a naive lock does: once its write has succeeded it believes that it holds, whatever becomes of its renewals. What
    /// it gives keeps them going.
    async fn take_naively(&self, name: &str) -> Box<dyn Send>;
}

/// The leader is cut off with a holder's client. The holder stops before the majority lets the next one in, whose token is larger; the
/// naive lock beside it, in the same network, has two holders then. When the network is whole again both sides see the one lock and
/// have it in turn.
pub(crate) async fn the_leader_is_cut_off_with_a_holder<S: Servers>() {
    let network = Network::new(5).unwrap();
    let [members @ .., few, many] = network.hosts() else { panic!("five hosts") };
    let places = members.to_vec();
    let servers = many.run(|| async move { Arc::new(S::start(&places).await) }).await.unwrap();

    let (work_done, until) = oneshot::channel();
    let naive = naive_holder(few, &servers, until).await;
    let (locks, guard, _) = taken(few, servers.url(TTL), "few", TTL, None).await;
    let guard = Arc::new(guard);
    let (token, watched) = (guard.fencing_token(), guard.clone());
    let holder = few.run(move || async move { watch("few", Some(token.get()), || watched.is_valid()).await });
    let told = guard.clone();
    let told = few.run(|| async move { (told.lost().await.kind(), monotonic_ns()) });

    let asked = servers.clone();
    let leader = many.run(|| async move { asked.leader().await }).await.unwrap();
    network.part([&members[leader], few]).unwrap();
    let cut_ns = monotonic_ns();

    let (asked, entered) = (servers.clone(), "naive");
    let naive_heir = many.run(move || async move {
        let kept = asked.take_naively(entered).await;
        (entry("many", entered, None), kept)
    });
    let (rival, heir, entered) = taken(many, servers.url(LONG), "many", LONG, Some(guard.clone())).await;
    let (kind, told_ns) = tokio::time::timeout(LIMIT, told).await.unwrap().unwrap();
    assert_eq!(kind, ErrorKind::Lost);
    assert!(told_ns < entered.start_ns, "told {:?} too late", since(entered.start_ns, told_ns));
    let held = holder.await.unwrap();
    println!(
        "held until {:?} after the cut, told at {:?}, the next one entered at {:?}; tokens {:?}, {:?}",
        since(cut_ns, held.definite_end_ns),
        since(cut_ns, told_ns),
        since(cut_ns, entered.start_ns),
        held.token.unwrap(),
        entered.token.unwrap(),
    );
    assert!(held.definite_end_ns > cut_ns, "nothing was held when the network was parted");
    judge([held, entered]).assert_clean(2);

    let (entered, _kept) = tokio::time::timeout(LIMIT, naive_heir).await.unwrap().unwrap();
    work_done.send(()).unwrap();
    let verdict = judge([naive.await.unwrap(), entered]);
    assert_eq!(verdict.overlaps.len(), 1, "the naive lock must be caught: {verdict}");

    let cut_off = locks.clone();
    let refused = few.run(|| async move { cut_off.mutex("other").wait(TTL / 2).lock().await.unwrap_err() });
    let refused = refused.await.unwrap();
    assert_eq!(refused.kind(), ErrorKind::Connection, "{refused}");

    network.heal().unwrap();
    both_sides_see_the_one_lock([few, many], [locks, rival], heir).await;
    assert!(!guard.is_valid());
}

/// Once the network is whole: what the majority gave is seen from the other side, and when it is given back both have it in turn.
async fn both_sides_see_the_one_lock([few, many]: [&Host; 2], managers: [LockManager; 2], heir: Guard) {
    let healed_ns = monotonic_ns();
    let seen = managers[0].clone();
    let sees = few.run(|| async move {
        let busy = async || seen.mutex("split").try_lock().await.err()?.is_busy().then_some(());
        wait::until("the lock to be seen as taken from both sides", LIMIT, busy).await.unwrap();
    });
    sees.await.unwrap();
    println!("both sides saw one lock {:?} after the network was whole", since(healed_ns, monotonic_ns()));
    heir.check().unwrap();
    let mut last = heir.fencing_token();
    // Members that come back may call for an election, in which a release isn't confirmed: it is told again, or its lease ends.
    many.run(|| async move { drop(heir.release().await) }).await.unwrap();
    for (host, locks) in [(few, &managers[0]), (many, &managers[1]), (few, &managers[0])] {
        let locks = locks.clone();
        let next = host.run(|| async move {
            let guard = locks.mutex("split").ttl(TTL).wait(LIMIT).lock().await.unwrap();
            let token = guard.fencing_token();
            drop(guard.release().await);
            token
        });
        let next = next.await.unwrap();
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// Takes the lock as a process on this host would, and says when; whoever held it `before` must have stopped by then.
async fn taken(
    host: &Host,
    url: String,
    label: &'static str,
    ttl: Duration,
    before: Option<Arc<Guard>>,
) -> (LockManager, Guard, Hold) {
    let taken = host.run(move || async move {
        // Servers that elect meanwhile may answer with an error.
        let connect = async || LockManager::builder().label(label).connect(&url).await.ok();
        let locks = wait::until("a connection", LIMIT, connect).await.unwrap();
        let attempt = async || locks.mutex("split").ttl(ttl).wait(LIMIT).lock().await.ok();
        let guard = wait::until("the lock", LIMIT, attempt).await.unwrap();
        // At once: an overlap may be short.
        let entered = entry(label, "split", Some(guard.fencing_token().get()));
        assert!(!before.is_some_and(|before| before.is_valid()), "two hold it");
        (locks, guard, entered)
    });
    taken.await.unwrap()
}

/// The naive lock's holder on this host, once it has its lock: never looks back, and holds until its work is done.
async fn naive_holder<S: Servers>(
    host: &Host,
    servers: &Arc<S>,
    work_done: oneshot::Receiver<()>,
) -> tokio::task::JoinHandle<Hold> {
    let servers = servers.clone();
    let (has, had) = oneshot::channel();
    let holder = host.run(move || async move {
        let _kept = servers.take_naively("naive").await;
        let hold = entry("few", "naive", None);
        has.send(()).unwrap();
        work_done.await.unwrap();
        Hold { definite_end_ns: monotonic_ns(), ..hold }
    });
    tokio::time::timeout(LIMIT, had).await.expect("the naive lock is free").unwrap();
    holder
}

/// Looks at a hold until it isn't valid any more.
async fn watch(owner: &str, token: Option<u64>, is_valid: impl Fn() -> bool) -> Hold {
    let mut hold = entry(owner, "split", token);
    loop {
        // Before the question, so that no pause between them counts.
        let now = monotonic_ns();
        if !is_valid() {
            return hold;
        }
        hold.definite_end_ns = now;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn entry(owner: &str, key: &str, token: Option<u64>) -> Hold {
    let now = monotonic_ns();
    Hold { owner: owner.into(), key: key.into(), token, start_ns: now, definite_end_ns: now }
}

fn judge(holds: [Hold; 2]) -> distlock_tests::history::Verdict {
    let mut history = History::new();
    holds.into_iter().for_each(|hold| history.add(hold));
    history.check()
}

fn since(start_ns: u64, end_ns: u64) -> Duration {
    Duration::from_nanos(end_ns.saturating_sub(start_ns))
}
