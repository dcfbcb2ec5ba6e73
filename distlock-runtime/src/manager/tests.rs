use super::LockManager;

/// Holds that never stood in a queue of the process are known by their acquisitions, for as long as they are there.
#[tokio::test]
async fn holds_that_are_over_are_forgotten() {
    let locks = LockManager::connect("memory:").await.unwrap();
    let engine = locks.shared.engine.clone();
    let catalog = || locks.rw_lock("catalog");
    let share = catalog().read().await.unwrap();
    let (fair, permits) = (locks.mutex("fair").fair(), locks.semaphore("gpu", 3));
    let held = (fair.lock().await.unwrap(), permits.clone().acquire().await.unwrap());
    let more = permits.acquire_many(2).await.unwrap();
    assert_eq!(engine.remembered(), 4);
    let share = share.try_upgrade().await.unwrap().downgrade().await.unwrap();
    assert_eq!(engine.remembered(), 4);
    let other = catalog().read().await.unwrap();
    let share = share.try_upgrade().await.unwrap_err().guard;
    assert_eq!(engine.remembered(), 5);
    drop((held, more));
    other.release().await.unwrap();
    locks.force_release("catalog", "a test").await.unwrap();
    share.lost().await;
    assert_eq!(engine.remembered(), 1);
    drop(share.try_upgrade().await.unwrap_err());
    assert_eq!(engine.remembered(), 0);
}
