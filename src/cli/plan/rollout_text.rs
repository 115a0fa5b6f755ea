//! The rollout in the text output of `plan`, below the totals.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::rollout::{RolloutPlan, WavePlan, format_minutes};
use crate::k8s::DrainBlocker;
use crate::util::counted::counted;

/// How many lines of one kind are shown; `-o json` has all.
const MAX_LINES: usize = 20;

/// The table of the waves, and what stands in the way. `file` is the ConfigMap that replaces the live one.
pub(super) fn render(plan: &RolloutPlan, file: &str) -> String {
    let mut out = String::new();
    write(&mut out, plan, file).expect("writing to a String does not fail");
    out
}

fn write(out: &mut String, plan: &RolloutPlan, file: &str) -> std::fmt::Result {
    let superseded = plan.supersedes.as_ref().map(|name| format!(" and ends the rollout of {name}"));
    let superseded = superseded.unwrap_or_default();
    if plan.is_return {
        return writeln!(
            out,
            "{file} becomes {}{superseded}. All groups take it at once: it is what they had before.",
            plan.revision
        );
    }
    writeln!(out, "{file} becomes {}{superseded}, and reaches the groups in waves:", plan.revision)?;
    let mut rows = Vec::new();
    if plan.immediate_groups > 0 {
        rows.push(("at once", format!("{}, in place", counted(plan.immediate_groups, "group"))));
    }
    let last = plan.waves.last().map(|wave| wave.name.as_str()).unwrap_or_default();
    rows.extend(plan.waves.iter().map(|wave| (wave.name.as_str(), wave_row(wave, last))));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    for (name, text) in rows {
        writeln!(out, "  {name:width$}  {text}")?;
    }
    write_end(out, plan)?;
    if plan.policy_waits {
        let remedy = "commit it on its own, before the rest, for all groups to have it at once";
        writeln!(
            out,
            "  the change of policy waits as well: groups that replace nodes get it in their waves; {remedy}"
        )?;
    }
    write_lines(out, &plan.cannot_use.iter().map(|group| format!("cannot use it: {group}")).collect::<Vec<_>>())?;
    write_lines(out, &plan.irreversible.iter().map(|group| format!("irreversible: {group}")).collect::<Vec<_>>())?;
    write_lines(out, &would_block(plan))
}

fn wave_row(wave: &WavePlan, last: &str) -> String {
    let mut text = match (wave.groups, wave.nodes) {
        (0, _) => "no group".to_owned(),
        (groups, 0) => counted(groups, "group"),
        (groups, nodes) => format!("{}, {}", counted(groups, "group"), counted(nodes, "node")),
    };
    if let Some(percent) = wave.percent {
        text = format!("{percent} % of the affected groups, which are counted in {last} here");
    }
    if let Some(minutes) = wave.estimated_minutes {
        text += &format!(", about {}", format_minutes(minutes));
    }
    let soak = wave.soak.as_ref().map(|soak| format!(", then {soak} of soak")).unwrap_or_default();
    let needs: String = wave.needs.iter().map(|need| format!("; {}", need.describe())).collect();
    text + &soak + &needs
}

/// When it ends, or why it does not, and what it takes of the cluster until then.
fn write_end(out: &mut String, plan: &RolloutPlan) -> std::fmt::Result {
    let needs_approval = plan.waves.iter().any(|wave| wave.needs.iter().any(|need| need.is_approval()));
    let unless = if needs_approval { "if it is approved at once and nothing fails" } else { "if nothing fails" };
    let has_work = plan.waves.iter().any(|wave| wave.estimated_minutes.is_some());
    let halts = plan.waves.iter().find(|wave| Some(&wave.name) == plan.halts_in.as_ref());
    match (&plan.ends, halts) {
        (_, Some(wave)) => {
            let (all, failures) = (counted(wave.groups + wave.failures, "group"), wave.failures);
            let (name, allowed) = (&wave.name, wave.max_failures);
            writeln!(
                out,
                "  would halt in wave {name}: {failures} of {all} cannot use it, and maxFailures allows {allowed}"
            )?;
        }
        (Some(ends), None) if has_work => writeln!(out, "  ends about {ends}, {unless}")?,
        (Some(_), None) => {}
        (None, None) => writeln!(out, "  never ends: the windows of a wave do not open within two weeks")?,
    }
    let mut limits = Vec::new();
    if plan.max_unavailable > 0 {
        limits.push(format!("at most {} unavailable at once", counted(plan.max_unavailable, "node")));
    }
    limits.extend(extra_nodes(plan));
    if limits.is_empty() { Ok(()) } else { writeln!(out, "  {}", limits.join("; ")) }
}

/// How long nodes run in addition, and which groups cause that. `None` where no node is replaced.
fn extra_nodes(plan: &RolloutPlan) -> Option<String> {
    if plan.extra_node_groups == 0 {
        let is_replacing = plan.max_unavailable > 0;
        return is_replacing.then(|| "no extra nodes (no group has maxSurge or a second node group)".to_owned());
    }
    let hours = match plan.extra_node_hours {
        0.0 => "less than 0.1".to_owned(),
        hours => format!("about {hours}"),
    };
    let groups = counted(plan.extra_node_groups, "group");
    let vcpus = plan.extra_vcpu_hours.map(|hours| format!(", at most {hours} vCPU-hours")).unwrap_or_default();
    Some(format!("{hours} extra node-hours{vcpus} ({groups} with maxSurge or a second node group)"))
}

/// A line for each budget that protects the pods of an owner, by wave and group, with the first of these pods.
fn would_block(plan: &RolloutPlan) -> Vec<String> {
    let mut lines = Vec::new();
    for wave in &plan.waves {
        let mut found: BTreeMap<(&str, String, &str), Vec<&DrainBlocker>> = BTreeMap::new();
        for blocked in &wave.would_block {
            let key = (blocked.group.as_str(), blocked.obstacle.subject(), blocked.obstacle.budget.as_str());
            found.entry(key).or_default().push(&blocked.obstacle);
        }
        lines.extend(found.into_iter().map(|((group, subject, _), pods)| {
            let (first, more) = (pods[0], pods.len() - 1);
            let more = if more > 0 { format!(" and {} more", counted(more, "pod")) } else { String::new() };
            let pod = format!("pod {} on {}{more}", first.pod, first.node);
            format!("would block in wave {}: {group}: {subject} ({pod}): {}", wave.name, first.describe())
        }));
    }
    lines
}

fn write_lines(out: &mut String, lines: &[String]) -> std::fmt::Result {
    for line in lines.iter().take(MAX_LINES) {
        writeln!(out, "  {line}")?;
    }
    match lines.len().saturating_sub(MAX_LINES) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more of these: -o json has all"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use jiff::SignedDuration;

    use super::*;
    use crate::boundaries::active::select_active;
    use crate::cli::plan::estimate::MeasuredJoin;
    use crate::cli::plan::report::GroupPlan;
    use crate::cli::plan::rollout::GroupRollout;
    use crate::cli::plan::schedule::ClusterNodes;
    use crate::k8s::DrainBlockerKind;
    use crate::provisioner::{ExtraNodes, NodeReplacement};
    use crate::rollout::{RevisionImpact, RolloutView};

    /// A group in a wave, of which so many nodes are replaced, one at a time.
    fn group(key: &str, position: usize, nodes: usize) -> GroupPlan {
        let wave = ["canary", "rest"][position - 1].to_owned();
        let place = GroupRollout {
            revision: Some("r1".into()),
            target: "r2".into(),
            wave,
            position,
            waves: 2,
            takes: false,
            reason: None,
            waits: None,
            effect: Some(RevisionImpact::Rotate { nodes }),
            fails_wave: false,
        };
        let node = |index: usize| NodeReplacement {
            instance: format!("i-{index}"),
            node: Some(format!("ip-{index}")),
            zone: "us-west-2a".into(),
            reasons: vec![],
        };
        GroupPlan {
            rollout: Some(place),
            nodes_to_rotate: (0..nodes).map(node).collect(),
            max_unavailable: Some(1),
            ..GroupPlan::empty(key.into())
        }
    }

    fn redis(index: usize) -> DrainBlocker {
        DrainBlocker {
            node: format!("ip-{index}"),
            pod: format!("team-b/redis-{index}"),
            owner: Some("StatefulSet redis".into()),
            kind: DrainBlockerKind::Never,
            budget: "redis".into(),
            limit: "minAvailable 2 of 2 pods".into(),
            remedy: "add replicas".into(),
        }
    }

    fn text(rollout: &str, groups: &[GroupPlan]) -> String {
        text_with_policy(rollout, "", groups)
    }

    /// The same for a change that sets the key `policy` as well.
    fn text_with_policy(rollout: &str, policy: &str, groups: &[GroupPlan]) -> String {
        let map = |texts: &[(&str, &str)]| -> BTreeMap<String, String> {
            texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
        };
        let before = map(&[("rollout", rollout)]);
        let boundaries = "restricted: [spec.eks.configuration.image]";
        let data = map(&[("rollout", rollout), ("boundaries", boundaries), ("policy", policy)]);
        let active = Arc::new(select_active(Some(&data), None, true).0);
        let view = RolloutView::of_content(&[], Some(&before), &data, &active, None).expect("a rollout");
        let now = "2026-08-20T21:00:00Z".parse().expect("a time");
        let cluster_nodes = ClusterNodes { nodes: 100, ..ClusterNodes::default() };
        render(
            &RolloutPlan::new(&view, None, groups.iter().filter_map(GroupPlan::share), &cluster_nodes, now),
            "new.yaml",
        )
    }

    /// What an admin decides by, before the change is committed.
    #[test]
    fn plan_lists_the_replacements_halts_and_blockers_of_a_rollout() {
        let cannot = RevisionImpact::CannotUse { reason: "ImageNotFound".into(), message: "no such image".into() };
        let mut win = group("team-x/win", 2, 0);
        let place = win.rollout.as_mut().expect("a place");
        (place.effect, place.fails_wave) = (Some(cannot), true);
        let surge = GroupPlan { extra_nodes: ExtraNodes::Surge(1), node_vcpus: Some(8), ..group("team-s/web", 2, 3) };
        let pool = GroupPlan { irreversible: Some("EKS says no"), ..group("team-m/pool", 2, 2) };
        let blocked = GroupPlan { blocked_drains: vec![redis(0), redis(1)], ..group("team-b/redis", 2, 2) };
        let groups = [group("team-a/web", 1, 4), surge, pool, blocked, win];
        let waves = "waves: [{name: canary, soak: 2h}, {name: rest, maxFailures: 1}]";
        let common = "  cannot use it: team-x/win: ImageNotFound: no such image; it keeps r1 and fails wave rest
  irreversible: team-m/pool: EKS says no
  would block in wave rest: team-b/redis: StatefulSet team-b/redis (pod team-b/redis-0 on ip-0 and 1 pod more): PodDisruptionBudget redis, minAvailable 2 of 2 pods, can never allow an eviction; add replicas
";
        let expected = "new.yaml becomes r2, and reaches the groups in waves:
  canary  1 group, 4 nodes, about 20m, then 2h of soak
  rest    3 groups, 7 nodes, about 15m
  ends about 2026-08-20T23:35:00Z, if nothing fails
  at most 2 nodes unavailable at once; about 0.3 extra node-hours, at most 2 vCPU-hours (1 group with maxSurge or a second node group)
";
        assert_eq!(text(waves, &groups), format!("{expected}{common}"));
        let strict = text("waves: [{name: canary}, {name: rest}]\nbudget: {nodes: 1%}", &groups);
        let halts = "would halt in wave rest: 1 of 4 groups cannot use it, and maxFailures allows 0";
        assert!(strict.contains(halts) && !strict.contains("ends about"), "{strict}");
        // One group after the other, and the one that surges beside them.
        assert!(
            strict.contains("rest    3 groups, 7 nodes, about 20m") && strict.contains("at most 1 node"),
            "{strict}"
        );
    }

    /// An admin who reads nothing about the cost does not know whether it is nothing, or unknown.
    #[test]
    fn cost_is_named_also_where_it_is_small_or_nothing() {
        let waves = "waves: [{name: canary}, {name: rest}]";
        let none = text(waves, &[group("team-a/web", 1, 4)]);
        let words = "at most 1 node unavailable at once; no extra nodes (no group has maxSurge or a second node group)";
        assert!(none.contains(words), "{none}");
        let measured = MeasuredJoin { median: SignedDuration::ZERO, nodes: 1 };
        let surge =
            GroupPlan { extra_nodes: ExtraNodes::Surge(1), measured_join: Some(measured), ..group("team-s/web", 2, 1) };
        let little = text(waves, &[surge]);
        assert!(little.contains("less than 0.1 extra node-hours (1 group with maxSurge"), "{little}");
        let nothing = text(waves, &[group("team-a/web", 1, 0)]);
        assert!(!nothing.contains("extra node"), "{nothing}");
    }

    /// An admin who closes a hole together with a new image would leave it open until the last wave.
    #[test]
    fn policy_that_waits_for_the_waves_is_warned_about() {
        let waves = "waves: [{name: canary}, {name: rest}]";
        let warns = |policy: &str, nodes: usize| {
            text_with_policy(waves, policy, &[group("team-a/web", 2, nodes)])
                .contains("the change of policy waits as well")
        };
        assert_eq!([warns("roles: []", 3), warns("roles: []", 0), warns("", 3)], [true, false, false]);
    }

    /// The nodes that a tenant's own change replaces are replaced whatever happens to the revision.
    #[test]
    fn nodes_that_a_tenant_replaces_are_not_part_of_the_estimate() {
        let mut own = GroupPlan { irreversible: Some("EKS says no"), ..group("team-a/web", 2, 3) };
        own.rollout.as_mut().expect("a place").effect = Some(RevisionImpact::Rotate { nodes: 0 });
        let shown = text("waves: [{name: canary}, {name: rest}]", &[own]);
        assert!(shown.contains("rest    1 group\n"), "{shown}");
        assert!(!shown.contains("irreversible") && !shown.contains("about"), "{shown}");
    }

    /// The list of all 2,000 groups would hide the rest of the plan.
    #[test]
    fn long_lists_are_cut() {
        let groups: Vec<_> = (0..30)
            .map(|index| GroupPlan { irreversible: Some("EKS says no"), ..group(&format!("team/{index}"), 2, 1) })
            .collect();
        let shown = text("waves: [{name: canary}, {name: rest}]", &groups);
        assert!(shown.matches("irreversible").count() == 20 && shown.contains("and 10 more of these"), "{shown}");
    }
}
