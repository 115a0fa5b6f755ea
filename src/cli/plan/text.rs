//! A plan for people.

use std::fmt::Write;

use super::answer::{Answer, Answers, Change};
use crate::plan::{Drift, Planned, Step};

/// Everything, group by group, then the totals.
pub fn show(answers: &Answers) -> String {
    let mut out = String::new();
    if let Some(why) = &answers.last_good {
        out += &format!("boundaries: {why}; the last good revision is in force\n\n");
    }
    let widest = answers.groups.iter().map(|a| a.group.len()).max().unwrap_or(0);
    for answer in &answers.groups {
        group(&mut out, answer, widest).expect("a String takes everything");
    }
    if !answers.groups.is_empty() {
        out.push('\n');
    }
    out + &totals(answers)
}

fn group(out: &mut String, answer: &Answer, widest: usize) -> std::fmt::Result {
    writeln!(out, "{:widest$}  {}", answer.group, headline(answer))?;
    for (title, steps) in [("", &answer.steps), ("then", &answer.then)] {
        let told: Vec<_> = steps.iter().filter(|s| !matches!(s.step, Step::Record { .. })).collect();
        if !title.is_empty() && !told.is_empty() {
            writeln!(out, "  {title}:")?;
        }
        let width = told.iter().map(|s| s.step.name().len()).max().unwrap_or(0);
        for planned in told {
            writeln!(out, "  {:width$}  {}", planned.step.name(), words(planned))?;
        }
    }
    if !answer.rotate.is_empty() {
        let at_once = answer.at_once.map(|n| format!(", at most {n} unavailable at once")).unwrap_or_default();
        writeln!(out, "  nodes to be replaced{at_once}:")?;
        let name = |l: &crate::provisioner::Leaving| l.node.clone().unwrap_or_else(|| "(never joined)".into());
        let width = answer.rotate.iter().map(|l| name(l).len()).max().unwrap_or(0);
        for leaving in &answer.rotate {
            writeln!(out, "    {:width$}  {}  {}", name(leaving), leaving.instance, because(&leaving.because))?;
        }
    }
    if let Some(held) = &answer.held {
        writeln!(out, "  held: {held}")?;
    }
    for refused in &answer.refused {
        writeln!(out, "  not used: {refused}")?;
    }
    Ok(())
}

fn headline(answer: &Answer) -> String {
    let nodes = |n: usize| format!("{n} node{}", if n == 1 { "" } else { "s" });
    let mut text = match answer.change {
        Change::Unchanged if answer.message.is_empty() => "unchanged".to_owned(),
        Change::Unchanged => format!("unchanged: {}", answer.message),
        Change::Create => "is created".into(),
        Change::InPlace => "changes in place".into(),
        Change::Rotate => format!("rotates {}", nodes(answer.rotate.len())),
        Change::Delete => "is deleted".into(),
        Change::Blocked => {
            format!("blocked, {}: {}", answer.reason.as_deref().unwrap_or("for an unknown reason"), answer.message)
        }
        Change::Unknown => format!("not known: {}", answer.message),
    };
    if answer.remove > 0 {
        text += &format!(", {} for good", nodes(answer.remove));
    }
    text
}

fn words(planned: &Planned) -> String {
    let (subject, because) = (subject(&planned.step), because(&planned.because));
    match (subject.is_empty(), because.is_empty()) {
        (false, false) => format!("{subject}  {because}"),
        _ => subject + &because,
    }
}

fn because(drifts: &[Drift]) -> String {
    drifts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What a step acts on, in a word.
fn subject(step: &Step) -> String {
    match step {
        Step::AddFinalizer | Step::RemoveFinalizer => "on the InstanceGroup".into(),
        Step::Record { .. } => "status".into(),
        Step::CreateRole(role) => role.name.clone(),
        Step::AttachPolicy { role, .. }
        | Step::DetachPolicy { role, .. }
        | Step::TagRole { role, .. }
        | Step::DeleteRole { role } => role.clone(),
        Step::CreateProfile { profile, .. }
        | Step::AddRoleToProfile { profile, .. }
        | Step::RemoveRoleFromProfile { profile, .. }
        | Step::TagProfile { profile, .. }
        | Step::DeleteProfile { profile } => profile.clone(),
        Step::CreateTemplate(template) => template.name.clone(),
        Step::PutTemplateVersion { template, .. }
        | Step::DeleteTemplateVersions { template, .. }
        | Step::DeleteTemplate { template }
        | Step::TagTemplate { template, .. } => template.clone(),
        Step::DeleteConfiguration { configuration } => configuration.clone(),
        Step::CreateGroup { group, .. } => format!("{} with {} to {} nodes", group.name, group.min, group.max),
        Step::CreateNodegroup(new) => {
            format!("{} with {} to {} nodes", new.name.nodegroup, new.sizes.min, new.sizes.max)
        }
        Step::UpdateNodegroup { nodegroup, .. }
        | Step::UpdateNodegroupVersion { nodegroup, .. }
        | Step::TagNodegroup { nodegroup, .. }
        | Step::UntagNodegroup { nodegroup, .. }
        | Step::DeleteNodegroup { nodegroup } => nodegroup.nodegroup.clone(),
        Step::UpdateGroup { group, .. }
        | Step::PutTags { group, .. }
        | Step::DeleteTags { group, .. }
        | Step::DeleteWarmPool { group }
        | Step::DeleteGroup { group } => group.clone(),
        Step::PutWarmPool { group, sizes, .. } => {
            format!("{group} (minSize {}, maxSize {})", sizes.min, sizes.max.unwrap_or(-1))
        }
        Step::ReplaceWarmed { instance, .. } => instance.clone(),
        Step::SuspendProcesses { group, processes } | Step::ResumeProcesses { group, processes } => {
            format!("{group} ({})", processes.join(", "))
        }
        Step::EnableMetrics { group, metrics } | Step::DisableMetrics { group, metrics } => {
            format!("{group} ({} metrics)", metrics.len())
        }
        Step::PutHook { group, hook } => format!("{group} ({})", hook.name),
        Step::DeleteHook { group, hook } => format!("{group} ({hook})"),
        Step::CreateFargateProfile(profile) => profile.name.clone(),
        Step::DeleteFargateProfile { profile, .. }
        | Step::TagFargateProfile { profile, .. }
        | Step::UntagFargateProfile { profile, .. } => profile.clone(),
        Step::PutAuthEntry(entry) | Step::RemoveAuthEntry(entry) => entry.role_arn.clone(),
        Step::PutAccessEntry(entry) => entry.principal.clone(),
        Step::RemoveAccessEntry { principal, .. } => principal.clone(),
        Step::MarkNode { node, instance, .. }
        | Step::SurgeNode { node, instance, .. }
        | Step::EnterStandby { node, instance, .. } => format!("{node} ({instance})"),
        Step::UnsurgeNode { node } => node.clone(),
        Step::UnmarkNode { node, why } => format!("{node}: {why}"),
        Step::Evict { node, pod, .. } | Step::ForceDelete { node, pod } => {
            format!("{}/{} on {node}", pod.namespace, pod.name)
        }
        Step::SubmitStrategy { kind, namespace, name, .. } | Step::DeleteStrategy { kind, namespace, name, .. } => {
            format!("{kind} {namespace}/{name}")
        }
        Step::Terminate { instance, node, .. } => match node {
            Some(node) => format!("{instance} ({node})"),
            None => instance.clone(),
        },
    }
}

fn totals(answers: &Answers) -> String {
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
