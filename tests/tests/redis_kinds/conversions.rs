//! Code in the scope of a lock that is being converted at this moment waits for what it becomes.

use distlock::ErrorKind;

use super::*;

#[tokio::test]
async fn a_re_entry_in_the_midst_of_a_conversion_joins_what_comes_of_it() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let catalog = || locks.rw_lock("catalog").wait(LIMIT);
    for others in [false, true] {
        let share = catalog().read().await.unwrap();
        let other = if others { Some(catalog().read().await.unwrap()) } else { None };
        let again = share.scope(catalog().reentrant().wait(Duration::from_secs(2)).read());
        // The conversion is on its way to the server when the other begins.
        let (converted, again) = tokio::join!(biased; share.try_upgrade(), again);
        let again = again.unwrap();
        assert_eq!(again.hold_count(), 2, "no hold of its own");
        match (others, converted) {
            (false, Ok(whole)) => assert_eq!(again.fencing_token(), whole.fencing_token()),
            (true, Err(refused)) => assert_eq!(refused.error.kind(), ErrorKind::Busy),
            (_, converted) => panic!("{converted:?}"),
        }
        drop((again, other));
    }
}

/// Who asks to write gets the answer for what the lock has become, too.
#[tokio::test]
async fn a_writer_in_the_midst_of_a_downgrade_is_a_reader_by_then() {
    let stage = Stage::start();
    let locks = stage.locks().await;
    let whole = locks.rw_lock("catalog").write().await.unwrap();
    let again = whole.scope(locks.rw_lock("catalog").reentrant().wait(Duration::from_secs(2)).write());
    let (share, again) = tokio::join!(biased; whole.downgrade(), again);
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Deadlock);
    share.unwrap().release().await.unwrap();
}
