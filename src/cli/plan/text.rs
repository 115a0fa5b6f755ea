//! The text output of `plan`.

use std::fmt::Write;

use super::estimate::{ASSUMED_DRAIN, BATCH};
use super::quota;
use super::report::{ChangeCause, ChangeKind, GroupPlan, PlanReport};
use super::rollout::GroupRollout;
use super::rollout::format_minutes;
use crate::plan::in_place::describe_changes;
use crate::plan::{Drift, NodeStep, PlannedStep, Step};
use crate::util::counted::counted;
use crate::util::duration;

/// Renders all groups and the totals. `file` is the ConfigMap that replaces the live one.
pub(crate) fn render(report: &PlanReport, file: Option<&str>) -> String {
    let mut out = String::new();
    if let Some(why) = &report.last_known_good {
        out += &format!("boundaries: {why}; the last known good revision is active\n\n");
    }
    if let Some(why) = &report.boundaries_unavailable {
        out += &format!(
            "boundaries: {why}; no last known good revision is stored, so the controller makes no AWS changes\n\n"
        );
    }
    for note in &report.notes {
        out += &format!("note: {note}\n\n");
    }
    let widest = report.groups.iter().map(|a| a.group.len()).max().unwrap_or(0);
    for group in &report.groups {
        write_group(&mut out, group, widest, file).expect("writing to a String does not fail");
    }
    if !report.groups.is_empty() {
        out.push('\n');
    }
    out += &totals(report);
    out += &quota::render(&report.quotas);
    if let (Some(rollout), Some(file)) = (&report.rollout, file) {
        out.push('\n');
        out += &super::rollout_text::render(rollout, file);
    }
    out
}

fn write_group(out: &mut String, group: &GroupPlan, widest: usize, file: Option<&str>) -> std::fmt::Result {
    let file_name = file.unwrap_or("the file");
    let cause = match group.cause {
        None => String::new(),
        Some(ChangeCause::File) => format!(" (caused by {file_name})"),
        Some(ChangeCause::Before) => format!(" (already in progress; not caused by {file_name})"),
        Some(ChangeCause::Both) => format!(" (caused in part by {file_name}; the rest is already in progress)"),
    };
    writeln!(out, "{:widest$}  {}{cause}", group.group, headline(group))?;
    for line in group.rollout.iter().filter(|_| file.is_none()).flat_map(GroupRollout::describe) {
        writeln!(out, "  {line}")?;
    }
    if let (Some(rollout), true, Some(_)) = (&group.rollout, group.has_changes, file) {
        writeln!(out, "  in wave {} ({} of {})", rollout.wave, rollout.position, rollout.waves)?;
    }
    let file = file.unwrap_or("the file");
    for (title, steps) in [("", &group.steps), ("later", &group.later_steps)] {
        let shown: Vec<_> = steps.iter().filter(|s| is_listed(s)).collect();
        if !title.is_empty() && !shown.is_empty() {
            writeln!(out, "  {title}:")?;
        }
        let width = shown.iter().map(|s| s.step.name().len()).max().unwrap_or(0);
        for planned in shown {
            writeln!(out, "  {:width$}  {}", planned.step.name(), describe_step(planned))?;
        }
    }
    for change in describe_changes(group.nodes_to_change.iter().map(|node| node.reasons.as_slice())) {
        writeln!(out, "  in place: {change}")?;
    }
    if !group.nodes_to_rotate.is_empty() {
        let at_once = group.max_unavailable.map(|n| format!(", at most {n} unavailable at once")).unwrap_or_default();
        writeln!(out, "  nodes to be replaced{at_once}:")?;
        let name = |r: &crate::provisioner::NodeReplacement| r.node.clone().unwrap_or_else(|| "(no Node)".into());
        let width = group.nodes_to_rotate.iter().map(|l| name(l).len()).max().unwrap_or(0);
        for node in &group.nodes_to_rotate {
            let anyway = group.replaced_anyway.contains(&node.instance) && group.cause != Some(ChangeCause::Before);
            let anyway = if anyway { format!("  (also without {file})") } else { String::new() };
            writeln!(out, "    {:width$}  {}  {}{anyway}", name(node), node.instance, join_reasons(&node.reasons))?;
        }
    }
    write_forecast(out, group)?;
    if let Some(lock) = &group.blocked_by {
        writeln!(out, "  blocked by: {lock}")?;
    }
    for value in &group.overridden {
        writeln!(out, "  not used: {value}")?;
    }
    Ok(())
}

/// What the estimate of the duration rests on.
fn estimate_basis(group: &GroupPlan) -> String {
    let Some(measured) = &group.measured_join else {
        let batch = duration::format(BATCH);
        return format!(" if each batch needs {batch} to drain, launch and join, which is an assumption");
    };
    let [join, batch, drain] = [measured.median, measured.batch(), ASSUMED_DRAIN].map(duration::format);
    let nodes = measured.nodes;
    format!(
        " at {batch} for each batch: {join} from launch to Ready, as measured on {nodes} of these nodes, {drain} for a drain, which is an assumption, and the time that a replacement must stay Ready"
    )
}

/// How many pods with a volume in one zone a group names.
const MAX_ZONE_BOUND: usize = 5;

fn write_forecast(out: &mut String, group: &GroupPlan) -> std::fmt::Result {
    if let Some(minutes) = group.estimated_minutes {
        let condition = if group.blocked_drains.is_empty() { "" } else { ", once the drains below can end," };
        writeln!(out, "  takes about {}{condition}{}", format_minutes(minutes), estimate_basis(group))?;
    }
    if let Some(join) = &group.join_timeout {
        let drain = group.drain_timeout.as_ref().map_or_else(
            || "a drain waits for PodDisruptionBudgets without limit, because drainTimeout is not set".to_owned(),
            |drain| format!("a drain may take up to {drain} (drainTimeout)"),
        );
        writeln!(out, "  limits: {drain}; the rotation halts if a node does not join within {join} (joinTimeout)")?;
    }
    // EKS drains the nodes of its own updates, and the limits of the group do not apply.
    let force = group.join_timeout.as_ref().map_or("", |_| ", or set drainForce with drainTimeout");
    for blocked in &group.blocked_drains {
        let owner = blocked.owner.as_deref().unwrap_or("no owner");
        let (node, pod, why) = (&blocked.node, &blocked.pod, blocked.describe());
        writeln!(out, "  blocks the drain of {node}: pod {pod} ({owner}): {why}{force}")?;
    }
    if !group.unmanaged_pods.is_empty() {
        let pods = listed(&group.unmanaged_pods, 5);
        writeln!(out, "  not created again after their eviction, because they have no owner: {pods}")?;
    }
    for bound in group.zone_bound_pods.iter().take(MAX_ZONE_BOUND) {
        let (pod, claim, zones) = (&bound.pod, &bound.claim, bound.zones.join(" or "));
        writeln!(
            out,
            "  needs a node in {zones}: pod {pod}, for its volume {claim}; the replacement may launch in another zone"
        )?;
    }
    if let Some(more) = group.zone_bound_pods.len().checked_sub(MAX_ZONE_BOUND).filter(|more| *more > 0) {
        writeln!(out, "  and {more} more pods with a volume in one zone")?;
    }
    if let Some(why) = &group.volumes_unknown {
        writeln!(out, "  volumes: unknown which are bound to a zone: {why}")?;
    }
    if let Some(why) = &group.drains_unknown {
        writeln!(out, "  drains: unknown whether PodDisruptionBudgets allow them: {why}")?;
    }
    if let Some(why) = &group.irreversible {
        writeln!(out, "  irreversible: {why}")?;
    }
    Ok(())
}

/// The first of some names, and how many there are beside them.
pub(super) fn listed(names: &[String], first: usize) -> String {
    let shown = names.iter().take(first).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(first) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn headline(group: &GroupPlan) -> String {
    let nodes = |n: usize| format!("{n} node{}", if n == 1 { "" } else { "s" });
    let mut text = match group.change {
        ChangeKind::Unchanged if group.message.is_empty() => "unchanged".to_owned(),
        ChangeKind::Unchanged => format!("unchanged: {}", group.message),
        ChangeKind::Create => "would be created".into(),
        ChangeKind::InPlace => "changes in place".into(),
        ChangeKind::Rotate => format!("rotates {}", nodes(group.nodes_to_rotate.len())),
        ChangeKind::Delete => "would be deleted".into(),
        ChangeKind::Blocked => {
            format!("blocked, {}: {}", group.reason.as_deref().unwrap_or("for an unknown reason"), group.message)
        }
        ChangeKind::Unknown => format!("unknown: {}", group.message),
    };
    if group.nodes_to_remove > 0 {
        text += &format!(", removes {}", nodes(group.nodes_to_remove));
    }
    text
}

/// Whether a step has a line of its own. Changes of nodes in place are listed by what changes.
fn is_listed(planned: &PlannedStep) -> bool {
    !planned.step.is_status_write() && !matches!(planned.step, Step::Node(NodeStep::ChangeNodeInPlace { .. }))
}

fn describe_step(planned: &PlannedStep) -> String {
    let (subject, reasons) = (planned.step.info().subject(), join_reasons(&planned.reasons));
    match (subject.is_empty(), reasons.is_empty()) {
        (false, false) => format!("{subject}  {reasons}"),
        _ => subject + &reasons,
    }
}

fn join_reasons(drifts: &[Drift]) -> String {
    drifts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn totals(report: &PlanReport) -> String {
    let t = &report.totals;
    let count = |n: usize, words: &str| (n > 0).then(|| format!("{n} {words}"));
    let nodes = |n: usize| if n == 1 { "1 node".to_owned() } else { format!("{n} nodes") };
    let parts: Vec<_> = [
        count(t.create, "created"),
        count(t.in_place, "changed in place"),
        count(t.rotate, &format!("rotated ({})", nodes(t.nodes_to_rotate))),
        count(t.delete, "deleted"),
        count(t.blocked, "blocked"),
        count(t.unknown, "unknown"),
        count(t.unchanged, "unchanged"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let groups = counted(t.groups, "group");
    let removed = Some(t.nodes_to_remove).filter(|n| *n > 0).map(|n| format!("; {} removed", nodes(n)));
    let removed = removed.unwrap_or_default();
    let list = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{groups}{list}{removed}. Nothing has been changed.\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boundaries::active::{ActiveBoundaries, BoundariesSource};
    use crate::k8s::{DrainBlocker, DrainBlockerKind};

    /// Who has lost the ConfigMap must not believe that an older revision still protects the groups.
    #[test]
    fn last_known_good_revision_is_named_only_where_one_is_active() {
        let text = |source| {
            let active = ActiveBoundaries { source, ..ActiveBoundaries::default() };
            render(&PlanReport::new(vec![], &active), None)
        };
        let why = || "the ConfigMap instance-manager is missing".to_owned();
        let kept = text(BoundariesSource::LastKnownGood(why()));
        assert!(kept.contains("is missing; the last known good revision is active"), "{kept}");
        let lost = text(BoundariesSource::Unavailable(why()));
        assert!(lost.contains("is missing; no last known good revision is stored"), "{lost}");
        assert!(!lost.contains("is active"), "{lost}");
    }

    /// EKS does not know `drainForce`: its update would fail again.
    #[test]
    fn remedy_of_a_blocked_drain_works_for_who_drains_the_node() {
        let blocked = DrainBlocker {
            node: "ip-1".into(),
            pod: "team/redis-0".into(),
            owner: None,
            kind: DrainBlockerKind::Never,
            budget: "redis".into(),
            limit: "minAvailable 2 of 2 pods".into(),
            remedy: "add replicas".into(),
        };
        let text = |join_timeout: Option<&str>| {
            let join_timeout = join_timeout.map(str::to_owned);
            let group = GroupPlan {
                blocked_drains: vec![blocked.clone()],
                join_timeout,
                ..GroupPlan::empty("team/web".into())
            };
            let mut out = String::new();
            write_forecast(&mut out, &group).expect("a text");
            out
        };
        assert!(text(Some("15m")).contains("add replicas, or set drainForce with drainTimeout"));
        let by_eks = text(None);
        assert!(
            by_eks.contains("redis-0") && by_eks.contains("add replicas") && !by_eks.contains("drainForce"),
            "{by_eks}"
        );
    }
}
