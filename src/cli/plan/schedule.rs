//! How long a roll-out takes: the estimates of its groups, laid over its waves, windows and soaks. Pure.

use jiff::{SignedDuration, Timestamp};

use crate::boundaries::{RolloutPolicy, Wave};
use crate::util::calendar::{Opening, opening};

/// The longest roll-out that is estimated.
const MAX_MINUTES: usize = 366 * 24 * 60;

/// When a roll-out could begin and end, if nothing fails and all approvals are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Minutes of work in each wave, without waiting.
    pub minutes: Vec<usize>,
    /// When the last wave has passed; `None` when the windows of a wave do not open.
    pub ends: Option<Timestamp>,
}

/// Estimates a roll-out that begins at a time. `groups` are the minutes that each group of each wave takes; `is_urgent`
/// means that neither the order of the waves nor windows count.
pub(super) fn schedule(policy: &RolloutPolicy, groups: &[Vec<usize>], begins: Timestamp, is_urgent: bool) -> Schedule {
    let minutes: Vec<usize> = policy.waves.iter().zip(groups).map(|(wave, groups)| work(wave, groups)).collect();
    let ends = match is_urgent {
        true => begins.checked_add(span(minutes.iter().copied().max().unwrap_or_default())).ok(),
        false => policy.waves.iter().zip(&minutes).try_fold(begins, |at, (wave, minutes)| match minutes {
            0 => Some(at),
            minutes => end_of_work(policy, wave, at, *minutes)?.checked_add(wave.soak).ok(),
        }),
    };
    Schedule { minutes, ends }
}

/// How long the groups of a wave take, of which only some may work at once: the longest begin.
fn work(wave: &Wave, groups: &[usize]) -> usize {
    let mut longest = groups.to_vec();
    longest.sort_unstable_by(|a, b| b.cmp(a));
    let mut slots = vec![0; wave.at_once.unwrap_or(groups.len()).clamp(1, groups.len().max(1))];
    for minutes in longest {
        if let Some(first) = slots.iter_mut().min() {
            *first += minutes;
        }
    }
    slots.into_iter().max().unwrap_or_default()
}

fn end_of_work(policy: &RolloutPolicy, wave: &Wave, begins: Timestamp, minutes: usize) -> Option<Timestamp> {
    let lists = [policy.windows.as_slice(), wave.windows.as_slice()];
    let (mut at, mut left) = (begins, minutes.min(MAX_MINUTES));
    while left > 0 {
        match opening(&lists, &policy.freezes, at) {
            Opening::Open => {
                at = at.checked_add(span(1)).ok()?;
                left -= 1;
            }
            Opening::Closed { next } | Opening::Frozen { next, .. } => at = next?,
        }
    }
    Some(at)
}

fn span(minutes: usize) -> SignedDuration {
    SignedDuration::from_mins(i64::try_from(minutes).unwrap_or(i64::MAX / 60))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundaries::Boundaries;

    fn ends(policy: &str, groups: &[Vec<usize>], is_urgent: bool) -> (Vec<usize>, Option<String>) {
        let data = [("rollout".to_owned(), policy.to_owned())].into();
        let policy = Boundaries::parse(&data).expect("a policy").0.rollout.expect("a policy");
        let begins = "2026-08-20T21:00:00Z".parse().expect("a time");
        let found = schedule(&policy, groups, begins, is_urgent);
        (found.minutes, found.ends.map(|at| at.to_string()))
    }

    #[test]
    fn work_goes_on_in_the_next_window_and_soaks_are_added() {
        let waves = "waves: [{name: a, percent: 5, soak: 2h}, {name: b, percent: 5}, {name: c, atOnce: 2}]";
        let groups = [vec![30, 10], vec![], vec![60, 60, 60]];
        assert_eq!(ends(waves, &groups, false), (vec![30, 0, 120], Some("2026-08-21T01:30:00Z".into())));
        let night = format!("windows: [{{from: '22:00', to: '23:00', zone: UTC}}]\n{waves}");
        // 30 minutes on the first night, the soak until half past midnight, and an hour on each of the next two nights.
        assert_eq!(ends(&night, &groups, false).1.as_deref(), Some("2026-08-22T23:00:00Z"));
        assert_eq!(ends(&night, &groups, true).1.as_deref(), Some("2026-08-20T23:00:00Z"), "urgent");
        let never = format!("freezes: [{{from: 2026-08-01, to: 9999-12-30, zone: UTC}}]\n{waves}");
        assert_eq!(ends(&never, &groups, false).1, None);
    }
}
