//! Credentials from a provider: rotated passwords, tokens that lapse.

use std::{
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use distlock::{
    ErrorKind, LockManager,
    backend::{
        Clock,
        redis::{CredentialProvider, Credentials, RedisBackend, RedisOptions},
    },
};
use distlock_tests::{
    server::{self, ClusterGroup, RedisServer, SentinelGroup},
    wait,
};

const LIMIT: Duration = Duration::from_secs(20);

/// What a vault would be: the present credentials, and how often they were asked for.
#[derive(Clone)]
struct Vault(Arc<(Mutex<Result<Credentials, String>>, AtomicU64)>);

impl Vault {
    fn with(credentials: Credentials) -> Self {
        Self(Arc::new((Mutex::new(Ok(credentials)), AtomicU64::new(0))))
    }

    fn put(&self, credentials: Result<Credentials, String>) {
        *self.0.0.lock().unwrap() = credentials;
    }

    fn asked(&self) -> u64 {
        self.0.1.load(Ordering::Relaxed)
    }

    async fn give(self) -> Result<Credentials, Box<dyn Error + Send + Sync>> {
        self.0.1.fetch_add(1, Ordering::Relaxed);
        Ok(self.0.0.lock().unwrap().clone()?)
    }

    async fn connect(&self, url: &str) -> LockManager {
        let vault = self.clone();
        connect(url, move || vault.clone().give()).await
    }
}

async fn connect(url: &str, provider: impl CredentialProvider + 'static) -> LockManager {
    let options = RedisOptions::from_url(url).unwrap().credentials(provider);
    let backend = RedisBackend::open(&options, Clock::System).unwrap();
    LockManager::builder().backend(backend).await.unwrap()
}

fn open_url(server: &RedisServer) -> String {
    server.url_with("", "", 0)
}

async fn admin(server: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.exec_async(&mut server.admin().await.unwrap()).await.unwrap();
}

/// Ends all connections but the harness's own.
async fn cut(server: &RedisServer, user: &str) {
    admin(server, &["CLIENT", "KILL", "USER", user]).await;
}

#[tokio::test]
async fn a_rotated_password_is_used_from_the_next_connection_on() {
    let server = RedisServer::start(server::RedisOptions::new().password("old")).unwrap();
    let vault = Vault::with(Credentials::new("old"));
    let locks = vault.connect(&open_url(&server)).await;
    let fixed = LockManager::connect(&server.url()).await.unwrap();
    let guard = locks.mutex("k").ttl(Duration::from_secs(2)).lock().await.unwrap();

    admin(&server, &["CONFIG", "SET", "requirepass", "new"]).await;
    vault.put(Ok(Credentials::new("new")));
    let asked = vault.asked();
    cut(&server, "default").await;
    // The lease outlives it: renewed over a connection of the new password.
    locks.mutex("other").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    wait::until("the watchdog to be back", LIMIT, async || (vault.asked() >= asked + 2).then_some(()))
        .await
        .unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(3), guard.lost()).await.is_err(), "it is renewed");
    guard.release().await.unwrap();
    let error = fixed.mutex("k").lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permission, "the password of a URL stays the old one: {error}");
}

#[tokio::test]
async fn credentials_that_lapse_are_renewed_on_the_open_connection() {
    let user = |name: &str| format!("{name} on >secret-{name} ~* &* +@all");
    let options = server::RedisOptions::new().password("x").user(user("one")).user(user("two"));
    let server = RedisServer::start(options).unwrap();
    let given = |name: &str| {
        Credentials::new(format!("secret-{name}")).username(name).valid_for(Duration::from_secs(1))
    };
    let vault = Vault::with(given("one"));
    let locks = vault.connect(&open_url(&server)).await;
    let guard = locks.mutex("k").lock().await.unwrap();
    // The vault is away for a moment, when it is asked.
    vault.put(Err("sealed".to_owned()));
    let asked = vault.asked();
    wait::until("it to be asked", LIMIT, async || (vault.asked() > asked).then_some(())).await.unwrap();
    vault.put(Ok(given("two")));
    let connections = async |name: &str| {
        let mut list = redis::cmd("CLIENT");
        list.arg("LIST");
        let list: String = list.query_async(&mut server.admin().await.unwrap()).await.unwrap();
        list.lines().filter(|line| line.contains(&format!("user={name} "))).count()
    };
    wait::until("every connection to be the other user's", LIMIT, async || {
        (connections("one").await == 0 && connections("two").await == 2).then_some(())
    })
    .await
    .unwrap();
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_provider_that_fails_is_an_outage_that_passes() {
    let server = RedisServer::start(server::RedisOptions::new().password("pw")).unwrap();
    let vault = Vault::with(Credentials::new("pw"));
    let locks = vault.connect(&open_url(&server)).await;
    vault.put(Err("the vault is sealed".to_owned()));
    cut(&server, "default").await;
    let error = locks.mutex("k").wait(Duration::from_millis(500)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("the vault is sealed"), "{error}");
    vault.put(Ok(Credentials::new("wrong")));
    let refused = async || {
        let error = locks.mutex("k").wait(Duration::from_millis(500)).lock().await.unwrap_err();
        (error.kind() == ErrorKind::Permission).then_some(error.to_string())
    };
    let text = wait::until("the password to be refused", LIMIT, refused).await.unwrap();
    assert!(!text.contains("wrong"), "{text}");
    vault.put(Ok(Credentials::new("pw")));
    let back = async || locks.mutex("k").wait(LIMIT).lock().await.ok();
    wait::until("the lock", LIMIT, back).await.unwrap().release().await.unwrap();
}

/// Two connections, each of which asks twice a second at most.
#[tokio::test]
async fn credentials_that_lapse_at_once_are_no_busy_loop() {
    let server = RedisServer::start(server::RedisOptions::new().password("pw")).unwrap();
    let vault = Vault::with(Credentials::new("pw").valid_for(Duration::ZERO));
    let locks = vault.connect(&open_url(&server)).await;
    locks.mutex("k").lock().await.unwrap().release().await.unwrap();
    let (asked, begin) = (vault.asked(), Clock::System.now());
    wait::until("new ones to be asked for", LIMIT, async || (vault.asked() >= asked + 8).then_some(()))
        .await
        .unwrap();
    assert!(Clock::System.now() - begin > Duration::from_secs(1));
}

#[tokio::test]
async fn the_provider_goes_with_the_manager_and_not_with_the_term_of_what_it_gave() {
    let server = RedisServer::start(server::RedisOptions::new().password("pw")).unwrap();
    let is_kept = Arc::new(());
    let vault = Vault::with(Credentials::new("pw").valid_for(Duration::from_secs(3600)));
    let (given, there) = (vault.clone(), Arc::clone(&is_kept));
    let locks = connect(&open_url(&server), move || {
        let _ = &there;
        given.clone().give()
    })
    .await;
    for _ in 0..3 {
        locks.mutex("k").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
        cut(&server, "default").await;
    }
    drop(locks);
    let gone = async || (Arc::strong_count(&is_kept) == 1).then_some(());
    wait::until("nobody to have the provider", LIMIT, gone).await.unwrap();
}

#[tokio::test]
async fn a_provider_that_panics_is_an_outage_that_passes() {
    let server = RedisServer::start(server::RedisOptions::new().password("pw")).unwrap();
    let broken = Arc::new(AtomicBool::new(false));
    let asked = Arc::new(AtomicU64::new(0));
    let (breaks, asks) = (Arc::clone(&broken), Arc::clone(&asked));
    let locks = connect(&open_url(&server), move || {
        asks.fetch_add(1, Ordering::AcqRel);
        assert!(!breaks.load(Ordering::Acquire), "a fault of the provider");
        async { Ok(Credentials::new("pw").valid_for(Duration::from_secs(1))) }
    })
    .await;
    let guard = locks.mutex("held").lock().await.unwrap();
    let two_more = async || {
        let before = asked.load(Ordering::Acquire);
        let more = async || (asked.load(Ordering::Acquire) >= before + 4).then_some(());
        wait::until("it to be asked again by both connections", LIMIT, more).await.unwrap();
    };
    broken.store(true, Ordering::Release);
    // Open connections go on, and ask again.
    two_more().await;
    cut(&server, "default").await;
    let error = locks.mutex("k").wait(Duration::from_millis(500)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("the provider panicked"), "{error}");
    broken.store(false, Ordering::Release);
    locks.mutex("k").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    two_more().await;
    guard.release().await.unwrap();
}

/// It may take a good part of the connect timeout, also where the way has several steps.
#[tokio::test]
async fn a_slow_provider_is_waited_for_on_every_way() {
    // Longer than one step may take; both runtimes may ask one after the other, and a busy machine is slow too.
    const SLOW: Duration = Duration::from_millis(1_800);
    let options = server::RedisOptions::new().password("pw");
    let cluster = ClusterGroup::start_with(1, 0, options.clone());
    let sentinels = SentinelGroup::start_with(1, 1, options, server::RedisOptions::new());
    let slow = async |url: String| {
        let url = url.replace(":pw@", "");
        let locks = connect(&url, async || {
            tokio::time::sleep(SLOW).await;
            Ok(Credentials::new("pw"))
        })
        .await;
        locks.mutex("k").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    };
    tokio::join!(slow(cluster.url("")), slow(sentinels.url("")));
}

/// Whoever waits goes on waiting, and leases are renewed over connections of the new password.
#[tokio::test]
async fn a_password_is_rotated_on_all_servers_of_a_cluster_while_many_wait() {
    let cluster = ClusterGroup::start_with(3, 0, server::RedisOptions::new().password("old"));
    let vault = Vault::with(Credentials::new("old"));
    let url = cluster.url("").replace(":old@", "");
    let (locks, rival) = (vault.connect(&url).await, vault.connect(&url).await);
    let mut held = Vec::new();
    let mut waiting = Vec::new();
    for server in 0..3 {
        let name = cluster.name_at(server);
        held.push(locks.mutex(name.as_str()).ttl(Duration::from_secs(6)).lock().await.unwrap());
        waiting.extend((0..100).map(|_| tokio::spawn(rival.mutex(name.as_str()).wait(LIMIT * 3).lock())));
        let stands = async || (locks.inspect(name.as_str()).await.unwrap().waiters >= 1).then_some(());
        wait::until("somebody to wait", LIMIT, stands).await.unwrap();
    }
    let rotated = Clock::System.now();
    for server in cluster.servers() {
        admin(server, &["CONFIG", "SET", "requirepass", "new"]).await;
    }
    vault.put(Ok(Credentials::new("new")));
    for server in cluster.servers() {
        cut(server, "default").await;
    }
    let outlived = async || (Clock::System.now() - rotated > Duration::from_secs(7)).then_some(());
    wait::until("leases to have lapsed without renewals", LIMIT, outlived).await.unwrap();
    for guard in held {
        guard.check().unwrap();
        guard.release().await.unwrap();
    }
    for waiting in waiting {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// The same behind Sentinels, whose own connections have another user.
#[tokio::test]
async fn a_password_is_rotated_on_a_primary_behind_sentinels() {
    let options = server::RedisOptions::new().user("app on >old ~* &* +@all");
    let group = SentinelGroup::start_with(1, 1, options, server::RedisOptions::new());
    let given = |password: &str| Credentials::new(password).username("app");
    let vault = Vault::with(given("old"));
    let locks = vault.connect(&group.url("")).await;
    let guard = locks.mutex("k").ttl(Duration::from_secs(2)).lock().await.unwrap();
    for server in group.servers() {
        admin(server, &["ACL", "SETUSER", "app", ">new", "<old"]).await;
    }
    vault.put(Ok(given("new")));
    cut(&group.servers()[0], "app").await;
    locks.mutex("other").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(3), guard.lost()).await.is_err(), "it is renewed");
    guard.release().await.unwrap();
}

/// A server's certificate is renewed by the authority that is trusted: of a Cluster, and of a primary behind Sentinels.
#[tokio::test]
async fn a_certificate_is_renewed_while_locks_are_held() {
    let tls = server::RedisOptions::new().tls(server::ClientCerts::Ignored);
    let cluster = ClusterGroup::start_with(1, 0, tls.clone());
    let sentinels = SentinelGroup::start_with(0, 1, tls, server::RedisOptions::new());
    let cases = [
        (&cluster.servers()[0], cluster.url("tls=on")),
        (&sentinels.servers()[0], sentinels.url("tls=on&sentinel_tls=off")),
    ];
    for (server, url) in cases {
        let url = format!("{url}&ca={}", server.tls().unwrap().ca.display());
        let locks = LockManager::connect(&url).await.unwrap();
        let guard = locks.mutex("k").ttl(Duration::from_secs(2)).lock().await.unwrap();
        server.renew_certificate().await.unwrap();
        cut(server, "default").await;
        locks.mutex("other").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(3), guard.lost()).await.is_err(), "it is renewed");
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn every_server_of_a_cluster_is_shown_them() {
    let cluster = ClusterGroup::start_with(3, 0, server::RedisOptions::new().password("pw"));
    let vault = Vault::with(Credentials::new("pw"));
    let url = cluster.url("").replace(":pw@", "");
    let locks = vault.connect(&url).await;
    for n in 0..20 {
        locks.mutex(format!("k{n}")).lock().await.unwrap().release().await.unwrap();
    }
    assert!(vault.asked() >= 3, "once for each connection");
}

#[test]
fn fixed_and_provided_credentials_do_not_go_together() {
    let options = RedisOptions::from_url("redis://:pw@localhost").unwrap();
    let options = options.credentials(async || Ok(Credentials::new("other")));
    let error = RedisBackend::open(&options, Clock::System).unwrap_err();
    assert!(error.to_string().contains("choose one"), "{error}");
    assert!(!format!("{options:?}").contains("other"));
}
