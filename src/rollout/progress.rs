//! Computes the next status of a rollout from its recorded status and the state of its groups.

use jiff::{SignedDuration, Timestamp};

use super::checks::{CheckResult, statuses};
use super::summary::{GroupSummary, WaveSummary};
use super::view::RolloutView;
use crate::api::names::condition::{HALTED, current_reason};
use crate::api::{
    BoundariesRevisionStatus, CheckState, Condition, RolloutPhase, WaveState, WaveStatus, rfc3339, set_condition,
};
use crate::boundaries::{OnFailure, Wave};
use crate::util::recorded_time;
use crate::util::text::shorten;

/// What the progress depends on beside the rollout and the groups.
pub(crate) struct ProgressInput<'a> {
    /// The target, its policy and the orders.
    pub view: &'a RolloutView,
    /// Where the groups stand.
    pub summary: &'a GroupSummary,
    /// How long the controller may take to find out what the target means for each group.
    pub assessment_limit: SignedDuration,
    /// How long this process has seen a wave soak, by its monotonic clock; `None` when it began before this process.
    pub soaked: &'a dyn Fn(&str) -> Option<SignedDuration>,
    /// How the checks of the policy stand; empty while they do not count.
    pub checks: &'a [CheckResult],
    /// Whether the poll before this one found the same wave ready to pass.
    pub was_ready: &'a dyn Fn(&str) -> bool,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The next status, and the waves that are ready to pass if the next poll agrees.
pub(crate) struct Progress {
    /// The status to write to the BoundariesRevision of the target.
    pub status: BoundariesRevisionStatus,
    /// Names of the waves.
    pub ready: Vec<String>,
}

/// Decides what is recorded next.
pub(crate) fn advance(input: &ProgressInput) -> Progress {
    let ProgressInput { view, summary, .. } = input;
    let mut status = view.status.clone();
    // A predecessor that a user deleted stays named.
    status.stable = view.stable.as_ref().map(|stable| stable.name.clone()).or(status.stable);
    status.without_waves = without_waves(view, summary);
    // A time that lies ahead was written before the clock went back.
    let begun: Option<Timestamp> = status.begun.as_deref().and_then(|text| text.parse().ok());
    // What broke since the revision came must not look older than its rollout.
    let arrived = || view.created.filter(|at| *at <= input.now);
    let begun = begun.and_then(|at| if at <= input.now { Some(at) } else { arrived() });
    status.begun = Some(rfc3339(begun.unwrap_or(input.now)));
    status.groups = Some(summary.counts);
    status.behind = summary.behind.clone();
    status.budget = summary.budget.clone();
    status.drain_forecasts = summary.drain_forecasts.clone();
    // The waves of a policy that cannot be read stay as they were recorded, until an admin puts it back.
    let has_policy = view.policy_problem.is_none();
    if has_policy {
        status.waves = waves(view, summary);
    }
    status.waves.iter_mut().for_each(|wave| correct_times(wave, input.now));
    let mut ready = vec![];
    let mut phase = after_orders(input, &mut status);
    // A group that was not seen may be in any wave, and in any state.
    let has_seen_all = summary.unseen == 0;
    if has_seen_all && phase == RolloutPhase::Assessing && is_assessed(input, &status) {
        phase = RolloutPhase::Rolling;
    }
    if has_seen_all && has_policy && phase == RolloutPhase::Rolling && !view.is_return() {
        // The summary counted the groups by the bounds of before.
        let are_counted = !set_cuts(view, summary, &mut status.waves);
        if are_counted {
            ready = step_waves(input, &mut status.waves);
        }
        // An admin who resumes the rollout sees that it continues, and that a check which still fails stops it again.
        let is_resumed = view.phase() == RolloutPhase::Halted;
        let check_fails = !is_resumed && failed_checks(input, &status.waves).next().is_some();
        if has_failed(view, &status.waves, summary, |found| found.failed) || check_fails {
            // A problem of before the rollout is no reason to replace the nodes of all groups.
            let proved = |found: &WaveSummary| found.failed - found.failed_before;
            let is_proved = check_fails || has_failed(view, &status.waves, summary, proved);
            phase = match view.policy.on_failure {
                OnFailure::Return if view.stable.is_some() && is_proved => RolloutPhase::Returning,
                OnFailure::Return | OnFailure::Halt => RolloutPhase::Halted,
            };
        }
    }
    let is_passed = || status.waves.iter().all(|wave| wave.state == Some(WaveState::Passed));
    // A return has no waves, but a pause or the ConfigMap may hold groups up.
    let is_back = || view.is_return() && summary.waves.iter().all(|wave| wave.waiting == 0 && wave.rolling == 0);
    let is_over = is_back() || (!view.is_return() && has_policy && is_passed());
    if has_seen_all && phase == RolloutPhase::Rolling && is_over && summary.moving == 0 {
        phase = RolloutPhase::Complete;
    }
    if has_seen_all && phase == RolloutPhase::Returning && summary.on_target == 0 {
        phase = RolloutPhase::Aborted;
    }
    let has_stopped = matches!(phase, RolloutPhase::Halted | RolloutPhase::Returning) && phase != view.phase();
    if has_stopped && view.orders.retries > 0 {
        // An order to resume from before is not an order about this stop.
        status.retries = Some(view.orders.retries);
    }
    if phase == RolloutPhase::Complete && status.without_waves == Some(true) {
        // Those of a return or of the first revision would seem to wait.
        status.waves.iter_mut().for_each(|wave| wave.state = Some(WaveState::Passed));
    }
    status.phase = Some(phase);
    (status.waits_for, status.waits_for_more) = match phase {
        RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Returning => summary.pending.listed(),
        RolloutPhase::Halted | RolloutPhase::Complete | RolloutPhase::Aborted | RolloutPhase::Superseded => (vec![], 0),
    };
    status.slow = if phase.is_under_way() { summary.slow.clone() } else { vec![] };
    set_conditions(input, &mut status, phase);
    // After the conditions: they say which checks of an open wave failed.
    if matches!(phase, RolloutPhase::Returning | RolloutPhase::Aborted) {
        stop_waves(&mut status.waves);
    }
    status.checks = match phase {
        RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted => {
            statuses(&view.status.checks, input.checks, &rfc3339(input.now))
        }
        RolloutPhase::Returning | RolloutPhase::Complete | RolloutPhase::Aborted | RolloutPhase::Superseded => vec![],
    };
    Progress { status, ready }
}

/// Whether groups take the target without waves; `None` if nothing suggests it. A doubtful return is one if no group has a
/// content that may have been complete in between. What is recorded then stays: the next poll would find those superseded.
fn without_waves(view: &RolloutView, summary: &GroupSummary) -> Option<bool> {
    let is_return = || view.status.stable.is_none() && summary.unseen == 0 && !summary.has_unjudged;
    match view.is_return() {
        true => Some(true),
        false if view.is_return_doubtful => Some(view.status.without_waves.unwrap_or_else(is_return)),
        false => None,
    }
}

/// Corrects the times that lie ahead, because the clock went back since: a wave would soak, and tenants could put the
/// target off, for as long as the clock had been ahead.
fn correct_times(wave: &mut WaveStatus, now: Timestamp) {
    for time in [&mut wave.opened, &mut wave.settled] {
        if let Some(at) = time.as_deref().and_then(|text| recorded_time::past(text, now)) {
            *time = Some(rfc3339(at));
        }
    }
}

/// The phase after the orders of users.
fn after_orders(input: &ProgressInput, status: &mut BoundariesRevisionStatus) -> RolloutPhase {
    let (view, phase) = (input.view, input.view.phase());
    let retried = view.orders.retries > status.retries.unwrap_or_default();
    match phase {
        RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Halted | RolloutPhase::Complete
            if view.orders.aborted && view.can_return() =>
        {
            RolloutPhase::Returning
        }
        RolloutPhase::Halted if retried => {
            status.retries = Some(view.orders.retries);
            RolloutPhase::Rolling
        }
        // A user took the order to abort back.
        RolloutPhase::Returning | RolloutPhase::Aborted if retried && !view.orders.aborted => {
            status.retries = Some(view.orders.retries);
            close_waves(&mut status.waves);
            RolloutPhase::Rolling
        }
        // An earlier revision that came back, because the ConfigMap went back to it.
        RolloutPhase::Superseded => {
            close_waves(&mut status.waves);
            status.begun = Some(rfc3339(input.now));
            RolloutPhase::Assessing
        }
        other => other,
    }
}

/// The waves begin again: groups have left the revision, and would all switch to it at once where its waves had passed.
fn close_waves(waves: &mut [WaveStatus]) {
    for wave in waves {
        (wave.state, wave.opened, wave.settled, wave.passed) = (Some(WaveState::Waiting), None, None, None);
    }
}

/// No group switches to the revision any more. What passed did so before the return.
fn stop_waves(waves: &mut [WaveStatus]) {
    for wave in waves.iter_mut().filter(|wave| wave.state != Some(WaveState::Passed)) {
        (wave.state, wave.why) = (Some(WaveState::Waiting), None);
    }
}

/// By which part of the time an urgent change is assessed: a group for which AWS does not answer must not delay a
/// security fix.
const URGENT_PART: i32 = 10;

fn is_assessed(input: &ProgressInput, status: &BoundariesRevisionStatus) -> bool {
    let begun: Option<Timestamp> = status.begun.as_deref().and_then(|text| text.parse().ok());
    let limit = match input.view.urgent_until(input.now) {
        Some(_) => input.assessment_limit / URGENT_PART,
        None => input.assessment_limit,
    };
    let is_late = begun.is_none_or(|begun| input.now.duration_since(begun) >= limit);
    input.summary.unknown == 0 || is_late || input.view.is_return()
}

/// The waves of the policy with what is recorded of them by name, and the present counts.
fn waves(view: &RolloutView, summary: &GroupSummary) -> Vec<WaveStatus> {
    let is_complete = view.phase() == RolloutPhase::Complete;
    let first = if is_complete { WaveState::Passed } else { WaveState::Waiting };
    let opened = view.opened_before_end().map(rfc3339);
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let status_of = |(wave, found): (&Wave, &WaveSummary)| {
        let recorded = view.status.waves.iter().find(|status| status.name == wave.name).cloned();
        WaveStatus {
            name: wave.name.clone(),
            groups: count(found.groups),
            done: count(found.done),
            failed: count(found.failed),
            waiting: found.reasons.clone(),
            state: recorded.as_ref().and_then(|wave| wave.state).or(Some(first)),
            opened: recorded.as_ref().and_then(|wave| wave.opened.clone()).or_else(|| opened.clone()),
            ..recorded.unwrap_or_default()
        }
    };
    view.policy.waves.iter().zip(&summary.waves).map(status_of).collect()
}

/// The bound of each wave with a percentage: it takes that share, rounded up, of the affected groups that its selectors
/// match and that no wave before takes. A bound is set once for each percentage, and never lowered: groups that are created
/// later would otherwise begin the wave again and again. Returns whether one was set.
fn set_cuts(view: &RolloutView, summary: &GroupSummary, waves: &mut [WaveStatus]) -> bool {
    let mut is_set = false;
    let mut left: Vec<(i64, u32)> = summary.affected.clone();
    left.sort_unstable();
    let last = waves.len().saturating_sub(1);
    for (index, (wave, status)) in view.policy.waves.iter().zip(waves).enumerate().take(last) {
        let matches = |bits: u32| bits & (1 << index) != 0;
        let Some(percent) = wave.percent else {
            left.retain(|(_, bits)| !matches(*bits));
            continue;
        };
        let is_recorded = status.cut.is_some() && status.percent == Some(i64::from(percent));
        if is_recorded || status.state == Some(WaveState::Passed) {
            left.retain(|(hash, bits)| !(matches(*bits) && status.cut.is_some_and(|cut| *hash <= cut)));
            continue;
        }
        let candidates: Vec<i64> = left.iter().filter(|(_, bits)| matches(*bits)).map(|(hash, _)| *hash).collect();
        let size = (candidates.len() * percent as usize).div_ceil(100);
        let bound = size.checked_sub(1).and_then(|at| candidates.get(at)).copied().unwrap_or(-1);
        let cut = status.cut.unwrap_or(-1).max(bound);
        (status.cut, status.percent, is_set) = (Some(cut), Some(i64::from(percent)), true);
        left.retain(|(hash, bits)| !(matches(*bits) && *hash <= cut));
    }
    is_set
}

/// Opens, soaks and passes the waves, and returns those that pass if the next poll agrees.
fn step_waves(input: &ProgressInput, waves: &mut [WaveStatus]) -> Vec<String> {
    let (view, mut ready, mut is_next) = (input.view, vec![], true);
    let can_open = !view.orders.paused && view.config_problem.is_none();
    let found_waves = view.policy.waves.iter().zip(&input.summary.waves);
    for (index, ((wave, found), status)) in found_waves.zip(waves).enumerate() {
        let is_busy = found.waiting > 0 || found.rolling > 0;
        let fails = found.failed > wave.max_failures.resolve(found.groups) && !view.is_skipped(&wave.name);
        let is_waiting = status.state == Some(WaveState::Waiting);
        let is_urgent = view.urgent_until(input.now).is_some();
        let is_due = can_open && (is_next || is_urgent);
        status.why = None;
        if let Some(problem) = view.config_problem.as_ref().filter(|_| is_waiting && is_next) {
            status.why = Some(format!("a remedy: {problem}"));
        }
        if is_waiting && is_due {
            // An approval of nothing would keep the revision from being complete, and be what the next one returns past.
            let is_empty = found.groups == 0 && input.summary.unknown == 0;
            status.why = view.opening_waits_for(wave, is_empty, input.now);
            let may_open = is_urgent || view.is_skipped(&wave.name) || are_checks_ok(input);
            if status.why.is_none() && may_open {
                status.state = Some(WaveState::Open);
                status.opened = Some(rfc3339(input.now));
            }
        }
        // A wave that opened out of turn, while the revision was urgent, is open for its tenants from now on.
        let comes_in_turn = is_next && !is_urgent && view.wave_state(index) == WaveState::Waiting;
        if status.state == Some(WaveState::Open) && comes_in_turn {
            status.opened = Some(rfc3339(input.now));
        }
        if status.state == Some(WaveState::Open) && !is_busy && !fails {
            status.state = Some(WaveState::Soaking);
            let at = found.last_settled.unwrap_or(input.now).min(input.now);
            status.settled = Some(rfc3339(at));
        }
        if status.state == Some(WaveState::Soaking) && is_busy {
            status.state = Some(WaveState::Open);
            status.settled = None;
        }
        let is_open = matches!(status.state, Some(WaveState::Open | WaveState::Soaking));
        if status.state == Some(WaveState::Open) && !is_urgent {
            let approval = view.missing_approval(wave, input.now).filter(|_| found.waiting > 0);
            let approval = approval.map(|approval| format!("a group waits for {approval}"));
            status.why = approval.or_else(|| view.wave_is_closed(wave, input.now));
        }
        let is_soaking = status.state == Some(WaveState::Soaking);
        if is_soaking && found.doubtful > 0 {
            let count = found.doubtful;
            status.why =
                Some(format!("the controller's watch does not deliver the present status of {count} of its groups"));
        } else if is_soaking && has_soaked(input, wave, found, status) && checks_let_pass(input, wave, found) {
            ready.push(wave.name.clone());
        }
        let passes = ready.contains(&wave.name) && (found.groups == 0 || (input.was_ready)(&wave.name));
        if is_open && (passes || view.is_skipped(&wave.name)) {
            status.state = Some(WaveState::Passed);
            status.passed = Some(rfc3339(input.now));
        }
        is_next = is_next && status.state == Some(WaveState::Passed);
    }
    ready
}

/// Whether the soak of a wave is over: on the wall clock, and on the monotonic one for what this process saw settle.
fn has_soaked(input: &ProgressInput, wave: &Wave, found: &WaveSummary, status: &WaveStatus) -> bool {
    // Nothing ran the revision, so there is nothing to watch.
    if found.done + found.stuck_with_target == 0 || input.view.urgent_until(input.now).is_some() {
        return true;
    }
    let settled: Option<Timestamp> = status.settled.as_deref().and_then(|text| text.parse().ok());
    let on_wall = settled.is_some_and(|at| input.now.duration_since(at) >= wave.soak);
    on_wall && (input.soaked)(&wave.name).is_none_or(|soaked| soaked >= wave.soak)
}

/// Whether a wave may open: a check that fails, or whose state is unknown, opens nothing.
fn are_checks_ok(input: &ProgressInput) -> bool {
    input.checks.iter().all(|check| check.state == CheckState::Ok)
}

/// Whether all checks have been ok for so long that a wave passes, whatever else holds.
fn checks_let_pass(input: &ProgressInput, wave: &Wave, found: &WaveSummary) -> bool {
    // Without a node of the wave, the answers need not be about one.
    let soaked = (input.soaked)(&wave.name).filter(|_| found.done > 0).map(SignedDuration::unsigned_abs);
    input.checks.iter().all(|check| check.lets_pass(soaked))
}

/// The checks that have failed for so long that the rollout stops. Before the first wave is open there is nothing to stop:
/// it does not open.
fn failed_checks<'a>(input: &ProgressInput<'a>, waves: &[WaveStatus]) -> impl Iterator<Item = &'a CheckResult> {
    let is_any_open = waves.iter().any(|wave| wave.state != Some(WaveState::Waiting));
    input.checks.iter().filter(move |check| is_any_open && check.has_failed())
}

/// Whether more groups of a wave have failed than it allows. Groups of a wave that is not open yet count as well, if they
/// cannot use the revision: that is known before their wave opens, but halts the rollout only then. `failed` counts those of a wave.
fn has_failed(
    view: &RolloutView,
    waves: &[WaveStatus],
    summary: &GroupSummary,
    failed: impl Fn(&WaveSummary) -> usize,
) -> bool {
    view.policy.waves.iter().zip(waves).zip(&summary.waves).any(|((wave, status), found)| {
        let is_open = status.state != Some(WaveState::Waiting);
        is_open && !view.is_skipped(&wave.name) && failed(found) > wave.max_failures.resolve(found.groups)
    })
}

fn set_conditions(input: &ProgressInput, status: &mut BoundariesRevisionStatus, phase: RolloutPhase) {
    let (name, now) = (&input.view.target.name, rfc3339(input.now));
    let failures = || {
        let groups = input.summary.failures.iter().take(3).map(|(group, why)| format!("{group}: {why}"));
        let checks = failed_checks(input, &status.waves).take(3).map(|check| {
            let why = check.message.as_deref().unwrap_or_default();
            format!("the check {} fails: {why}", check.name)
        });
        let listed = groups.map(|text| shorten(&text, 300)).chain(checks);
        listed.collect::<Vec<_>>().join("; ")
    };
    let is_halted = matches!(phase, RolloutPhase::Halted | RolloutPhase::Returning | RolloutPhase::Aborted);
    let reason = if input.summary.failures.is_empty() { "CheckFailed" } else { "GroupsFailed" };
    let halted = match phase {
        RolloutPhase::Halted => (
            reason,
            format!(
                "{}; correct the ConfigMap, or try again: instance-manager rollout resume {name}, or return: instance-manager rollout abort {name}",
                failures()
            ),
        ),
        RolloutPhase::Returning | RolloutPhase::Aborted => {
            let stable = input.view.stable.as_ref().map(|stable| stable.name.as_str());
            let stable = stable.or(status.stable.as_deref()).unwrap_or("the revision before");
            let why = failures();
            let why = if why.is_empty() { "by an order".to_owned() } else { why };
            (
                "Aborted",
                format!(
                    "{name} was aborted ({why}); its groups returned to {stable}; {}",
                    input.view.remedy_of_return()
                ),
            )
        }
        _ => ("NotHalted", String::new()),
    };
    let is_progressing = matches!(phase, RolloutPhase::Assessing | RolloutPhase::Rolling | RolloutPhase::Returning);
    let is_paused = input.view.orders.paused && phase == RolloutPhase::Rolling;
    let reason = if is_paused { "Paused".to_owned() } else { phase.to_string() };
    let conditions = [
        Condition::new("Progressing", is_progressing && !is_paused, &reason, ""),
        Condition::new(HALTED, is_halted, halted.0, halted.1),
        Condition::new("Complete", phase == RolloutPhase::Complete, &phase.to_string(), ""),
    ];
    // The message of a halt stays as it was when it began: groups return, and their conditions end.
    for new in conditions {
        let kept = status.conditions.iter().find(|old| old.r#type == new.r#type && old.status == new.status);
        let old_reason = |old: &Condition| old.reason.as_deref().map(|reason| current_reason(reason).to_owned());
        let is_same = |old: &Condition| old_reason(old) == new.reason || phase == RolloutPhase::Halted;
        let keeps = new.r#type == HALTED && new.is_true() && kept.is_some_and(is_same);
        if !keeps {
            set_condition(&mut status.conditions, new, &now);
        }
    }
}
