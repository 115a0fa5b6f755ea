//! From what is wanted and what there is to what is to be done. Pure.

use super::step::EksManagedStep;
use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::input::Input;
use super::state::{Group, Split, split};
use super::{change, health, replace};
use crate::api::ManagedAttributes;
use crate::api::names::condition;
use crate::aws::nodegroup::{NewNodegroup, NodegroupName, NodegroupSizes, NodegroupStatus};
use crate::plan::{Draft, Drift, Facts, Note, ObjectStep, Outcome, Phase, Plan, Reason, Step, waiting};
use crate::problem::sentence;

/// An update that failed is begun again so long after it began: EKS itself tries a node for a quarter of an hour.
const AGAIN: SignedDuration = SignedDuration::from_hours(1);

impl Input<'_> {
    /// When an update that failed, and was to reach the same, is begun again.
    pub fn again(&self, of: &str) -> Option<Timestamp> {
        let update = self.state.update.as_ref().filter(|u| health::failed(u))?;
        let at = update.created? + AGAIN;
        (self.status.update_of.as_deref() == Some(of) && at > self.now).then_some(at)
    }
}

/// Plans one pass for a group that is to live.
pub fn plan(input: &Input) -> Plan {
    let halves = split(input.resolved, input.state, input.status);
    let mut draft = Draft { facts: facts(input, &halves), ..Draft::default() };
    let mut wake = None;
    if !input.resolved.wanted.id.finalizer {
        draft.step(ObjectStep::AddFinalizer);
    }
    match (halves.current, halves.others.as_slice()) {
        (None, []) => create(input, None, &mut draft),
        (None, others) => {
            record(input, &halves, None, &mut draft);
            replace::begin(input, others, &mut draft);
        }
        (Some(current), _) => {
            record(input, &halves, None, &mut draft);
            if halves.adopting {
                adopted(input, current, &mut draft);
            }
            wake = living(input, current, &halves, &mut draft);
        }
    }
    draft.finish(&input.resolved.wanted.id, wake)
}

fn living(input: &Input, current: &Group, halves: &Split, draft: &mut Draft) -> Option<Timestamp> {
    let others = halves.others.as_slice();
    let tags = change::tags(input, current, draft);
    let alone = others.is_empty();
    match current.nodegroup.status {
        NodegroupStatus::Creating => {
            let phase = if alone { Phase::Creating } else { Phase::Rotating };
            let message =
                format!("EKS makes the node group {}; {}", current.name().nodegroup, health::readiness(current));
            draft.decide(waiting(phase, message));
        }
        NodegroupStatus::CreateFailed if alone => draft.decide(health::blocked(input, current)),
        NodegroupStatus::CreateFailed => replace::halted(input, current, "could not be made", draft),
        NodegroupStatus::DeleteFailed => draft.decide(health::blocked(input, current)),
        NodegroupStatus::Deleting => {
            let message = format!(
                "the node group {} is being deleted; it is made again when it is gone",
                current.name().nodegroup
            );
            draft.decide(waiting(Phase::Modifying, message));
        }
        NodegroupStatus::Updating => draft.decide(health::updating(input, current)),
        NodegroupStatus::Active | NodegroupStatus::Degraded | NodegroupStatus::Other => {
            if health::under_way(input) {
                draft.decide(health::updating(input, current));
            }
        }
    }
    if draft.outcome.is_none() {
        change::in_place(input, current, draft);
    }
    if halves.adopting && !alone {
        draft.decide(waiting(Phase::Modifying, format!("the node group {} was taken over", current.name().nodegroup)));
    }
    // The takeover itself replaces no node: what it records holds from the next pass on.
    if draft.outcome.is_none() && !halves.adopting {
        replace::go_on(input, current, others, draft);
    }
    if draft.outcome.is_none() && !halves.adopting {
        change::version(input, current, draft);
    }
    if draft.outcome.is_none() {
        draft.outcome = change::held(input, current);
    }
    if draft.outcome.is_none() {
        // Nothing is wanted any more of what an update was to reach.
        if input.status.update_of.is_some() {
            draft.facts.status.insert("updateOf".into(), Value::Null);
        }
        health::standing(input, current, draft);
    }
    if let Some(outcome) = tags {
        draft.decide(outcome);
    }
    let failed = input.status.update_of.as_deref().and_then(|of| input.again(of));
    failed.filter(|_| matches!(draft.outcome, Some(Outcome::Blocked { .. })))
}

/// Makes the node group that has what is wanted, beside another or as the first.
pub fn create(input: &Input, beside: Option<(i32, Vec<Drift>)>, draft: &mut Draft) {
    let (r, w) = (input.resolved, &input.resolved.wanted);
    let id = &r.name.nodegroup;
    if let Some(taken) = &input.state.taken {
        let message = format!(
            "the node group {} is there and does not carry this group's three tags; rename the InstanceGroup, or remove the node group",
            taken.nodegroup
        );
        return draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false });
    }
    if let Some(older) = input.state.older.as_ref().filter(|_| beside.is_none()) {
        return draft.decide(Outcome::Blocked {
            reason: Reason::NotOurs,
            message: not_adopted(r, older),
            deleting: false,
        });
    }
    if let Some(first) = input.state.problems.first() {
        let message = sentence(&input.state.problems);
        return draft.decide(Outcome::Blocked { reason: first.reason, message, deleting: false });
    }
    let leaving = input.state.groups.iter().find(|group| *group.name() == r.name);
    if leaving.is_some() {
        let message = format!("the node group {id} is being deleted; it is made again when it is gone");
        return draft.decide(waiting(Phase::Modifying, message));
    }
    let none = Split { current: None, adopting: false, others: input.state.groups.iter().collect() };
    record(input, &none, Some(&r.name), draft);
    let phase = if beside.is_some() { Phase::Rotating } else { Phase::Creating };
    let (desired, because) = beside.unwrap_or((w.min, Vec::new()));
    let mut tags = w.tags.clone();
    tags.extend(r.ownership.iter().map(|t| (t.key.clone(), t.value.clone())));
    let sizes = NodegroupSizes { min: w.min, max: w.max, desired: Some(desired.clamp(w.min, w.max)) };
    let nodegroup = NewNodegroup {
        name: r.name.clone(),
        sizes,
        version: w.version.clone(),
        release_version: w.release_version.clone(),
        shape: w.shape.clone(),
        labels: w.labels.clone(),
        taints: w.taints.clone(),
        max_unavailable: w.max_unavailable,
        repair: w.repair,
        tags,
    };
    draft.because(EksManagedStep::CreateNodegroup(nodegroup), because);
    draft.decide(waiting(phase, format!("EKS makes the node group {id}")));
}

fn not_adopted(resolved: &Resolved, older: &NodegroupName) -> String {
    let tags: Vec<_> = resolved.ownership.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
    format!(
        "the node group {} was there before this InstanceGroup, and nothing shows that it is this group's; tag it by hand with {} and it is taken over, or rename the InstanceGroup",
        older.nodegroup,
        tags.join(", ")
    )
}

fn facts(input: &Input, halves: &Split) -> Facts {
    let w = &input.resolved.wanted;
    let lifecycle = if w.shape.capacity_type.as_deref() == Some("SPOT") { "spot" } else { "normal" };
    let mut status = BTreeMap::from([
        ("provisioner".to_owned(), json!("eks-managed")),
        ("strategy".into(), json!("managed")),
        ("lifecycle".into(), json!(lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(w.shape.node_role)),
    ]);
    let serving = halves.current.or(halves.others.last().copied());
    if let Some(group) = serving {
        let names = group.scaling_groups();
        if !names.is_empty() {
            status.insert("activeScalingGroupName".into(), json!(names));
        }
        status.insert("currentMin".into(), json!(group.nodegroup.sizes.min));
        status.insert("currentMax".into(), json!(group.nodegroup.sizes.max));
    }
    if let Some(group) = serving {
        status.insert("nodes".into(), health::counts(input, group, &halves.others));
    }
    Facts { status, nodes_ready: None }
}

/// What we set is recorded before it is set; what is not there any more leaves the record.
fn record(input: &Input, halves: &Split, new: Option<&NodegroupName>, draft: &mut Draft) {
    let old = input.status.managed.clone().unwrap_or_default();
    let w = &input.resolved.wanted;
    let here = |name: &str| input.state.groups.iter().any(|group| group.name().to_string() == name);
    let elsewhere = |name: &str| !name.starts_with(&format!("{}/", w.cluster));
    let mut nodegroups: Vec<_> = old.nodegroups.iter().filter(|n| here(n) || elsewhere(n)).cloned().collect();
    let more = input.state.groups.iter().map(Group::name).chain(new).map(ToString::to_string);
    for name in more {
        if !nodegroups.contains(&name) {
            nodegroups.push(name);
        }
    }
    let of_cluster = format!(":nodegroup/{}/", w.cluster);
    let arns = input.state.groups.iter().map(|group| group.nodegroup.arn.clone());
    let nodegroup_arns =
        old.nodegroup_arns.iter().filter(|arn| !arn.contains(&of_cluster)).cloned().chain(arns).collect();
    let serving = halves.current.or(halves.others.last().copied()).map(|group| &group.nodegroup);
    let kept = |wanted: Vec<String>, recorded: &[String], there: &dyn Fn(&String) -> bool| {
        let mut all = wanted;
        all.extend(recorded.iter().filter(|key| there(key)).cloned());
        all.sort();
        all.dedup();
        all
    };
    let managed = ManagedAttributes {
        tags: kept(w.tags.keys().cloned().collect(), &old.tags, &|k| serving.is_some_and(|n| n.tags.contains_key(k))),
        labels: kept(w.labels.keys().cloned().collect(), &old.labels, &|k| {
            serving.is_some_and(|n| n.labels.contains_key(k))
        }),
        taints: kept(w.taints.iter().map(change::taint_key).collect(), &old.taints, &|k| {
            serving.is_some_and(|n| n.taints.iter().any(|t| change::taint_key(t) == *k))
        }),
        nodegroups,
        nodegroup_arns,
        ..old.clone()
    };
    let adopted = halves.current.filter(|_| halves.adopting);
    if managed == old && adopted.is_none() {
        return;
    }
    let mut next = input.status.clone();
    next.managed = Some(managed);
    next.provisioner = Some("eks-managed".into());
    // Together, for a name on record without what was wanted then is a group to be replaced.
    if let Some(group) = adopted {
        let template = next.template.get_or_insert_default();
        template.adopted_hash = Some(input.resolved.hash.clone());
        template.adopted_version = Some(group.name().nodegroup.clone());
    }
    if let Some(status) = next.patch_from(input.status) {
        draft.steps.retain(|planned| !matches!(planned.step, Step::Object(ObjectStep::Record { .. })));
        draft.step(ObjectStep::Record { status });
    }
}

/// Tells of a takeover: what was found counts as up to date until something else is wanted.
fn adopted(input: &Input, current: &Group, draft: &mut Draft) {
    let found = &current.nodegroup;
    let mut differs = super::state::differences(input.resolved, found);
    differs.extend(super::state::version_differences(input.resolved, found));
    let listed: Vec<_> = differs.iter().map(ToString::to_string).collect();
    let message = match listed.as_slice() {
        [] => format!("the node group {} was taken over as it is", found.name.nodegroup),
        all => format!(
            "the node group {} was taken over; what differs from the spec arrives with the next change: {}",
            found.name.nodegroup,
            all.join("; ")
        ),
    };
    draft.notes.push(Note { condition: condition::ADOPTED, status: true, reason: "TakenOver".into(), message });
}
