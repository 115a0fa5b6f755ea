use std::time::Duration;

use super::*;
use crate::index::failure_streak::FailedStep;
use crate::plan::StalledReason;

#[test]
fn finalized_object_is_recognized_by_uid() {
    let process_state = ProcessState::default();
    assert!(!process_state.is_finalized("team/web", Some("a")) && !process_state.is_finalized("team/web", None));
    process_state.set_finalized("team/web", "a");
    assert!(process_state.is_finalized("team/web", Some("a")) && !process_state.is_finalized("team/web", Some("b")));
    process_state.forget_group("team/web");
    assert!(!process_state.is_finalized("team/web", Some("a")));
}

#[test]
fn group_is_merged_again_only_after_a_change() {
    let (process_state, merges) = (ProcessState::default(), std::cell::Cell::new(0));
    let ask = |group: &str, inputs: u64| {
        let merge = || {
            merges.set(merges.get() + 1);
            NodeDemand { nodes: inputs * 10, ..NodeDemand::default() }
        };
        process_state.demand(group, inputs, merge).nodes
    };
    assert_eq!([ask("team/web", 1), ask("team/web", 1), ask("team/api", 2), ask("team/web", 3)], [10, 10, 20, 30]);
    assert_eq!(merges.get(), 3);
}

/// A webhook that fails briefly needs no event. One that fails for hours is shown all the time, although the API server
/// forgets an event after an hour: nothing else on the group would show its tenant that the status is old.
#[test]
fn refused_status_is_reported_if_it_lasts_and_again_each_half_hour() {
    let (state, minute) = (ProcessState::default(), SignedDuration::from_secs(60));
    let at = |second: i64| Timestamp::from_second(second).expect("a time");
    let reported =
        |is_refused: bool, second: i64| state.track_unwritten_status("a/web", is_refused, minute, at(second));
    assert_eq!((reported(true, 0), reported(true, 59), reported(false, 60)), (None, None, None));
    assert_eq!((reported(true, 70), reported(true, 130), reported(true, 200)), (None, Some(at(70)), None));
    assert_eq!((reported(true, 1929), reported(true, 1930), reported(true, 1931)), (None, Some(at(70)), None));
    assert_eq!((reported(false, 2000), reported(true, 2010), reported(true, 2070)), (None, None, Some(at(2010))));
}

#[test]
fn tag_backoff_is_per_group() {
    let process_state = ProcessState::default();
    let (now, delay) = (Timestamp::UNIX_EPOCH, Duration::from_secs(300));
    assert!(!process_state.is_tagging_in_backoff("team/web", delay, now));
    process_state.record_tag_denied("team/web", now);
    assert!(process_state.is_tagging_in_backoff("team/web", delay, now + Duration::from_secs(299)));
    assert!(!process_state.is_tagging_in_backoff("team/web", delay, now + delay));
    assert!(!process_state.is_tagging_in_backoff("team/api", delay, now));
}

/// A person who has repaired something and asks for a reconcile does not wait for the next attempt.
#[test]
fn requested_reconcile_ends_all_retry_delays() {
    let (process_state, delay) = (ProcessState::default(), SignedDuration::from_mins(5));
    let now = Timestamp::UNIX_EPOCH;
    let refused = || {
        PassResult::NeedsIntervention(FailedStep {
            is_of_rotation: true,
            reason: StalledReason::MissingPermission,
            message: "no".into(),
            is_known: false,
            is_watched: false,
        })
    };
    for _ in 0..5 {
        process_state.record_pass("team/web", 1, refused(), delay, now);
    }
    process_state.record_tag_denied("team/web", now);
    let is_blocked = || process_state.persistent_failure("team/web", 1, now).rotation_blocker().is_some();
    let is_in_backoff = || process_state.is_tagging_in_backoff("team/web", Duration::from_secs(300), now);
    assert!(is_blocked() && is_in_backoff());
    process_state.end_waits("team/web", now);
    assert!(!is_blocked() && !is_in_backoff());
}

/// Time synchronization may correct a clock by hours. Nodes would stay cordoned for as long while EKS is at work.
#[test]
fn clock_of_a_group_starts_again_if_the_wall_clock_was_set_back() {
    let state = ProcessState::default();
    let paused_for =
        |second: i64| state.track_pause("team/web", true, Timestamp::from_second(second).expect("a time")).as_secs();
    assert_eq!([3600, 3610, 10, 20].map(paused_for), [0, 10, 0, 10]);
}
