//! The list of all cases; everything else is made from it.

/// Calls `$callback` with `$arguments` and every case, by room.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_cases {
    ([$($callback:tt)+] [$($arguments:tt)*]) => {
        $($callback)+! {
            [$($arguments)*]
            attempts: [
                first_owner_is_granted_and_the_next_is_told_who_holds,
                a_repeated_attempt_is_granted_again,
                a_released_lock_can_be_had_again,
                a_lease_lapses_after_its_ttl_and_never_early,
                of_many_at_once_one_is_granted,
                locks_of_different_names_are_independent,
                a_cancelled_attempt_leaves_nothing,
                an_attempt_that_arrives_after_its_cancel_is_harmless,
                a_foreign_value_is_reported_and_left_alone,
            ]
            queue: [
                waiters_are_served_in_order_and_repeats_keep_their_place,
                a_release_wakes_the_waiter,
                a_release_before_the_wait_is_not_missed,
                a_lapsed_holder_is_noticed,
                every_wait_is_bounded,
                a_dead_waiter_loses_its_place,
                a_cancelled_waiter_makes_room,
                a_lock_that_was_handed_on_has_its_full_ttl,
            ]
            leases: [
                a_renewed_lease_lives_on,
                a_renewal_never_makes_a_lock,
                many_leases_are_renewed_in_one_call,
                a_renewal_can_lengthen_the_lease,
                what_comes_late_never_shortens_the_lease,
                a_release_by_others_is_refused,
                a_repeated_release_is_harmless,
                a_release_can_keep_the_lock_taken,
                a_posted_release_is_finished_or_comes_back,
            ]
            tokens: [
                tokens_grow_whatever_ended_the_hold_before,
                blocks_of_tokens_are_disjoint,
                tokens_grow_under_contention,
            ]
            admin: [
                inspect_tells_holder_and_waiters,
                list_gives_held_locks_by_prefix,
                force_release_takes_and_hands_on,
                the_store_answers_and_names_itself,
                raw_names_are_locks_too,
            ]
            holders: [
                inspect_shows_all_readers,
                inspect_shows_limit_and_permits,
                inspect_shows_a_bounded_number,
                inspect_tells_the_kind,
                holds_of_this_process_are_told_from_those_of_others,
            ]
            records: [
                one_claim_executes_and_others_see_it_in_flight,
                of_many_claims_at_once_one_executes,
                a_renewed_claim_lives_on,
                a_lapsed_claim_is_taken_over_and_its_late_commit_is_fenced,
                a_lapsed_claim_is_not_taken_over_by_another_request,
                a_withdrawn_claim_leaves_nothing,
                a_lapsed_claim_becomes_unknown_under_reject,
                a_lapsed_claim_that_nobody_took_can_be_settled,
                a_lapsed_claim_is_forgotten_after_its_retention,
                who_waits_for_a_record_is_told,
            ]
            inventory: [
                a_note_is_read_back,
                unresolved_records_are_listed,
                an_unresolved_record_is_resolved_once,
                what_is_known_or_under_way_is_not_resolved,
                a_purge_takes_its_scope_and_nothing_under_way,
            ]
            quota: [
                places_are_bounded_by_keys,
                places_are_bounded_by_bytes,
                places_end_by_themselves,
                a_purge_gives_places_back,
            ]
            settlement: [
                a_completed_record_is_replayed_byte_by_byte,
                a_settlement_may_be_repeated_and_not_changed,
                a_released_record_is_forgotten,
                a_settled_record_is_forgotten_after_its_retention,
            ]
            waiting: [
                a_single_try_says_busy_and_by_whom,
                a_wait_ends_with_its_budget,
                a_task_behind_another_is_told_who_holds,
                a_waiter_gets_the_lock_when_it_is_released,
                a_dead_holders_lock_is_had_after_its_ttl,
                tasks_of_one_process_are_served_in_order,
                two_processes_take_turns_without_overlap,
                nobody_gets_in_whatever_is_lost,
                waiters_that_go_away_leave_their_places,
                waiters_are_bounded,
                a_task_that_is_not_polled_is_overtaken,
            ]
            reentry: [
                the_same_scope_may_enter_again,
                asking_again_without_reentrant_is_a_deadlock,
                the_scope_is_not_inherited_unless_asked_for,
                the_last_guard_of_a_hold_releases_it,
                re_entry_keeps_the_larger_ttl,
                what_is_over_is_not_entered_again,
            ]
            guards: [
                a_held_lock_stays_held,
                run_gives_what_the_body_gives,
                extend_renews_now,
                a_guard_may_be_dropped_anywhere,
                a_dropped_run_drops_its_body_and_releases,
                hold_at_least_keeps_the_lock_taken,
                a_shutdown_keeps_what_must_be_held,
                an_acquire_may_be_dropped_at_every_poll,
            ]
            loss: [
                a_lock_that_is_taken_is_lost,
                a_lock_taken_in_its_own_process_is_lost_at_once,
                a_body_is_stopped_when_its_lock_is_lost,
                the_policy_decides_what_a_loss_does,
                max_hold_ends_a_hold_that_hangs,
            ]
            kinds: [
                fair_waiters_are_served_in_order_of_arrival,
                fair_and_plain_exclude_each_other,
                readers_share_and_a_writer_excludes,
                a_waiting_writer_is_not_passed_by,
                a_dead_readers_share_lapses_alone,
                shares_are_converted_without_a_gap,
                permits_never_exceed_the_limit,
                a_heavy_hold_is_not_passed_by,
                permits_of_a_dead_holder_come_back,
                limits_are_changed_on_purpose_only,
                two_kinds_on_one_key_are_a_conflict,
                a_share_dropped_at_every_poll_leaves_nothing,
                several_locks_come_all_or_not_at_all,
                one_candidate_leads_at_a_time,
            ]
            together: [
                several_are_taken_in_one_step_or_none,
                several_wait_together_within_one_budget,
                several_dropped_at_every_poll_leave_nothing,
                several_are_held_and_released_like_single_ones,
            ]
            owners: [
                an_owner_enters_again_from_elsewhere,
                an_owner_passes_those_who_wait_and_nobody_else_does,
                repeated_commands_count_once,
                a_hold_of_an_owner_lapses_alone,
                waiters_of_one_owner_come_in_together,
                owners_know_their_own_holds,
                an_owners_holds_are_taken_by_force,
                an_owners_hold_dropped_at_every_poll_leaves_nothing,
            ]
            latches: [
                a_latch_opens_with_the_last_count,
                a_repeated_count_counts_once,
                another_number_or_kind_is_refused,
                a_latch_is_forgotten_after_its_retention,
                a_wait_dropped_at_every_poll_leaves_the_latch,
                random_counts_are_those_of_a_number_and_a_set,
            ]
            circles: [
                waits_of_holders_are_seen_while_they_hold_and_wait,
                a_circle_over_managers_ends_for_one_of_them,
                what_is_no_circle_is_waited_for,
            ]
            managers: [
                a_manager_shows_what_it_knows_of_a_lock,
                events_tell_what_happened,
                shutdown_is_orderly,
                a_shutdown_of_an_idle_manager_is_quick_and_clean,
                a_foreign_value_is_a_key_conflict,
                what_cannot_be_is_refused,
                one_manager_serves_many_runtimes,
                defaults_apply_unless_told_otherwise,
            ]
        }
    };
}
