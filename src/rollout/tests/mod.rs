//! Rollouts played over simulated groups. What a group did is judged from its own record, not from the decisions.
//!
//! Which test shows what. A name without a path is in this folder; names that begin with `test_` are in `tests/e2e`.
//!
//! What holds whatever happens:
//! - A group records a revision before anything is made from it, and a rollout ends with every group on it or listed:
//!   `rollouts_keep_the_wave_order_and_end`, `check_record_comes_first` in `tests/e2e/test_rollout.py`.
//! - No group and no node begins out of turn: `check_gates`, `nothing_begins_outside_of_the_windows`,
//!   `no_more_groups_than_at_once_replace_nodes`, and `src/controller/rollout/tests/replacements.rs` before each node.
//! - Groups never go back without a cause, and waves take none back: `check_return`.
//! - The budget is kept: `budget_is_never_exceeded_and_leaves_a_node_to_an_idle_fleet` in `src/rollout/budget`.
//! - A group that waits does nothing for the change: `group_that_waits_does_what_it_would_do_without_the_change`.
//! - A killed leader loses no node: `new_leaders_lose_no_node_and_begin_nothing_again`,
//!   `test_every_write_may_be_the_last_one_of_its_process`.
//! - What is unknown opens, passes and fails nothing: `unknown_answer_never_opens_passes_or_halts_a_wave`,
//!   `check_waves`, `check_free_switch`, `check_stop`.
//! - A rollout that waits writes nothing: `poll_that_changes_nothing_writes_nothing`.
//! - No stored revision that a group needs is deleted: `check_history`.
//! - The command `plan` and the controller agree: `plan_and_controller_agree_in_each_phase`,
//!   `plan_names_the_next_revision_of_each_group` in `src/controller/rollout/tests`.
//!
//! Single cases:
//! - Crashes: `test_every_write_may_be_the_last_one_of_its_process`,
//!   `test_a_kill_at_each_write_of_the_history_loses_and_doubles_nothing`.
//! - Two leaders: `test_two_controllers_that_both_lead_store_each_content_once`,
//!   `content_that_two_processes_store_at_once_is_stored_once` in `src/controller/revisions.rs`,
//!   `process_that_does_not_lead_any_more_records_nothing` in `src/controller/rollout/tests`.
//! - Two admins: `order_after_another_users_order_changes_nothing_and_names_that_user` in `src/cli/rollout`,
//!   `groups_do_not_return_to_a_revision_that_never_rolled_out`.
//! - Further changes during a rollout: `next_change_rolls_out_in_waves_whatever_it_interrupts`,
//!   `newest_of_several_changes_wins_and_a_way_back_needs_no_wave`, `superseded_rotation_that_has_begun_is_finished`,
//!   `newest_revision_wins_and_groups_step_back_from_what_they_had_not_begun`.
//! - Changes without rotation during a soak: `soak_continues_across_a_change_without_rotation`.
//! - Reverts: `revert_in_mid_rotation_replaces_only_what_was_replaced`,
//!   `revert_of_a_complete_change_waits_for_no_window`.
//! - Edits of the policy: `waves_may_be_renamed_reordered_and_removed_in_the_middle`,
//!   `deleted_waves_leave_the_order_of_the_others`, `percentage_may_be_raised_while_its_wave_is_open`,
//!   `percentage_that_is_lowered_takes_no_group_out_of_its_wave`, and `lost_key` for a removed key.
//! - Empty waves and percentages: `waves_without_groups_pass_and_overlapping_selectors_mean_the_first`,
//!   `percentage_selects_the_same_groups_each_time_and_at_least_one`,
//!   `wave_is_passed_when_all_its_groups_are_excluded`.
//! - Deleted and recreated groups: `rollout_ends_without_groups_that_are_deleted`,
//!   `recreated_group_has_no_rollout_record`.
//! - New and restored groups: `new_group_begins_with_what_the_phase_allows`,
//!   `groups_that_a_backup_brings_back_without_a_status_replace_nothing`.
//! - Changed labels: `group_moves_with_the_labels_of_its_namespace`,
//!   `group_follows_the_wave_that_selects_it_until_it_switches`, `excluded_namespace_has_no_part_until_it_is_included`.
//! - Locks: `lock_during_a_rotation_blocks_the_group_until_it_is_removed`,
//!   `locked_group_is_not_waited_for_and_follows_when_the_lock_is_gone`.
//! - Windows that close: `test_a_window_that_closes_lets_what_has_begun_end`,
//!   `window_that_is_shorter_than_a_batch_ends_the_rollout_after_some_nights`,
//!   `node_in_standby_is_replaced_to_its_end_when_a_window_closes` and
//!   `blocked_rotation_finishes_its_drains_and_begins_none` in `src/rotation`.
//! - Windows across midnight and changes of the clocks: `src/util/calendar.rs`.
//! - Freezes, and windows that never open: `freeze_blocks_approved_groups_too`,
//!   `window_of_a_tenant_counts_until_the_deadline`,
//!   `policy_that_never_opens_is_warned_about_once` in `src/controller/watches/boundaries`.
//! - Mistakes of a tenant: `failure_after_a_tenant_edit_does_not_halt_the_rollout`.
//! - Deferrals: `deferral_ends_at_the_deadline_and_its_wave_does_not_wait`,
//!   `deferral_that_ends_in_a_closed_window_waits_for_the_window`,
//!   `group_decides_before_its_namespace_when_it_is_put_off`.
//! - Approvals: `approval_counts_for_the_change_that_it_names`,
//!   `approval_does_not_pass_a_halt_an_abort_a_pause_or_a_lock`.
//! - Clocks that step: `soak_lasts_as_long_as_both_clocks_say`, `new_leader_with_another_clock_soaks_as_long`.
//! - Urgency: `urgency_ends_by_itself`, `urgency_lasts_for_seven_days_at_most`,
//!   `urgency_that_ends_in_the_middle_leaves_the_rest_to_the_waves`,
//!   `urgency_of_the_past_or_of_a_halt_changes_nothing`.
//! - Failures: `wave_passes_with_at_most_max_failures`, `failure_during_the_soak_halts_and_the_group_returns`,
//!   `groups_that_fail_at_once_are_all_named`, `group_that_fails_with_both_revisions_returns_once`,
//!   `test_a_node_group_that_cannot_return_is_reported_and_delays_no_other_group`.
//! - Lost nodes: `few_lost_nodes_during_the_soak_are_chance_and_many_are_the_change`,
//!   `unhealthy_cluster_during_the_soak_is_not_a_failure`.
//! - Blocked drains: `blocked_drain_yields_and_is_retried_last`,
//!   `rollout_ends_when_the_drains_of_all_groups_are_blocked`.
//! - The budget of a small, shrinking or damaged fleet: `src/rollout/budget`, `src/controller/rollout/budget.rs`.
//! - Prometheus without an answer: `checks`, `src/rollout/check_answer.rs`, `src/controller/rollout/prometheus.rs`.
//! - Contents that groups cannot use: `change_that_no_group_can_use_touches_nothing`,
//!   `test_a_change_that_a_group_cannot_use_is_not_given_to_it`, `src/controller/rollout/forecast.rs`.
//! - Image aliases that move: `images`.
//! - Deleted revisions: `group_whose_revision_is_gone_changes_nothing_until_its_turn`,
//!   `deleted_predecessor_causes_no_return`, `problem_from_before_a_lost_completion_halts_and_no_group_returns`,
//!   `return_whose_history_is_lost_replaces_no_node_for_the_aborted_change`.
//! - Cleared statuses and orders about nothing: `cleared_status_begins_with_the_first_wave_again`,
//!   `orders_about_unknown_waves_and_groups_change_nothing`.
//! - Takeover and release: `test_groups_are_adopted_and_released_during_a_rollout`.
//! - A ConfigMap that is missing, broken, or edited without a leader:
//!   `broken_config_map_gives_the_change_to_no_further_group`,
//!   `test_change_made_while_no_controller_ran_has_a_predecessor`.
//! - What a change means for a group: `only_what_the_merge_makes_of_the_group_and_its_policy_count` and
//!   `change_that_evicts_pods_or_removes_nodes_is_not_in_place` in `src/controller/rollout/forecast.rs`,
//!   `blocked_rotation_removes_no_further_surplus_node` in `src/rotation`.
//! - Thousands of groups and many changes: `two_thousand_groups_fill_no_status_and_write_nothing_while_they_wait`,
//!   `changes_one_after_the_other_reach_the_same_few_of_two_thousand_groups`,
//!   `fifty_changes_one_after_the_other_leave_a_short_history`.
//! - Rights and secrets: `test_neither_the_controller_nor_a_tenant_may_change_orders`,
//!   `user_data_is_not_shown` in `src/rollout/content_diff.rs`.
//! - A downgrade: `test_a_lock_on_the_config_map_blocks_the_change_across_a_downgrade`, `lost_key`.

mod cases;
mod changes;
mod checks;
mod examples;
mod failures;
mod groups;
mod history_faults;
mod images;
mod judges;
mod lost_key;
mod openings;
mod orders;
mod properties;
mod simulated_cluster;
mod small_edits;
mod times;
mod waiting;
