//! Records owned attributes in status before they are set in AWS.

use super::input::PlanInput;
use super::observed::{ObservedNodegroup, Partition};
use super::update;
use crate::api::ManagedAttributes;
use crate::aws::nodegroup::NodegroupName;
use crate::plan::{ObjectStep, PlanBuilder, Step};

/// Adds the attributes that this plan sets to the record and drops those that no longer exist in AWS.
pub fn record(input: &PlanInput, partition: &Partition, new: Option<&NodegroupName>, draft: &mut PlanBuilder) {
    let old = input.status.managed.clone().unwrap_or_default();
    let w = &input.resolved.desired;
    let here = |name: &str| input.observed.nodegroups.iter().any(|group| group.name().to_string() == name);
    let elsewhere = |name: &str| !name.starts_with(&format!("{}/", w.cluster));
    let mut nodegroups: Vec<_> = old.nodegroups.iter().filter(|n| here(n) || elsewhere(n)).cloned().collect();
    let more = input.observed.nodegroups.iter().map(ObservedNodegroup::name).chain(new).map(ToString::to_string);
    for name in more {
        if !nodegroups.contains(&name) {
            nodegroups.push(name);
        }
    }
    let of_cluster = format!(":nodegroup/{}/", w.cluster);
    let arns = input.observed.nodegroups.iter().map(|group| group.nodegroup.arn.clone());
    let nodegroup_arns =
        old.nodegroup_arns.iter().filter(|arn| !arn.contains(&of_cluster)).cloned().chain(arns).collect();
    let serving = partition.current.or(partition.outgoing.last().copied()).map(|group| &group.nodegroup);
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
        taints: kept(w.taints.iter().map(update::taint_key).collect(), &old.taints, &|k| {
            serving.is_some_and(|n| n.taints.iter().any(|t| update::taint_key(t) == *k))
        }),
        nodegroups,
        nodegroup_arns,
        ..old.clone()
    };
    let adopted = partition.current.filter(|_| partition.is_adopting);
    if managed == old && adopted.is_none() {
        return;
    }
    let mut next = input.status.clone();
    next.managed = Some(managed);
    next.provisioner = Some("eks-managed".into());
    // Both fields are written together: a recorded name without its hash would make the group outdated.
    if let Some(group) = adopted {
        let template = next.template.get_or_insert_default();
        template.adopted_hash = Some(input.resolved.hash.clone());
        template.adopted_version = Some(group.name().nodegroup.clone());
    }
    if let Some(status) = next.patch_from(input.status) {
        draft.steps.retain(|planned| !matches!(planned.step, Step::Object(ObjectStep::UpdateStatus { .. })));
        draft.push(ObjectStep::UpdateStatus { status });
    }
}
