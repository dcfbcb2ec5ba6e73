//! Users that the servers know, and TLS.

use distlock::{ErrorKind, LockError, LockManager};
use distlock_tests::server::{TlsFiles, ZooKeeperServer, ZooKeeperSetup, shared_zookeeper};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission, SaslOptions};

use super::{LIMIT, fresh, places, raw};

async fn refused(url: &str) -> LockError {
    let error = LockManager::connect(url).await.expect_err(url);
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
    error
}

async fn works(url: &str) -> LockManager {
    let locks = LockManager::connect(url).await.unwrap();
    locks.mutex("works").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    locks
}

/// With the rights that the operator's guide gives to a user of SASL, on a node of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_by_sasl_is_told_from_others() {
    let setup = ZooKeeperSetup::default().user("locks", "s3cret").user("other", "s3cret2");
    let server = ZooKeeperServer::start_with(&setup).unwrap();
    let address = server.address();
    let rights = [Permission::CREATE, Permission::READ, Permission::WRITE, Permission::DELETE];
    let acl = [Acl::new(
        rights.into_iter().reduce(|one, other| one | other).unwrap(),
        AuthId::new("sasl", "locks"),
    )];
    let everybody = raw(address).await;
    everybody.create("/apps", b"", &CreateMode::Persistent.with_acls(Acls::new(&acl))).await.unwrap();

    let url = format!("zookeeper://locks:s3cret@{address}/apps?sasl=digest");
    let (locks, rival) = (works(&url).await, works(&url).await);
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(rival.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    // What is written is this user's alone.
    let user = Client::connector().with_sasl(SaslOptions::digest_md5("locks", "s3cret"));
    let user = user.connect(&address.to_string()).await.unwrap();
    let nodes = user.list_children("/apps/distlock/a").await.unwrap();
    let (acl, _) = user.get_acl(&format!("/apps/distlock/a/{}", nodes[0])).await.unwrap();
    assert_eq!(acl, [Acl::new(Permission::ALL, AuthId::new("sasl", "locks"))]);
    guard.release().await.unwrap();

    for stranger in [
        format!("zookeeper://{address}/apps"),
        format!("zookeeper://locks:s3cret@{address}/apps"),
        format!("zookeeper://other:s3cret2@{address}/apps?sasl=digest"),
    ] {
        let error = refused(&stranger).await;
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(error.to_string().contains("ACL"), "{error}");
    }
    for wrong in ["locks:s3cret-no", "nobody:s3cret-no"] {
        let error = refused(&format!("zookeeper://{wrong}@{address}/apps?sasl=digest")).await;
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(error.to_string().contains("refuses the credentials"), "{error}");
    }
    // Whatever numbers both sides draw.
    for _ in 0..48 {
        let user = Client::connector().with_sasl(SaslOptions::digest_md5("locks", "s3cret"));
        let user = user.connect(&address.to_string()).await.unwrap();
        let known = user.list_auth_users().await.unwrap();
        assert!(known.iter().any(|user| (user.scheme(), user.user()) == ("sasl", "locks")), "{known:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_sasl_is_told() {
    let server = shared_zookeeper().unwrap();
    let error = refused(&format!("zookeeper://locks:s3cret@{server}/{}?sasl=digest", fresh("apps"))).await;
    assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
    assert!(error.to_string().contains("doesn't do SASL"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_is_verified_both_ways() {
    let setup = ZooKeeperSetup::default().user("locks", "s3cret").tls();
    let server = ZooKeeperServer::start_with(&setup).unwrap();
    let (secure, TlsFiles { ca, wrong_ca, client_cert, client_key, .. }) = server.tls().unwrap();
    let certificate = format!("&cert={}&key={}", client_cert.display(), client_key.display());
    let url = |host: &str, login: &str, ca: &std::path::Path, more: &str| {
        format!("zookeeper+tls://{login}{host}:{}/apps?ca={}{more}", secure.port(), ca.display())
    };
    let locks = works(&url("127.0.0.1", "", ca, &certificate)).await;
    works(&url("localhost", "", ca, &certificate)).await;
    let _guard = locks.mutex("held").lock().await.unwrap();
    // The same lock by both doors.
    let plain = works(&format!("{}/apps", server.url())).await;
    assert_eq!(plain.mutex("held").try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    // Over TLS as a user of SASL, and as the certificate's.
    works(&(url("127.0.0.1", "locks:s3cret@", ca, &certificate) + "&sasl=digest&namespace=sasl")).await;
    let owner = works(&(url("127.0.0.1", "", ca, &certificate) + "&acl=creator&namespace=x509")).await;
    let _kept = owner.mutex("kept").lock().await.unwrap();
    assert_eq!(places(&raw(server.address()).await, "kept").await, Vec::<String>::new());
    let stranger = refused(&format!("{}/apps?namespace=x509", server.url())).await;
    assert_eq!(stranger.kind(), ErrorKind::Permission, "{stranger}");

    for wrong in [
        url("127.0.0.1", "", wrong_ca, &certificate),
        url("127.0.0.1", "", ca, ""),
        url("127.0.0.2", "", ca, &certificate),
        format!("zookeeper://{secure}/apps?session_timeout=2s"),
    ] {
        let error = refused(&wrong).await;
        assert_eq!(error.kind(), ErrorKind::Connection, "{wrong}: {error}");
    }
    let error = refused(&url("127.0.0.1", "", wrong_ca, &certificate)).await;
    assert!(error.to_string().contains("trust"), "{error}");
    let mixed = format!("&cert={}&key={}", client_cert.display(), ca.display());
    let error = refused(&url("127.0.0.1", "", ca, &mixed)).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}
