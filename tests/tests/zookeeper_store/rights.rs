//! With the rights that the operator's guide gives, and with fewer.

use distlock::{ErrorKind, LockManager};
use distlock_tests::server::shared_zookeeper;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission};

use super::{LIMIT, fresh, raw};

const RIGHTS: [Permission; 4] = [Permission::CREATE, Permission::READ, Permission::WRITE, Permission::DELETE];

/// The digest of `locks:secret`, as `DigestAuthenticationProvider` and the guide's line make it.
const LOCKS: &str = "locks:dgsOzHz4elhy8tunEeVLATOtz8M=";

async fn chroot(server: std::net::SocketAddr) -> String {
    // As the server itself says it: by a node of that user.
    let user = Client::connector().with_auth("digest", b"locks:secret");
    let user = user.connect(&server.to_string()).await.unwrap();
    let probe = format!("/{}", fresh("probe"));
    user.create(&probe, b"", &CreateMode::Ephemeral.with_acls(Acls::creator_all())).await.unwrap();
    let (acl, _) = user.get_acl(&probe).await.unwrap();
    assert_eq!(acl[0].auth_id(), &AuthId::new("digest", LOCKS), "the digest in this test");
    let path = format!("/{}", fresh("apps"));
    let rights = RIGHTS.into_iter().reduce(|one, other| one | other).unwrap();
    let acl = [Acl::new(rights, AuthId::new("digest", LOCKS))];
    raw(server).await.create(&path, b"", &CreateMode::Persistent.with_acls(Acls::new(&acl))).await.unwrap();
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_with_the_least_rights_and_nothing_without() {
    let server = shared_zookeeper().unwrap();
    let path = chroot(server).await;
    let url = format!("zookeeper://locks:secret@{server}{path}");
    let locks = LockManager::connect(&url).await.unwrap();
    let guard = locks.mutex("a").wait(LIMIT).lock().await.unwrap();
    let rival = LockManager::connect(&url).await.unwrap();
    assert_eq!(rival.mutex("a").try_lock().await.unwrap_err().kind(), ErrorKind::Busy);
    let waiting = tokio::spawn(rival.mutex("a").wait(LIMIT).lock());
    assert_eq!(locks.list("").await.unwrap().len(), 1);
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    let reader = locks.rw_lock("rw").read().await.unwrap().try_upgrade().await.unwrap();
    reader.downgrade().await.unwrap().release().await.unwrap();
    let permits = locks.semaphore("gpu", 3).acquire_many(2).await.unwrap();
    assert!(locks.semaphore("gpu", 3).resize(4).await.unwrap());
    permits.release().await.unwrap();
    let owned = locks.mutex("owned").owner("x").lock().await.unwrap();
    rival.mutex("owned").owner("x").lock().await.unwrap().release().await.unwrap();
    owned.release().await.unwrap();
    locks.mutex_all(["one", "two"]).lock().await.unwrap().release().await.unwrap();
    let kept = locks.mutex("kept").hold_at_least(std::time::Duration::from_millis(300)).lock().await.unwrap();
    kept.release().await.unwrap();
    rival.mutex("kept").wait(LIMIT).lock().await.unwrap().release().await.unwrap();
    let forced = locks.mutex("force").lock().await.unwrap();
    assert!(rival.force_release("force", "a test").await.unwrap().is_some());
    drop(forced);

    for stranger in
        [format!("zookeeper://{server}{path}"), format!("zookeeper://other:secret@{server}{path}")]
    {
        // The servers take any password for that of some user: what it may not do tells.
        let error = LockManager::connect(&stranger).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{error}");
        assert!(error.to_string().contains("ACL") && !error.to_string().contains("secret"), "{error}");
    }
}
