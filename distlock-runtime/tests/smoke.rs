//! smoke
use distlock_runtime::*;
use std::time::Duration;

#[tokio::test]
async fn lock_unlock() {
    let locks = LockManager::connect("memory:").await.unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    let e = locks.mutex("a").try_lock().await.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    println!("{e}");
    let e = locks.mutex("a").wait(Duration::from_millis(50)).lock().await.unwrap_err();
    println!("{e}");
    assert_eq!(e.kind(), ErrorKind::Timeout);
    let e = guard.run(locks.mutex("a").lock()).await.unwrap().unwrap_err();
    println!("{e}");
    let g2 = guard.run(locks.mutex("a").reentrant().lock()).await.unwrap().unwrap();
    assert_eq!(g2.fencing_token(), guard.fencing_token());
    println!("{:?}", locks.inspect("a").await.unwrap());
    assert_eq!(guard.release().await.unwrap(), Unlocked::StillHeld);
    drop(g2);
    println!("{:?}", locks.inspect("a").await.unwrap());
    let t = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let mut hs = vec![];
    for _ in 0..100 {
        let locks = locks.clone();
        let t = t.clone();
        hs.push(tokio::spawn(async move {
            for _ in 0..100 {
                let g = locks.mutex("b").lock().await.unwrap();
                let old = t.swap(g.fencing_token().get(), std::sync::atomic::Ordering::SeqCst);
                assert!(old < g.fencing_token().get());
                tokio::task::yield_now().await;
            }
        }));
    }
    for h in hs {
        h.await.unwrap();
    }
    println!("{:?}", locks.shutdown(Duration::from_secs(1)).await);
}
