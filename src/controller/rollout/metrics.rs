//! What the metrics show of a rollout.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::budget;
use crate::controller::context::Context;
use crate::rollout::{CheckResult, GroupSummary, RolloutView, WaveSummary};
use crate::telemetry::metrics::RolloutLevels;

/// How long a group must have been behind until it has a series of its own: most groups catch up before.
const MIN_LAG: SignedDuration = SignedDuration::from_hours(24);

/// Sets all metrics of the rollout.
pub(super) fn report(
    ctx: &Context,
    view: &RolloutView,
    summary: &GroupSummary,
    checks: &[CheckResult],
    now: Timestamp,
) {
    let limits = ctx.stores.rollout.with_budget_usage(|budget_usage| budget::limits(budget_usage, &view.policy.budget));
    let metrics = &ctx.metrics.rollout;
    metrics.set(&levels(view, summary, now));
    metrics.set_budget(&limits);
    for check in checks {
        metrics.set_check(&check.name, &check.state.to_string());
    }
}

fn levels(view: &RolloutView, summary: &GroupSummary, now: Timestamp) -> RolloutLevels {
    let sum = |count: fn(&WaveSummary) -> usize| summary.waves.iter().map(count).sum::<usize>();
    let mut held: BTreeMap<String, i64> = BTreeMap::new();
    for (reason, count) in summary.waves.iter().flat_map(|wave| &wave.reasons) {
        *held.entry(reason.clone()).or_default() += count;
    }
    let state = |index: usize| match view.waits_for_approval(index, now) {
        true => "NeedsApproval".to_owned(),
        false => view.wave_state(index).to_string(),
    };
    let waves = view.policy.waves.iter().enumerate().map(|(index, wave)| (wave.name.clone(), state(index)));
    let behind = summary.behind_since.iter().filter(|(_, since)| now.duration_since(*since) >= MIN_LAG);
    RolloutLevels {
        revision: view.target.name.clone(),
        hash: view.target.hash.clone(),
        release: view.policy.release.clone().unwrap_or_default(),
        phase: view.phase().to_string(),
        groups: vec![
            ("waiting", sum(|wave| wave.waiting + wave.paused)),
            ("rolling", sum(|wave| wave.rolling - wave.paused)),
            ("done", sum(|wave| wave.done)),
            ("failed", sum(|wave| wave.failed)),
            ("held", sum(|wave| wave.held)),
        ],
        nodes: [("updated", summary.nodes_updated), ("outdated", summary.nodes_outdated)],
        waves: waves.collect(),
        held,
        behind: behind.map(|(group, since)| (group.clone(), since.as_second())).collect(),
        stuck_at: summary.stuck_at.map(Timestamp::as_second),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{controller, group, open_rollout, stores};
    use super::super::{PollState, survey};
    use super::*;
    use crate::api::WaveState;
    use crate::plan::NodeUsage;

    /// An admin sees there why no further node is replaced.
    #[tokio::test]
    async fn budget_and_its_usage_are_in_the_metrics() {
        let view = open_rollout("budget: {nodes: 5}\nwaves: [{name: all}]");
        let ctx = controller(stores(&[], &view, &[])).0.ctx;
        let series = |kind: &str| format!("instance_manager_rollout_budget_nodes{{kind=\"{kind}\",of=\"nodes\"}}");
        let shown = || ["used", "limit"].map(|kind| ctx.metrics.value(&series(kind)));
        assert_eq!(shown(), [None, None]);
        let usage = NodeUsage { desired: 9, unavailable: 2, ..NodeUsage::default() };
        ctx.stores.rollout.record_usage("team/a", Some(usage));
        report(&ctx, &view, &GroupSummary::new(&view), &[], "2026-08-20T12:00:00Z".parse().expect("a time"));
        assert_eq!(shown(), ["2", "5"].map(|value| Some(value.to_owned())));
    }

    /// The alert for a rollout without progress fires at this time. A new leader must not begin to count again, and time in
    /// which the windows are closed is no time without progress.
    #[tokio::test]
    async fn rollout_is_stuck_after_twice_the_patience_without_progress() {
        let at = |text: &str| -> Timestamp { text.parse().expect("a time") };
        let view = open_rollout("patience: 2h\nwaves: [{name: all}]");
        let rolling = group(0, (false, 3, 3, true), &view);
        let ctx = controller(stores(&[rolling], &view, &["team"])).0.ctx;
        let (mut polled, now) = (PollState::default(), at("2026-01-01T03:00:00Z"));
        let mut summary = survey(&ctx, &view, &mut polled, now).summary;
        assert_eq!(summary.last_step, Some(at("2026-01-01T00:00:00Z")), "when the group began");
        let stuck_at = |polled: &mut PollState, summary: &GroupSummary, now| polled.stuck_at(&view, summary, now);
        let begun = Some(at("2026-01-01T04:00:00Z"));
        assert_eq!(stuck_at(&mut polled, &summary, now), begun, "this process has just begun to lead");
        summary.stuck_at = begun;
        assert_eq!(levels(&view, &summary, now).stuck_at, begun.map(Timestamp::as_second));
        let later = at("2026-01-01T05:00:00Z");
        assert_eq!(stuck_at(&mut polled, &summary, later), begun, "nothing has moved");
        summary.waves[0].paused = summary.waves[0].rolling;
        let night = at("2026-01-01T12:00:00Z");
        assert_eq!(stuck_at(&mut polled, &summary, night), None, "the windows are closed");
        summary.begins_wait = true;
        let morning = at("2026-01-01T12:01:00Z");
        assert_eq!(
            stuck_at(&mut polled, &summary, morning),
            Some(at("2026-01-01T11:00:00Z")),
            "the seven hours of the night do not count, the five before do"
        );
    }

    /// A rollout that waits for a person, or a group that has been behind for a month, raises no alert otherwise.
    #[test]
    fn levels_show_what_waits_and_for_how_long() {
        let mut view = open_rollout("release: \"2026-08-20\"\nwaves: [{name: canary}, {name: rest, approval: admin}]");
        view.status.waves[1].state = Some(WaveState::Waiting);
        let now: Timestamp = "2026-08-20T12:00:00Z".parse().expect("a time");
        let mut summary = GroupSummary::new(&view);
        summary.waves[0].reasons = [("Deferred".to_owned(), 1)].into();
        summary.waves[1].reasons = [("Deferred".to_owned(), 2), ("Locked".to_owned(), 1)].into();
        (summary.nodes_updated, summary.nodes_outdated) = (3, 9);
        let since = |hours| now - SignedDuration::from_hours(hours);
        summary.behind_since = vec![("team/db".into(), since(24)), ("team/web".into(), since(23))];
        let found = levels(&view, &summary, now);
        assert_eq!((found.release.as_str(), &found.hash), ("2026-08-20", &view.target.hash));
        assert_eq!(found.nodes, [("updated", 3), ("outdated", 9)]);
        let waves = [("canary", "Passed"), ("rest", "NeedsApproval")];
        assert_eq!(found.waves, waves.map(|(wave, state)| (wave.to_owned(), state.to_owned())));
        assert_eq!(found.held, BTreeMap::from([("Deferred".to_owned(), 3), ("Locked".to_owned(), 1)]));
        assert_eq!(found.behind, [("team/db".to_owned(), since(24).as_second())]);
        view.orders.approved = vec!["rest".into()];
        assert_eq!(levels(&view, &summary, now).waves[1].1, "Waiting");
        view.orders.approved.clear();
        view.orders.paused = true;
        assert_eq!(levels(&view, &summary, now).waves[1].1, "Waiting", "an approval alone would not open it");
        view.orders.paused = false;
        view.config_problem = Some("the ConfigMap is broken".to_owned());
        assert_eq!(levels(&view, &summary, now).waves[1].1, "Waiting", "an approval alone would not open it");
    }
}
