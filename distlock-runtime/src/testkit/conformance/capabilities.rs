//! Which cases concern a store that can't do everything; what it can't do, it must refuse.

use super::Store;
use super::tools::{fresh_key, manager};
use crate::backend::Capability;
use crate::error::ErrorKind;
use crate::manager::LockManager;

/// Rooms whose cases all need the same.
const ROOMS: &[(Capability, &str)] =
    &[(Capability::Queue, "queue"), (Capability::Owners, "owners"), (Capability::Circles, "circles")];

/// Other cases that need more than an exclusive lock.
const NEEDS: &[(Capability, &[&str])] = &[
    (
        Capability::Queue,
        &[
            "inspect_tells_holder_and_waiters",
            "force_release_takes_and_hands_on",
            "a_manager_shows_what_it_knows_of_a_lock",
            "one_candidate_leads_at_a_time",
            "several_wait_together_within_one_budget",
        ],
    ),
    (Capability::Fair, &["fair_waiters_are_served_in_order_of_arrival", "fair_and_plain_exclude_each_other"]),
    (Capability::Owners, &["inspect_tells_the_kind", "holds_of_this_process_are_told_from_those_of_others"]),
    (
        Capability::ReadWrite,
        &[
            "inspect_shows_all_readers",
            "readers_share_and_a_writer_excludes",
            "a_waiting_writer_is_not_passed_by",
            "a_dead_readers_share_lapses_alone",
            "shares_are_converted_without_a_gap",
            "two_kinds_on_one_key_are_a_conflict",
            "a_share_dropped_at_every_poll_leaves_nothing",
        ],
    ),
    (
        Capability::Semaphore,
        &[
            "inspect_shows_limit_and_permits",
            "inspect_shows_a_bounded_number",
            "permits_never_exceed_the_limit",
            "a_heavy_hold_is_not_passed_by",
            "permits_of_a_dead_holder_come_back",
            "limits_are_changed_on_purpose_only",
        ],
    ),
];

/// Rooms that judge single calls: where a call's outcome may be lost, there is nothing to judge.
const SINGLE_CALLS: &[&str] = &[
    "attempts",
    "queue",
    "leases",
    "tokens",
    "admin",
    "holders",
    "records",
    "inventory",
    "quota",
    "settlement",
    "owners",
    "latches",
    "circles",
];

/// Other cases that do so: they try once, look at what a release said, or at what a wait said in the end. One has a lease so short that a
/// lost renewal is its end on a busy machine.
const SINGLE_CALLS_TOO: &[&str] = &[
    "a_single_try_says_busy_and_by_whom",
    "a_wait_ends_with_its_budget",
    "a_task_behind_another_is_told_who_holds",
    "a_dead_readers_share_lapses_alone",
    "a_waiter_gets_the_lock_when_it_is_released",
    "two_processes_take_turns_without_overlap",
    "a_task_that_is_not_polled_is_overtaken",
    "the_last_guard_of_a_hold_releases_it",
    "a_held_lock_stays_held",
    "a_guard_may_be_dropped_anywhere",
    "hold_at_least_keeps_the_lock_taken",
    "a_shutdown_keeps_what_must_be_held",
    "fair_waiters_are_served_in_order_of_arrival",
    "readers_share_and_a_writer_excludes",
    "permits_never_exceed_the_limit",
    "a_heavy_hold_is_not_passed_by",
    "limits_are_changed_on_purpose_only",
    "two_kinds_on_one_key_are_a_conflict",
    "several_locks_come_all_or_not_at_all",
    "several_are_taken_in_one_step_or_none",
    "several_wait_together_within_one_budget",
    "several_are_held_and_released_like_single_ones",
    "a_foreign_value_is_a_key_conflict",
];

/// Whether the store does what this case is about, by its own [`guarantees`](crate::backend::Backend::guarantees). If it doesn't,
/// it must say `UNSUPPORTED` when it is asked for it, which is checked instead.
///
/// # Panics
/// When it doesn't refuse.
pub async fn concerns(store: &impl Store, room: &str, case: &str) -> bool {
    let judges_calls = SINGLE_CALLS.contains(&room) || SINGLE_CALLS_TOO.contains(&case);
    if judges_calls && !store.tells_every_outcome() {
        return false;
    }
    let by_room = ROOMS.iter().find(|(_, needs)| *needs == room).map(|(capability, _)| capability);
    let by_case = || NEEDS.iter().find(|(_, cases)| cases.contains(&case)).map(|(capability, _)| capability);
    let Some(capability) = by_room.or_else(by_case) else { return true };
    let guarantees = store.backend("capabilities").await.guarantees();
    if guarantees.can(*capability) {
        return true;
    }
    refuses(store, *capability).await;
    false
}

async fn refuses(store: &impl Store, capability: Capability) {
    let locks = manager(store, "one").await;
    let key = fresh_key("refused");
    let refusal = match capability {
        Capability::Fair => locks.mutex(&key).fair().lock().await.err(),
        Capability::ReadWrite => {
            assert!(locks.rw_lock(&key).write().await.is_err(), "a reader is refused, and a writer isn't");
            locks.rw_lock(&key).read().await.err()
        }
        Capability::Semaphore => locks.semaphore(&key, 2).acquire().await.err(),
        Capability::Owners => locks.mutex(&key).owner("transaction 7").lock().await.err(),
        Capability::Latches => locks.latch(&key, 2).count_down().await.err(),
        Capability::Circles => {
            let builder = LockManager::builder().detect_circles();
            builder.backend(store.backend("one").await).await.err()
        }
        Capability::Records => locks.records().err(),
        // Nobody asks for a queue: who waits asks again and again instead.
        Capability::Queue => return,
    };
    let refusal =
        refusal.unwrap_or_else(|| panic!("the store does what it says that it can't: {capability}"));
    assert_eq!(refusal.kind(), ErrorKind::Unsupported, "{refusal}");
    assert!(locks.inspect(&key).await.unwrap().holder.is_none());
}
