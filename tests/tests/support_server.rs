//! The servers of the harness themselves: each option has the effect that other suites rely on.

use std::time::Duration;

use distlock_tests::{
    server::{ClientCerts, RedisOptions, RedisServer},
    wait,
};
use redis::{AsyncConnectionConfig, AsyncTypedCommands, Client};

const LIMIT: Duration = Duration::from_secs(10);

async fn connect(url: &str) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    Client::open(url)?.get_multiplexed_async_connection().await
}

#[tokio::test]
async fn answers_and_is_gone_after_drop() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let (url, folder) = (server.url(), server.folder().to_owned());
    connect(&url).await.unwrap().set("k", "v").await.unwrap();
    assert_eq!(server.keys().await.unwrap(), ["k"]);
    drop(server);
    assert!(connect(&url).await.is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn servers_side_by_side_have_ports_of_their_own() {
    let servers: Vec<_> = (0..8).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect();
    for (number, server) in servers.iter().enumerate() {
        connect(&server.url()).await.unwrap().set("n", number).await.unwrap();
    }
    for (number, server) in servers.iter().enumerate() {
        let stored = connect(&server.url()).await.unwrap().get("n").await.unwrap();
        assert_eq!(stored, Some(number.to_string()));
    }
}

#[tokio::test]
async fn restart_keeps_port_and_with_aof_the_data() {
    for (options, left) in [(RedisOptions::new().aof(), Some("v".to_owned())), (RedisOptions::new(), None)] {
        let server = RedisServer::start(options).unwrap();
        let port = server.port();
        connect(&server.url()).await.unwrap().set("k", "v").await.unwrap();
        server.kill().unwrap();
        assert!(connect(&server.url()).await.is_err());
        assert!(server.pid().is_err());
        server.restart().unwrap();
        assert_eq!(server.port(), port);
        assert_eq!(connect(&server.url()).await.unwrap().get("k").await.unwrap(), left);
    }
}

#[tokio::test]
async fn a_fixed_port_is_used_or_refused() {
    let first = RedisServer::start(RedisOptions::new()).unwrap();
    let port = first.port();
    assert!(RedisServer::start(RedisOptions::new().port(port)).is_err());
    drop(first);
    assert_eq!(RedisServer::start(RedisOptions::new().port(port)).unwrap().port(), port);
}

#[tokio::test]
async fn a_paused_server_is_silent_until_resumed() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    server.pause().unwrap();
    let mut answer = Box::pin(connection.set("k", "v"));
    tokio::time::timeout(Duration::from_millis(100), &mut answer).await.unwrap_err();
    server.resume().unwrap();
    tokio::time::timeout(LIMIT, answer).await.unwrap().unwrap();
    // A stopped process must not survive its owner either.
    server.pause().unwrap();
    let pid = server.pid().unwrap();
    drop(server);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn asks_for_the_password_and_knows_users() {
    let server = RedisServer::start(
        RedisOptions::new().password("p@ss \"word\"/#").user("lk on >sesame ~lk:* -@all +ping +set +select"),
    )
    .unwrap();
    connect(&server.url()).await.unwrap().set("any", 1).await.unwrap();
    let mut stranger = connect(&server.url_with("", "", 0)).await.unwrap();
    assert_eq!(stranger.ping().await.unwrap_err().code(), Some("NOAUTH"));
    assert!(connect(&server.url_with("lk", "wrong", 0)).await.is_err());

    let mut user = connect(&server.url_with("lk", "sesame", 3)).await.unwrap();
    user.set("lk:1", 1).await.unwrap();
    assert_eq!(user.set("other", 1).await.unwrap_err().code(), Some("NOPERM"));
    assert_eq!(server.keys().await.unwrap(), ["any", "lk:1"], "of every database");
}

#[tokio::test]
async fn tls_is_verified_both_ways() {
    for certs in [ClientCerts::Ignored, ClientCerts::Required] {
        let server = RedisServer::start(RedisOptions::new().tls(certs)).unwrap();
        let files = server.tls().unwrap();
        let ping = async |ca: &std::path::Path, with_cert: bool| {
            let client_tls = with_cert.then(|| redis::ClientTlsConfig {
                client_cert: std::fs::read(&files.client_cert).unwrap(),
                client_key: std::fs::read(&files.client_key).unwrap(),
            });
            let root_cert = Some(std::fs::read(ca).unwrap());
            let certs = redis::TlsCertificates { client_tls, root_cert };
            let client = Client::build_with_tls(server.url(), certs)?;
            client.get_multiplexed_async_connection().await?.ping().await
        };
        assert_eq!(ping(&files.ca, true).await.unwrap(), "PONG");
        assert_eq!(ping(&files.ca, false).await.is_ok(), certs == ClientCerts::Ignored);
        assert!(ping(&files.wrong_ca, true).await.is_err());
        server.restart().unwrap();
        assert_eq!(ping(&files.ca, true).await.unwrap(), "PONG");
    }
}

#[tokio::test]
async fn a_full_server_refuses_writes() {
    let options = RedisOptions::new().max_memory("1mb", "noeviction");
    let server = RedisServer::start(options).unwrap();
    let mut connection = connect(&server.url()).await.unwrap();
    assert_eq!(connection.set("k", vec![0; 2_000_000]).await.unwrap_err().code(), Some("OOM"));
}

#[tokio::test]
async fn a_bad_configuration_is_an_error_that_shows_the_log() {
    let error = RedisServer::start(RedisOptions::new().config("no-such-option 1")).unwrap_err();
    assert!(format!("{error:#}").contains("no-such-option"), "{error:#}");
}

#[tokio::test]
async fn admin_sees_keys_clients_and_commands() {
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    assert_eq!(server.client_count().await.unwrap(), 0);
    let mut connection = connect(&server.url()).await.unwrap();
    assert_eq!(server.client_count().await.unwrap(), 1);

    let monitor = server.monitor().await.unwrap();
    assert_eq!(server.client_count().await.unwrap(), 1, "the harness's own don't count");
    connection.set("stays", 1).await.unwrap();
    connection.set_ex("goes", 1, 100).await.unwrap();
    assert_eq!(server.keys().await.unwrap(), ["goes", "stays"]);
    assert_eq!(server.keys_without_ttl().await.unwrap(), ["stays"]);
    let seen = |lines: &[String]| lines.iter().any(|line| line.contains("\"goes\"")).then_some(());
    monitor.wait_until("the command in MONITOR", LIMIT, seen).await.unwrap();

    assert_eq!(server.commandstats().await.unwrap()["set"], 1);
    server.reset_stats().await.unwrap();
    assert!(!server.commandstats().await.unwrap().contains_key("set"));
    server.flush().await.unwrap();
    assert_eq!(server.keys().await.unwrap(), Vec::<String>::new());

    drop(connection);
    let gone = async || (server.client_count().await.unwrap() == 0).then_some(());
    wait::until("no client left", LIMIT, gone).await.unwrap();
}
