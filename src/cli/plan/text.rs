//! A plan for people.

use std::fmt::Write;

use super::report::{ChangeKind, GroupPlan, PlanReport};
use crate::plan::{Drift, PlannedStep};

/// Everything, group by group, then the totals.
pub fn render(answers: &PlanReport) -> String {
    let mut out = String::new();
    if let Some(why) = &answers.last_known_good {
        out += &format!("boundaries: {why}; the last good revision is in force\n\n");
    }
    let widest = answers.groups.iter().map(|a| a.group.len()).max().unwrap_or(0);
    for answer in &answers.groups {
        write_group(&mut out, answer, widest).expect("a String takes everything");
    }
    if !answers.groups.is_empty() {
        out.push('\n');
    }
    out + &totals(answers)
}

fn write_group(out: &mut String, answer: &GroupPlan, widest: usize) -> std::fmt::Result {
    writeln!(out, "{:widest$}  {}", answer.group, headline(answer))?;
    for (title, steps) in [("", &answer.steps), ("then", &answer.later_steps)] {
        let told: Vec<_> = steps.iter().filter(|s| !s.step.is_status_write()).collect();
        if !title.is_empty() && !told.is_empty() {
            writeln!(out, "  {title}:")?;
        }
        let width = told.iter().map(|s| s.step.name().len()).max().unwrap_or(0);
        for planned in told {
            writeln!(out, "  {:width$}  {}", planned.step.name(), describe_step(planned))?;
        }
    }
    if !answer.nodes_to_rotate.is_empty() {
        let at_once = answer.max_unavailable.map(|n| format!(", at most {n} unavailable at once")).unwrap_or_default();
        writeln!(out, "  nodes to be replaced{at_once}:")?;
        let name = |l: &crate::provisioner::NodeReplacement| l.node.clone().unwrap_or_else(|| "(never joined)".into());
        let width = answer.nodes_to_rotate.iter().map(|l| name(l).len()).max().unwrap_or(0);
        for leaving in &answer.nodes_to_rotate {
            writeln!(out, "    {:width$}  {}  {}", name(leaving), leaving.instance, join_reasons(&leaving.reasons))?;
        }
    }
    if let Some(held) = &answer.blocked_by {
        writeln!(out, "  held: {held}")?;
    }
    for refused in &answer.overridden {
        writeln!(out, "  not used: {refused}")?;
    }
    Ok(())
}

fn headline(answer: &GroupPlan) -> String {
    let nodes = |n: usize| format!("{n} node{}", if n == 1 { "" } else { "s" });
    let mut text = match answer.change {
        ChangeKind::Unchanged if answer.message.is_empty() => "unchanged".to_owned(),
        ChangeKind::Unchanged => format!("unchanged: {}", answer.message),
        ChangeKind::Create => "is created".into(),
        ChangeKind::InPlace => "changes in place".into(),
        ChangeKind::Rotate => format!("rotates {}", nodes(answer.nodes_to_rotate.len())),
        ChangeKind::Delete => "is deleted".into(),
        ChangeKind::Blocked => {
            format!("blocked, {}: {}", answer.reason.as_deref().unwrap_or("for an unknown reason"), answer.message)
        }
        ChangeKind::Unknown => format!("not known: {}", answer.message),
    };
    if answer.nodes_to_remove > 0 {
        text += &format!(", {} for good", nodes(answer.nodes_to_remove));
    }
    text
}

fn describe_step(planned: &PlannedStep) -> String {
    let (subject, because) = (planned.step.info().subject(), join_reasons(&planned.reasons));
    match (subject.is_empty(), because.is_empty()) {
        (false, false) => format!("{subject}  {because}"),
        _ => subject + &because,
    }
}

fn join_reasons(drifts: &[Drift]) -> String {
    drifts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn totals(answers: &PlanReport) -> String {
    let t = &answers.totals;
    let count = |n: usize, words: &str| (n > 0).then(|| format!("{n} {words}"));
    let nodes = |n: usize| if n == 1 { "1 node".to_owned() } else { format!("{n} nodes") };
    let parts: Vec<_> = [
        count(t.create, "created"),
        count(t.in_place, "changed in place"),
        count(t.rotate, &format!("rotated ({})", nodes(t.nodes_to_rotate))),
        count(t.delete, "deleted"),
        count(t.blocked, "blocked"),
        count(t.unknown, "not known"),
        count(t.unchanged, "unchanged"),
    ]
    .into_iter()
    .flatten()
    .collect();
    let groups = if t.groups == 1 { "1 group".to_owned() } else { format!("{} groups", t.groups) };
    let gone = count(t.nodes_to_remove, "nodes go for good").map(|g| format!("; {g}")).unwrap_or_default();
    let list = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{groups}{list}{gone}. Nothing has been changed.\n")
}
