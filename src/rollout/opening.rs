//! Says what a group waits for whose wave is not open yet, and how early it can switch. `progress.rs` opens waves.

use jiff::Timestamp;

use super::gates;
use super::group::GroupView;
use super::view::RolloutView;
use crate::api::{WaveState, rfc3339};
use crate::util::calendar::{WindowState, window_state};

/// What keeps the wave at an index from opening, as the end of a sentence about that wave. `keeps` is the revision that
/// the group has until then.
pub(super) fn describe(view: &RolloutView, group: &GroupView, index: usize, keeps: &str, now: Timestamp) -> String {
    let reasons = reasons(view, index, now);
    let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", and ")) };
    match earliest(view, group, index, now) {
        Some(at) => {
            format!("{why}; the group switches at {} at the earliest, and keeps {keeps} until then", rfc3339(at))
        }
        None => format!("{why}; until then the group keeps {keeps}"),
    }
}

fn reasons(view: &RolloutView, index: usize, now: Timestamp) -> Vec<String> {
    let wave = &view.policy.waves[index];
    let before = last_unpassed(view, index).map(|before| {
        let verb = if view.wave_state(before) == WaveState::Soaking { "soaks" } else { "has not passed" };
        format!("wave {} {verb}", view.policy.waves[before].name)
    });
    let delay = delay_end(view, index, now).map(|_| "the delay of this cluster is not over".to_owned());
    let approval = view.missing_approval(wave, now).map(|approval| format!("it needs {approval}"));
    [before, delay, approval].into_iter().flatten().collect()
}

/// The last wave before `index` that has not passed. What happens in earlier ones would change the messages of all groups
/// that wait, each time.
fn last_unpassed(view: &RolloutView, index: usize) -> Option<usize> {
    (0..index).rev().find(|before| view.wave_state(*before) != WaveState::Passed)
}

/// When the soak of a wave ends, if its groups are done and it is not over.
fn soak_end(view: &RolloutView, index: usize, now: Timestamp) -> Option<Timestamp> {
    let wave = &view.policy.waves[index];
    let recorded = view.status.waves.iter().find(|status| status.name == wave.name)?;
    let settled: Timestamp = recorded.settled.as_deref()?.parse().ok()?;
    let end = settled.checked_add(wave.soak).ok()?;
    (view.wave_state(index) == WaveState::Soaking && now < end).then_some(end)
}

/// When the delay of this cluster ends, if it still keeps the wave from opening.
fn delay_end(view: &RolloutView, index: usize, now: Timestamp) -> Option<Timestamp> {
    let is_skipped = view.is_skipped(&view.policy.waves[index].name);
    let end = view.arrived()?.checked_add(view.delay).ok()?;
    (!view.delay.is_zero() && !is_skipped && now < end).then_some(end)
}

/// The earliest time at which the group can switch; `None` when no time is known before which its wave stays closed. It
/// depends on recorded times only: a message that changed with each pass would be written with each pass.
fn earliest(view: &RolloutView, group: &GroupView, index: usize, now: Timestamp) -> Option<Timestamp> {
    let soak = last_unpassed(view, index).and_then(|before| soak_end(view, before, now));
    let opens = soak.into_iter().chain(delay_end(view, index, now)).max()?;
    Some(window_after(view, group, index, opens))
}

/// The first time from `opens` on at which a window lets the group switch; `opens` itself if none is known.
fn window_after(view: &RolloutView, group: &GroupView, index: usize, opens: Timestamp) -> Timestamp {
    let deferral = view.policy.deferral_of(group.namespace);
    let own = gates::own_window(group).filter(|_| !deferral.is_zero());
    let policy = &view.policy;
    let state = match &own {
        Some(own) => window_state(&[std::slice::from_ref(own)], &policy.freezes, opens),
        None => window_state(&[&policy.windows, &policy.waves[index].windows], &policy.freezes, opens),
    };
    let next = match state {
        WindowState::Open => opens,
        WindowState::Closed { next } | WindowState::Frozen { next, .. } => next.unwrap_or(opens),
    };
    // After the deadline, the admin's windows count again.
    let deadline = opens.checked_add(deferral).ok().filter(|_| own.is_some());
    deadline.map_or(next, |deadline| next.min(deadline))
}
