//! Estimates the duration of a rollout and its extra capacity: the replacements of its groups, scheduled by waves,
//! budget, windows and soaks. Pure.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};

use crate::boundaries::{BudgetPolicy, RolloutPolicy, Wave};
use crate::provisioner::ExtraNodes;
use crate::util::calendar::{WindowState, window_state};

/// The longest rollout that is estimated.
const MAX_MINUTES: usize = 366 * 24 * 60;

/// The replacement of one group's nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// How many nodes are replaced.
    pub nodes: usize,
    /// How many of them may be unavailable at once.
    pub max_unavailable: usize,
    /// How long a batch takes; zero where another controller decides.
    pub batch: SignedDuration,
    /// How many nodes run in addition meanwhile.
    pub extra: ExtraNodes,
    /// How many vCPUs one of these has at most; `None` when that is not known.
    pub vcpus: Option<u64>,
}

impl Work {
    /// How long it takes, in whole minutes.
    pub(crate) fn minutes(&self) -> usize {
        let batches = self.nodes.div_ceil(self.batch_size().max(1));
        let seconds = self.batch.as_secs().saturating_mul(i64::try_from(batches).unwrap_or(i64::MAX));
        usize::try_from(seconds.saturating_add(59) / 60).unwrap_or_default()
    }

    /// How many nodes are unavailable at once: none while others run in addition.
    fn unavailable(&self) -> usize {
        if self.extra == ExtraNodes::None { self.max_unavailable.min(self.nodes) } else { 0 }
    }

    /// How many nodes are in standby at once for `maxSurge`.
    fn surging(&self) -> usize {
        match self.extra {
            ExtraNodes::Surge(surge) => surge.min(self.nodes),
            ExtraNodes::None | ExtraNodes::SecondGroup => 0,
        }
    }

    fn batch_size(&self) -> usize {
        if let ExtraNodes::Surge(surge) = self.extra { surge } else { self.max_unavailable }
    }

    /// How long nodes run in addition, in seconds of one node.
    fn extra_seconds(&self) -> i64 {
        let minutes = i64::try_from(self.minutes()).unwrap_or(i64::MAX);
        let each = match self.extra {
            ExtraNodes::None => 0,
            ExtraNodes::Surge(_) => self.batch.as_secs(),
            ExtraNodes::SecondGroup => minutes.saturating_mul(60),
        };
        each.saturating_mul(i64::try_from(self.nodes).unwrap_or(i64::MAX))
    }

    /// The same for their vCPUs; `None` when those are not known.
    fn extra_vcpu_seconds(&self) -> Option<i64> {
        match self.extra_seconds() {
            0 => Some(0),
            seconds => Some(seconds.saturating_mul(i64::try_from(self.vcpus?).unwrap_or(i64::MAX))),
        }
    }

    /// The same within the limits of a budget: a group takes fewer nodes at once than it could.
    fn within(self, limits: NodeLimits) -> Self {
        let max_unavailable = limits.unavailable.filter(|_| self.extra == ExtraNodes::None);
        let extra = match (self.extra, limits.surging) {
            (ExtraNodes::Surge(surge), Some(limit)) => ExtraNodes::Surge(surge.min(limit)),
            (extra, _) => extra,
        };
        Self {
            max_unavailable: max_unavailable.map_or(self.max_unavailable, |limit| self.max_unavailable.min(limit)),
            extra,
            ..self
        }
    }
}

/// How many nodes of all groups together may be unavailable, or in standby; `None` for any number.
#[derive(Clone, Copy, Debug, Default)]
struct NodeLimits {
    unavailable: Option<usize>,
    surging: Option<usize>,
}

/// The nodes of the cluster's groups, of which a budget is a share.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClusterNodes {
    /// How many nodes all groups have together.
    pub nodes: usize,
    /// Those in each zone; empty when the zones are not known.
    pub zones: Vec<usize>,
}

impl ClusterNodes {
    /// What a budget leaves. The limit of each zone counts for all zones together: which zone's nodes a group takes first is
    /// not known.
    fn limits(&self, budget: &BudgetPolicy) -> NodeLimits {
        let of_all = budget.nodes.map(|amount| amount.at_least_one(self.nodes));
        let of_zones = budget.zone.filter(|_| !self.zones.is_empty());
        let of_zones = of_zones.map(|amount| self.zones.iter().map(|nodes| amount.at_least_one(*nodes)).sum());
        NodeLimits { unavailable: of_all.into_iter().chain(of_zones).min(), surging: budget.surge }
    }
}

/// When a rollout could begin and end, if nothing fails and all approvals are there, and what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    /// Minutes of work in each wave, without waiting.
    pub minutes: Vec<usize>,
    /// When the last wave has passed; `None` when the windows of a wave do not open.
    pub ends: Option<Timestamp>,
    /// How many nodes may be unavailable at once.
    pub unavailable: usize,
    /// Seconds for which nodes run in addition, summed over these nodes.
    pub extra_seconds: i64,
    /// The same, summed over their vCPUs; `None` when those are not known.
    pub extra_vcpu_seconds: Option<i64>,
}

/// Estimates a rollout that begins at a time. `groups` is the work of each wave; `is_urgent` means that neither the order of
/// the waves nor windows count.
pub(super) fn schedule(
    policy: &RolloutPolicy,
    groups: &[Vec<Work>],
    cluster_nodes: &ClusterNodes,
    begins: Timestamp,
    is_urgent: bool,
) -> Schedule {
    let limits = cluster_nodes.limits(&policy.budget);
    let lanes = |(wave, groups): (&Wave, &Vec<Work>)| WaveWork {
        max_concurrent_groups: wave.max_concurrent_groups.unwrap_or(usize::MAX),
        groups: groups.iter().map(|work| work.within(limits)).collect(),
    };
    let lanes: Vec<WaveWork> = policy.waves.iter().zip(groups).map(lanes).collect();
    let minutes: Vec<usize> = lanes.iter().map(|lane| run(std::slice::from_ref(lane), limits)).collect();
    let ends = match is_urgent {
        true => begins.checked_add(span(run(&lanes, limits))).ok(),
        false => policy.waves.iter().zip(&minutes).try_fold(begins, |at, (wave, minutes)| match minutes {
            0 => Some(at),
            minutes => replacements_end(policy, wave, at, *minutes)?.checked_add(wave.soak).ok(),
        }),
    };
    let of_waves = lanes.iter().map(WaveWork::unavailable);
    let unavailable = if is_urgent { of_waves.sum() } else { of_waves.max().unwrap_or_default() };
    Schedule {
        minutes,
        ends,
        unavailable: limits.unavailable.map_or(unavailable, |limit| unavailable.min(limit)),
        extra_seconds: groups.iter().flatten().map(Work::extra_seconds).fold(0, i64::saturating_add),
        extra_vcpu_seconds: groups.iter().flatten().map(Work::extra_vcpu_seconds).sum(),
    }
}

/// How many minutes these groups take to return to what they had: within the budget, and without waves and windows.
pub(crate) fn return_minutes(budget: &BudgetPolicy, groups: &[Work], cluster_nodes: &ClusterNodes) -> usize {
    let limits = cluster_nodes.limits(budget);
    let groups = groups.iter().map(|work| work.within(limits)).collect();
    run(&[WaveWork { max_concurrent_groups: usize::MAX, groups }], limits)
}

/// The groups of a wave, of which only some may replace nodes at once.
struct WaveWork {
    max_concurrent_groups: usize,
    groups: Vec<Work>,
}

impl WaveWork {
    /// The most nodes that are unavailable at once.
    fn unavailable(&self) -> usize {
        let mut all: Vec<usize> = self.groups.iter().map(Work::unavailable).collect();
        all.sort_unstable_by_key(|nodes| Reverse(*nodes));
        all.iter().take(self.max_concurrent_groups).sum()
    }
}

/// The capacity that all groups in progress use together.
#[derive(Default)]
struct WorkInProgress {
    /// How many groups of each lane work.
    groups: Vec<usize>,
    unavailable: usize,
    surging: usize,
}

impl WorkInProgress {
    fn count(running: &[(usize, usize, Work)], lanes: usize) -> Self {
        let mut in_progress = Self { groups: vec![0; lanes], ..Self::default() };
        running.iter().for_each(|(_, lane, work)| in_progress.add(*lane, work));
        in_progress
    }

    fn add(&mut self, lane: usize, work: &Work) {
        self.groups[lane] += 1;
        self.unavailable += work.unavailable();
        self.surging += work.surging();
    }

    /// Whether another group of a lane may begin. A group that takes more than a limit goes alone.
    fn has_room(&self, lane: usize, max_concurrent_groups: usize, work: &Work, limits: NodeLimits) -> bool {
        let fits = |limit: Option<usize>, used: usize, added: usize| {
            limit.is_none_or(|limit| used == 0 || used + added <= limit)
        };
        self.groups[lane] < max_concurrent_groups
            && fits(limits.unavailable, self.unavailable, work.unavailable())
            && fits(limits.surging, self.surging, work.surging())
    }
}

/// How many minutes the groups of these waves take together: the longest begin, and others as soon as the limits leave room.
fn run(lanes: &[WaveWork], limits: NodeLimits) -> usize {
    let all = lanes.iter().enumerate().flat_map(|(lane, found)| found.groups.iter().map(move |work| (lane, *work)));
    let mut waiting: Vec<(usize, Work)> = all.collect();
    waiting.sort_by_key(|(_, work)| Reverse(work.minutes()));
    // The groups that work: when each ends, its lane, and its work.
    let (mut running, mut now): (Vec<(usize, usize, Work)>, usize) = (Vec::new(), 0);
    loop {
        let mut in_progress = WorkInProgress::count(&running, lanes.len());
        waiting.retain(|(lane, work)| {
            let begins = in_progress.has_room(*lane, lanes[*lane].max_concurrent_groups, work, limits);
            if begins {
                in_progress.add(*lane, work);
                running.push((now + work.minutes(), *lane, *work));
            }
            !begins
        });
        let Some(next) = running.iter().map(|(ends, ..)| *ends).min() else { return now };
        now = next;
        running.retain(|(ends, ..)| *ends > now);
    }
}

fn replacements_end(policy: &RolloutPolicy, wave: &Wave, begins: Timestamp, minutes: usize) -> Option<Timestamp> {
    let lists = [policy.windows.as_slice(), wave.windows.as_slice()];
    let (mut at, mut left) = (begins, minutes.min(MAX_MINUTES));
    while left > 0 {
        match window_state(&lists, &policy.freezes, at) {
            WindowState::Open => {
                at = at.checked_add(span(1)).ok()?;
                left -= 1;
            }
            WindowState::Closed { next } | WindowState::Frozen { next, .. } => at = next?,
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

    /// So many nodes of a group, one after the other, at a minute each.
    fn one_by_one(nodes: usize) -> Work {
        Work { nodes, max_unavailable: 1, batch: SignedDuration::from_mins(1), extra: ExtraNodes::None, vcpus: None }
    }

    fn scheduled(policy: &str, groups: &[Vec<Work>], is_urgent: bool) -> Schedule {
        let data = [("rollout".to_owned(), policy.to_owned())].into();
        let policy = Boundaries::parse(&data).expect("a policy").0.rollout.expect("a policy");
        let begins = "2026-08-20T21:00:00Z".parse().expect("a time");
        let cluster_nodes = ClusterNodes { nodes: 100, zones: vec![60, 30, 10] };
        schedule(&policy, groups, &cluster_nodes, begins, is_urgent)
    }

    fn ends(policy: &str, groups: &[Vec<Work>], is_urgent: bool) -> (Vec<usize>, Option<String>) {
        let found = scheduled(policy, groups, is_urgent);
        (found.minutes, found.ends.map(|at| at.to_string()))
    }

    #[test]
    fn schedule_continues_in_the_next_window_and_adds_soaks() {
        let waves = "waves: [{name: a, percent: 5, soak: 2h}, {name: b, percent: 5}, {name: c, atOnce: 2}]";
        let groups = [vec![one_by_one(30), one_by_one(10)], vec![], vec![one_by_one(60); 3]];
        assert_eq!(ends(waves, &groups, false), (vec![30, 0, 120], Some("2026-08-21T01:30:00Z".into())));
        let night = format!("windows: [{{from: '22:00', to: '23:00', zone: UTC}}]\n{waves}");
        // 30 minutes on the first night, the soak until half past midnight, and an hour on each of the next two nights.
        assert_eq!(ends(&night, &groups, false).1.as_deref(), Some("2026-08-22T23:00:00Z"));
        assert_eq!(ends(&night, &groups, true).1.as_deref(), Some("2026-08-20T23:00:00Z"), "urgent");
        let never = format!("freezes: [{{from: 2026-08-01, to: 9999-12-30, zone: UTC}}]\n{waves}");
        assert_eq!(ends(&never, &groups, false).1, None);
    }

    /// An admin who sets a budget of two nodes must not read that 50 groups are done in ten minutes.
    #[test]
    fn budget_makes_groups_wait_and_large_batches_smaller() {
        let minutes = |policy: &str, groups: Vec<Work>| {
            let found = scheduled(policy, &[groups], false);
            (found.minutes[0], found.unavailable)
        };
        let several = || vec![one_by_one(10); 50];
        assert_eq!(minutes("history: 10", several()), (10, 50));
        assert_eq!(minutes("waves: [{name: a, atOnce: 5}]", several()), (100, 5));
        assert_eq!(minutes("budget: {nodes: 2}", several()), (250, 2));
        assert_eq!(minutes("budget: {nodes: 2%}", several()), (250, 2), "of all 100 nodes");
        assert_eq!(minutes("budget: {zone: 1}", several()), (170, 3), "one in each of three zones");
        assert_eq!(minutes("budget: {zone: 10%, nodes: 50%}", several()), (50, 10), "six, three and one");
        let batch = Work { max_unavailable: 10, ..one_by_one(10) };
        assert_eq!(minutes("budget: {nodes: 4}", vec![batch]), (3, 4), "batches of four");
        // The short ones go beside the long one.
        let mixed = [vec![one_by_one(10)], vec![one_by_one(2); 5]].concat();
        assert_eq!(minutes("budget: {nodes: 2}", mixed), (10, 2));
    }

    /// Standby nodes cost money, but make no node unavailable.
    #[test]
    fn nodes_in_addition_are_counted_in_hours_and_none_is_unavailable() {
        let surge = Work { extra: ExtraNodes::Surge(3), batch: SignedDuration::from_mins(10), ..one_by_one(9) };
        let found = |policy: &str, work: Work| {
            let found = scheduled(policy, &[vec![work, work]], false);
            assert_eq!(found.extra_vcpu_seconds, work.vcpus.map(|_| found.extra_seconds * 4));
            (found.minutes[0], found.unavailable, found.extra_seconds / 60)
        };
        found("history: 10", Work { vcpus: Some(4), ..surge });
        assert_eq!(found("history: 10", surge), (30, 0, 180));
        assert_eq!(found("budget: {nodes: 1, surge: 3}", surge), (60, 0, 180), "one group after the other");
        assert_eq!(found("budget: {surge: 1}", surge), (180, 0, 180), "and one node after the other");
        let second = Work { extra: ExtraNodes::SecondGroup, ..one_by_one(9) };
        assert_eq!(found("budget: {nodes: 1}", second), (9, 0, 2 * 9 * 9));
    }
}
