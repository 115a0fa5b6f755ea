//! Warnings about the key `rollout`: what is valid, but has another effect than an admin expects.

use jiff::Timestamp;

use super::error::ConfigWarning;
use super::glob::covers_glob;
use super::rollout_policy::{RolloutPolicy, Wave};
use super::rollout_times::{Delay, MAX_URGENCY};
use super::section::Section;
use super::selector::AnnotationSelector;
use crate::util::calendar::{Freeze, opens_for_half_an_hour};

/// Warns about waves that are empty, because a wave before them selects all of their groups. A wave with a percentage
/// leaves groups to the others. One that selects every group has a warning of its own.
pub(super) fn warn_about_covered_waves(section: &Section, waves: &[Wave], warnings: &mut Vec<ConfigWarning>) {
    // The last wave takes all groups that are left, whatever its selectors are.
    let Some((_, limited)) = waves.split_last() else { return };
    for (index, wave) in limited.iter().enumerate() {
        let covers = |before: &&Wave| {
            let has_selectors = before.namespaces.is_some() || before.groups.is_some();
            let is_narrower = narrows(&wave.namespaces, &before.namespaces) && narrows(&wave.groups, &before.groups);
            before.percent.is_none() && has_selectors && is_narrower
        };
        let Some(before) = limited[..index].iter().find(covers) else { continue };
        let name = &before.name;
        let is_equal = narrows(&before.namespaces, &wave.namespaces) && narrows(&before.groups, &wave.groups);
        let (selectors, remedy) = match is_equal {
            true => ("the same selectors", "give it other selectors".to_owned()),
            false => ("wider selectors", format!("move it before wave {name}")),
        };
        let message = format!("is empty: wave {name} has {selectors} and takes all groups that they select");
        let remedy = || format!("{remedy}, or set percent in wave {name}");
        section.warn(&format!("waves[{index}]"), &message, remedy, warnings);
    }
}

/// Whether a selector matches nothing that another one does not; without a selector, every group matches.
fn narrows(selector: &Option<AnnotationSelector>, other: &Option<AnnotationSelector>) -> bool {
    match (selector, other) {
        (_, None) => true,
        (Some(selector), Some(other)) => selector.narrows(other),
        (None, Some(_)) => false,
    }
}

/// Warns about windows that end at the time at which they begin: they are open for a whole day, not closed.
pub(super) fn warn_about_whole_days(section: &Section, policy: &RolloutPolicy, warnings: &mut Vec<ConfigWarning>) {
    let of_waves = policy.waves.iter().enumerate();
    let of_waves = of_waves.map(|(index, wave)| (format!("waves[{index}].windows"), &wave.windows));
    for (list, windows) in [("windows".to_owned(), &policy.windows)].into_iter().chain(of_waves) {
        for (index, _) in windows.iter().enumerate().filter(|(_, window)| window.has_equal_times()) {
            let message = "is the same as from, so the window is open for 24 hours";
            let remedy = || "write another time, or for the whole day \"00:00\" to \"24:00\"".to_owned();
            section.warn(&format!("{list}[{index}].to"), message, remedy, warnings);
        }
    }
}

/// Warns about items of `deferral` and `delay` that are never the first match.
pub(super) fn warn_about_covered_globs(section: &Section, policy: &RolloutPolicy, warnings: &mut Vec<ConfigWarning>) {
    let namespaces: Vec<&str> = policy.deferral.iter().map(|deferral| deferral.namespaces.as_str()).collect();
    let clusters: Vec<&str> = policy.delay.iter().map(|delay| delay.clusters.as_str()).collect();
    for (list, globs) in [("deferral", namespaces), ("delay", clusters)] {
        for (index, glob) in globs.iter().enumerate() {
            let Some(first) = globs[..index].iter().position(|before| covers_glob(before, glob)) else { continue };
            let message = format!("is never the first match: {list}[{first}] matches all names that it matches");
            let remedy = || format!("move it before {list}[{first}], or remove it");
            section.warn(&format!("{list}[{index}]"), &message, remedy, warnings);
        }
    }
}

/// The longest freeze, in days, that is not likely a mistake in a date.
const MAX_FREEZE_DAYS: i64 = 366;

/// Warns about freezes whose last day is likely of a wrong year.
pub(super) fn warn_about_long_freezes(section: &Section, freezes: &[Freeze], warnings: &mut Vec<ConfigWarning>) {
    for (index, freeze) in freezes.iter().enumerate() {
        let days = freeze.to.duration_since(freeze.from).as_hours() / 24;
        if days > MAX_FREEZE_DAYS {
            let message = format!("`{}` is {days} days after from, and no node is replaced in between", freeze.to);
            let remedy = || "write the last frozen day, within a year".to_owned();
            section.warn(&format!("freezes[{index}].to"), &message, remedy, warnings);
        }
    }
}

/// Warns about delays by cluster in a process that does not know its cluster.
pub(super) fn warn_about_delays(
    section: &Section,
    delays: &[Delay],
    has_cluster: bool,
    warnings: &mut Vec<ConfigWarning>,
) {
    if !has_cluster && delays.iter().any(|delay| delay.clusters != "*") {
        let message =
            "selects clusters by name, and the controller runs without --cluster-name: the longest delay applies";
        section.warn("delay", message, || "set that flag, or write one delay for *".to_owned(), warnings);
    }
}

/// Warns about what depends on the time: waves that do not open, and an urgency that is over, or ends earlier than it
/// says.
pub(super) fn warn_about_times(
    section: &Section,
    policy: &RolloutPolicy,
    now: Timestamp,
    warnings: &mut Vec<ConfigWarning>,
) {
    warn_about_closed_waves(section, policy, now, warnings);
    let Some(until) = policy.urgent_until else { return };
    let days = MAX_URGENCY.as_hours() / 24;
    if until <= now {
        let message = format!("`{until}` is over, so it has no effect");
        let remedy = || format!("remove it, or write a time within {days} days");
        section.warn("urgentUntil", &message, remedy, warnings);
    } else if until.duration_since(now) > MAX_URGENCY {
        let message = format!(
            "`{until}` is more than {days} days away; each change that arrives before then is urgent for at most {days} days"
        );
        section.warn("urgentUntil", &message, || format!("write a time within {days} days"), warnings);
    }
}

/// Warns about waves without an opening, at the freeze, or the list of windows, that leaves them none.
fn warn_about_closed_waves(
    section: &Section,
    policy: &RolloutPolicy,
    now: Timestamp,
    warnings: &mut Vec<ConfigWarning>,
) {
    let closed = policy.waves_without_opening(now);
    if closed.is_empty() {
        return;
    }
    let covers_all = |freeze: &Freeze| !opens_for_half_an_hour(&[], std::slice::from_ref(freeze), now);
    // Without an opening, and without windows of its own, a wave is closed by the policy, as all others are.
    let is_by_wave = closed.iter().all(|index| !policy.waves[*index].windows.is_empty());
    let of_policy = "let the windows of a wave and of the policy overlap, or end a freeze";
    let (path, subject, remedy) = match policy.freezes.iter().position(covers_all) {
        Some(index) => (format!("freezes[{index}]"), "leaves", "end the freeze earlier, unless it is meant so"),
        None if is_by_wave => {
            let path = format!("waves[{}].windows", closed[0]);
            (path, "with the windows and freezes of the policy, leave", of_policy)
        }
        None if policy.windows.is_empty() => ("freezes".to_owned(), "leave", of_policy),
        None => ("windows".to_owned(), "with the freezes, leave", of_policy),
    };
    let names: Vec<&str> = closed.iter().map(|index| policy.waves[*index].name.as_str()).collect();
    let names = names.join(", ");
    let message = format!("{subject} no opening of half an hour within two weeks for the waves {names}");
    section.warn(&path, &message, || remedy.to_owned(), warnings);
}
