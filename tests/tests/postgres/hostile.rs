//! A database that others use too, and what happens to sessions behind the client's back.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use distlock::{
    ErrorKind, Holder, LockKey,
    backend::{Applied, Attempt, BackendErrorKind, Blocked, Renewal},
};
use distlock_tests::{server::PgBouncer, wait::until};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::tools::{Corner, LIMIT, backend, granted, key, ms, release, request};

const TTL: Duration = Duration::from_secs(60);

/// A function that fits the arguments better than the server's own, in a schema that the role looks through: whoever may create there
/// would run with the rights of the services, or take every lock's turn away. The
/// control calls by name alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_others_are_not_called() {
    let corner = Corner::new();
    let admin = corner.admin().await;
    let evil = format!("evil_{}", corner.schema);
    let trap = |name: &str, arguments: &str, result: &str| {
        format!(
            "create function {evil}.{name}({arguments}) returns {result} language plpgsql as \
             $$ begin raise 'somebody else''s {name} was called'; end $$;"
        )
    };
    let traps = [
        trap("hashtextextended", "text, integer", "bigint"),
        trap("pg_notify", "text, character varying", "void"),
        trap("greatest_of", "bigint, interval", "interval"),
        format!(
            "create operator {evil}.* (leftarg = bigint, rightarg = interval, function = {evil}.greatest_of);"
        ),
    ];
    admin.batch_execute(&format!("create schema {evil}; {}", traps.join("\n"))).await.unwrap();
    let store = backend(&format!("{}&options=-csearch_path%3D{evil}", corner.url()), "trapped");
    let request = request(&key("trapped"), TTL);
    granted(&*store, &request).await;
    let renewals = store.renew(&[request.lease()]).await;
    assert!(matches!(renewals[..], [Renewal::Renewed { .. }]), "{renewals:?}");
    release(&*store, &request.lease()).await;

    admin.batch_execute(&format!("set search_path to {evil}")).await.unwrap();
    let naive = admin.query_one("select hashtextextended('trapped', 0)", &[]).await.unwrap_err();
    let trapped = naive.as_db_error().is_some_and(|error| error.message().contains("was called"));
    assert!(trapped, "the naive call must be trapped: {naive}");
    admin.batch_execute("reset search_path").await.unwrap();

    // All of them, also those that this test doesn't call: a path of their own, or every name in full.
    let functions = "select proname::text, prosrc, coalesce(proconfig @> array['search_path=pg_catalog, pg_temp'], false) \
                     from pg_proc where pronamespace = $1::text::regnamespace";
    let mut in_full = 0;
    for row in admin.query(functions, &[&corner.schema]).await.unwrap() {
        let (name, body, has_path): (String, String, bool) = (row.get(0), row.get(1), row.get(2));
        if !has_path {
            in_full += 1;
            assert_eq!(looked_up(&body), Vec::<String>::new(), "in {name}");
        }
    }
    assert!(in_full > 0);
    let control = "x := a + f(pg_catalog.g(b)); -- c + d(e)\nupdate t set a = b, c = d where e = f";
    assert_eq!(looked_up(control), ["+", "=", "f"], "the control");
}

/// The operators and functions of a text that are looked up by the path.
fn looked_up(body: &str) -> Vec<String> {
    let text: String = body.lines().filter_map(|line| line.split("--").next()).collect::<Vec<_>>().join(" ");
    let strings_gone = text.split('\'').step_by(2).collect::<String>();
    let mut rest = strings_gone.replace(":=", " ").replace("::", " ").replace("=>", " ").replace("..", " ");
    while let Some((before, after)) = rest.split_once("operator(pg_catalog.") {
        rest = format!("{before} {}", after.split_once(')').unwrap().1);
    }
    let mut found = Vec::new();
    for (place, sign) in rest.match_indices(|letter| "+-*/<>=~!@#%^&|`?".contains(letter)) {
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let before = rest[..place].trim_end().trim_end_matches(is_word).trim_end();
        // Where a column is set.
        if sign != "=" || !(before.ends_with("set") || before.ends_with(',')) {
            found.push(sign.to_owned());
        }
    }
    for (place, _) in rest.match_indices('(') {
        let before = rest[..place].trim_end();
        let word =
            before.rsplit(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != '.').next();
        let word = word.unwrap_or_default();
        if !word.is_empty()
            && !word.contains('.')
            && !["and", "coalesce", "conflict", "exists", "greatest", "if", "values"].contains(&word)
        {
            found.push(word.to_owned());
        }
    }
    found
}

/// Somebody's long transaction holds what a statement of ours needs. Each statement that its client gave up would go on waiting, and
/// the retries would take one connection of the server after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_block_is_told_and_leaves_no_session_waiting() {
    let corner = Corner::new();
    let (store, other) = (corner.backend("one"), corner.backend("two"));
    let (turn, row) = (LockKey::new("turn").unwrap(), LockKey::new("row").unwrap());
    let held = request(&row, TTL);
    granted(&*other, &held).await;
    let blocker = corner.admin().await;
    let lock = format!(
        "begin; {}; select from {}.plain where name = '{row}' for update",
        corner.entry(&turn),
        corner.schema
    );
    blocker.batch_execute(&lock).await.unwrap();
    let attempt = request(&turn, TTL);
    let leases = [held.lease()];
    let (attempt, renewals) = tokio::join!(store.try_acquire(&attempt), other.renew(&leases));
    let refused = attempt.unwrap_err();
    assert_eq!(
        (refused.kind(), refused.applied()),
        (BackendErrorKind::Unavailable, Applied::No),
        "{refused}"
    );
    assert!(matches!(renewals[..], [Renewal::Unknown(_)]), "{renewals:?}");
    let waiting: i64 = corner
        .admin()
        .await
        .query_one(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'",
            &[&corner.schema],
        )
        .await
        .unwrap()
        .get(0);
    assert_eq!(waiting, 0, "sessions that wait for nobody");
    drop(blocker);
    until("both to work again", LIMIT, async || {
        let renewed = matches!(other.renew(&leases).await[..], [Renewal::Renewed { .. }]);
        (renewed && matches!(store.try_acquire(&request(&turn, TTL)).await, Ok(Attempt::Granted(_))))
            .then_some(())
    })
    .await
    .unwrap();
}

/// Connections that end at once when this is dropped.
struct Road {
    address: SocketAddr,
    _connections: JoinSet<()>,
}

impl Road {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                open.spawn(async move {
                    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Self { address, _connections: connections }
    }
}

/// The pooler says in an error of its own that its server has gone; the server goes on with the statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_a_pooler_that_loses_its_server_leaves_the_outcome_open() {
    let corner = Corner::new();
    granted(&*corner.backend("tables"), &request(&key("tables"), TTL)).await;
    let road = Road::to(corner.server.port()).await;
    let pooler = PgBouncer::start(road.address.port(), 4).unwrap();
    let store = backend(&format!("{}?schema={}", pooler.url(), corner.schema), "pooled");
    store.ping().await.unwrap();
    let key = LockKey::new("turn").unwrap();
    let blocker = corner.admin().await;
    blocker.batch_execute(&format!("begin; {}", corner.entry(&key))).await.unwrap();
    let asked = request(&key, TTL);
    let attempt = tokio::spawn({
        let (store, asked) = (Arc::clone(&store), asked.clone());
        async move { store.try_acquire(&asked).await }
    });
    let admin = corner.admin().await;
    corner.waiting(&admin, 1).await;
    drop(road);
    let failure = attempt.await.unwrap().unwrap_err();
    drop(blocker);
    let direct = corner.backend("direct");
    until("the statement to take effect", LIMIT, async || {
        direct.inspect(&key).await.unwrap().holder.map(|_| ())
    })
    .await
    .unwrap();
    assert_eq!(failure.applied(), Applied::Unknown, "{failure}");
}

/// The session's end is seen at once, and so are the losses, however long the ttl is: somebody else may have the lock by now.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fault_the_end_of_a_session_is_told_at_once() {
    let corner = Corner::new();
    let locks = crate::tools::manager(&format!("{}&mode=advisory", corner.url()), "one").await;
    let (one, two) = (key("one"), key("two"));
    let first = locks.mutex(&one).ttl(TTL).lock().await.unwrap();
    let second = locks.mutex(&two).ttl(TTL * 60).lock().await.unwrap();
    let end = format!("select pg_terminate_backend(pid) from {}.holder limit 1", corner.schema);
    corner.admin().await.batch_execute(&end).await.unwrap();
    // Their renewals come after 20 s and 20 min.
    for guard in [&first, &second] {
        let lost = tokio::time::timeout(Duration::from_secs(8), guard.lost()).await;
        assert_eq!(lost.expect("told at once").kind(), ErrorKind::Lost);
    }
}

/// What the row says of a holder that is stopped, or cut off, is long over, while the server keeps its lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "it measures wall time")]
async fn waiters_behind_a_stopped_holder_ask_no_faster() {
    let corner = Corner::new();
    let store = backend(&format!("{}&mode=advisory", corner.url()), "waits");
    let request = request(&key("stopped"), TTL);
    let blocked = Blocked { holder: Some(Holder::new(Some("stopped".to_owned()), Some(Duration::ZERO))) };
    for _ in 0..5 {
        let start = std::time::Instant::now();
        store.turn(&request, &blocked).await.unwrap();
        assert!(start.elapsed() >= ms(20), "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_sessions_that_ended_are_taken_away() {
    let corner = Corner::new();
    let store = backend(&format!("{}&mode=advisory", corner.url()), "holds");
    for name in ["gone", "held"] {
        granted(&*store, &request(&LockKey::new(name).unwrap(), TTL)).await;
    }
    let admin = corner.admin().await;
    let schema = &corner.schema;
    // "gone" is held by nobody: another number than that of any lock.
    admin
        .batch_execute(&format!(
            "update {schema}.holder set expires_at = clock_timestamp() - interval '1 hour'; \
             update {schema}.holder set key = -key where name = 'gone'; select {schema}.purge_locks(1000)"
        ))
        .await
        .unwrap();
    let left = admin.query(&format!("select name from {schema}.holder"), &[]).await.unwrap();
    assert_eq!(left.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["held"]);
}
