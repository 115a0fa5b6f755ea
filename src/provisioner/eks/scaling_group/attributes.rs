//! Attributes of the scaling group that are changed in place: tags, processes, metrics, hooks and the warm pool.

use std::collections::BTreeSet;

use crate::api::ManagedAttributes;
use crate::api::names::tag;
use crate::aws::{ScalingGroup, Tag, tag_map};
use crate::plan::{Drift, EksStep, PersistentFailure, PlanBuilder, PlannedStep};
use crate::provisioner::eks::delete::MAX_TAGS;
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::scaling_group::{hooks, subnets};
use crate::provisioner::eks::warm_pool;

/// Sets attributes that differ, and removes those that only the controller had set.
pub(crate) fn plan_attributes(input: &PlanInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let managed = input.status.managed.clone().unwrap_or_default();
    tags(input, group, &managed, builder);
    let desired = &input.resolved.desired;
    let name = || group.name.clone();
    let processes = subnets::desired_processes(input, group);
    let by_deletion = suspended_by_deletion(group);
    let suspension_tag = subnets::suspension_tag();
    let has_suspension_tag = subnets::has_suspension_tag(group);
    let of_tags = by_deletion.iter().flatten().cloned().chain(has_suspension_tag.then(|| suspension_tag.value.clone()));
    let recorded: Vec<_> = managed.processes.iter().cloned().chain(of_tags).collect();
    let (add, remove) = additions_and_removals(&processes, &group.suspended_processes, &recorded);
    // Put first, because the status may be lost.
    if !has_suspension_tag && group.tags.len() < MAX_TAGS && subnets::is_own_suspension(input, group) {
        let step = EksStep::PutTags { group: name(), tags: vec![suspension_tag.clone()] };
        builder.push_with_reasons(step, vec![subnets::drift(input, group)]);
    }
    if !add.is_empty() {
        let of_spec: Vec<_> = add.iter().filter(|p| desired.suspended_processes.contains(*p)).cloned().collect();
        let mut reasons = Vec::new();
        if !of_spec.is_empty() {
            reasons.push(Drift::new("suspendProcesses", "", of_spec.join(", ")));
        }
        if of_spec.len() < add.len() {
            reasons.push(subnets::drift(input, group));
        }
        builder.push_with_reasons(EksStep::SuspendProcesses { group: name(), processes: add }, reasons);
    }
    if !remove.is_empty() {
        let reasons = vec![Drift::new("suspendProcesses", remove.join(", "), "")];
        let step = PlannedStep::new(EksStep::ResumeProcesses { group: name(), processes: remove }, reasons);
        match input.persistent_failure {
            // A write that is refused each time must not keep the group from launching instances.
            PersistentFailure::Pass => builder.prepend([step]),
            PersistentFailure::None | PersistentFailure::Rotation { .. } => builder.steps.push(step),
        }
    }
    if by_deletion.is_some() {
        // Removed last: it is the only record of what the deletion suspended.
        builder.push(EksStep::DeleteTags { group: name(), keys: vec![tag::SUSPENDED_BY_DELETION.into()] });
    }
    if has_suspension_tag && !subnets::suspends_rebalancing(input, group) {
        builder.push(EksStep::DeleteTags { group: name(), keys: vec![suspension_tag.key] });
    }
    let (add, remove) = additions_and_removals(&desired.metrics, &group.enabled_metrics, &managed.metrics);
    if !add.is_empty() {
        builder.push_with_reasons(
            EksStep::EnableMetrics { group: name(), metrics: add.clone() },
            vec![Drift::new("metricsCollection", "", add.join(", "))],
        );
    }
    if !remove.is_empty() {
        builder.push_with_reasons(
            EksStep::DisableMetrics { group: name(), metrics: remove.clone() },
            vec![Drift::new("metricsCollection", remove.join(", "), "")],
        );
    }
    hooks::plan_hooks(input, group, &managed, builder);
    warm_pool::plan_pool(input, group, &managed, builder);
}

/// The processes that the deletion of an earlier InstanceGroup suspended, from the tag of the scaling group.
fn suspended_by_deletion(group: &ScalingGroup) -> Option<Vec<String>> {
    let tags = tag_map(&group.tags);
    let processes = tags.get(tag::SUSPENDED_BY_DELETION)?;
    Some(processes.split_whitespace().map(str::to_owned).collect())
}

/// The names to add, and the names that the controller set earlier and the spec no longer contains.
fn additions_and_removals(
    desired: &BTreeSet<String>,
    present: &[String],
    recorded: &[String],
) -> (Vec<String>, Vec<String>) {
    let add = desired.iter().filter(|name| !present.contains(name)).cloned().collect();
    let remove = present.iter().filter(|p| recorded.contains(p) && !desired.contains(*p)).cloned().collect();
    (add, remove)
}

fn tags(input: &PlanInput, group: &ScalingGroup, managed: &ManagedAttributes, builder: &mut PlanBuilder) {
    let present = tag_map(&group.tags);
    let desired = tag_map(&input.resolved.tags);
    let difference = |t: &Tag| match present.get(t.key.as_str()) {
        Some(value) if *value == t.value => (group.unpropagated_tags.contains(&t.key))
            .then(|| Drift::new(format!("tags[{}].propagateAtLaunch", t.key), false, true)),
        value => Some(Drift::new(format!("tags[{}]", t.key), value.unwrap_or(&""), &t.value)),
    };
    // AWS allows 50 tags, so room for new ones is made first.
    let delete: Vec<_> = present
        .keys()
        .filter(|k| !desired.contains_key(*k) && managed.tags.iter().any(|m| m == *k))
        .map(|k| (*k).to_owned())
        .collect();
    if !delete.is_empty() {
        let reasons = delete.iter().map(|k| Drift::new(format!("tags[{k}]"), present[k.as_str()], "")).collect();
        builder.push_with_reasons(EksStep::DeleteTags { group: group.name.clone(), keys: delete }, reasons);
    }
    let differing = input.resolved.tags.iter().filter_map(|t| Some((t.clone(), difference(t)?)));
    let (put, reasons): (Vec<_>, _) = differing.unzip();
    if !put.is_empty() {
        builder.push_with_reasons(EksStep::PutTags { group: group.name.clone(), tags: put }, reasons);
    }
}
