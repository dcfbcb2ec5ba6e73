//! The example that runs on every store: it is content where the store does what it says, and notices where there is no lock in common.

#[path = "../../examples/any_store.rs"]
#[allow(dead_code, reason = "its main is for those who run it")]
mod any_store;

use std::time::Duration;

use distlock_tests::{
    example,
    server::{EtcdCluster, EtcdSetup, RedisOptions, RedisServer, SharedPostgres, shared_zookeeper},
};

const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn it_runs_as_its_readers_run_it() {
    let program = tokio::task::spawn_blocking(|| example::build("any_store")).await.unwrap();
    let server = RedisServer::start(RedisOptions::new()).unwrap();
    let urls = [vec![], vec![server.url()], vec!["memory:any-store".to_owned(), "--alone".to_owned()]];
    for (arguments, (content, summary)) in urls.into_iter().zip([
        (true, "summary store=\"memory\" sections=40 overlaps=0 can=8 refuses=0 broken=[]"),
        (true, "summary store=\"Redis, one node\" sections=40 overlaps=0 can=8 refuses=0 broken=[]"),
        (false, "summary store=\"memory\" sections=40 overlaps="),
    ]) {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let worker = example::start(&program, None, &arguments);
        let status = worker.wait_exit(LIMIT).await.unwrap();
        let last = worker.lines().last().cloned().unwrap_or_default();
        assert!(status.success() == content && last.starts_with(summary), "{arguments:?}: {last}");
    }
}

#[tokio::test]
async fn it_is_content_with_a_store_that_refuses_much() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start(RedisOptions::new()).unwrap()).collect();
    let places: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
    assert!(
        any_store::play(&format!("redlock://{}?node_timeout=1s", places.join(",")), false).await.unwrap()
    );
}

#[tokio::test]
async fn it_is_content_with_etcd() {
    let server = EtcdCluster::start(EtcdSetup::new(1)).await.unwrap();
    assert!(any_store::play(&server.url(), false).await.unwrap());
}

#[tokio::test]
async fn it_is_content_with_zookeeper() {
    let url = format!("zookeeper://{}", shared_zookeeper().unwrap());
    assert!(any_store::play(&url, false).await.unwrap());
}

#[tokio::test]
async fn it_is_content_with_postgres() {
    let server = SharedPostgres::attach().unwrap();
    assert!(any_store::play(&server.url(), false).await.unwrap());
}
