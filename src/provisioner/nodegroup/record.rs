//! Records in the status which attributes the controller sets, before it sets them.

use super::input::PlanInput;
use super::observed::{ObservedNodegroup, Partition};
use super::update;
use crate::api::ManagedAttributes;
use crate::aws::nodegroup::NodegroupName;
use crate::plan::PlanBuilder;

/// Records the attributes that this plan sets, the node group that it creates (`created`), and an adoption.
pub(crate) fn record(
    input: &PlanInput,
    partition: &Partition,
    created: Option<&NodegroupName>,
    builder: &mut PlanBuilder,
) {
    let old = input.status.managed.clone().unwrap_or_default();
    let managed = managed_attributes(input, partition, created, &old);
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
        builder.record(status);
    }
}

/// The attributes that the controller sets: the desired ones, and the recorded ones that still exist.
fn managed_attributes(
    input: &PlanInput,
    partition: &Partition,
    created: Option<&NodegroupName>,
    old: &ManagedAttributes,
) -> ManagedAttributes {
    let desired = &input.resolved.desired;
    let observed = &input.observed.nodegroups;
    let exists = |name: &str| observed.iter().any(|group| group.name().to_string() == name);
    let is_in_other_cluster = |name: &str| !name.starts_with(&format!("{}/", desired.cluster));
    let mut nodegroups: Vec<_> =
        old.nodegroups.iter().filter(|name| exists(name) || is_in_other_cluster(name)).cloned().collect();
    for name in observed.iter().map(ObservedNodegroup::name).chain(created).map(ToString::to_string) {
        if !nodegroups.contains(&name) {
            nodegroups.push(name);
        }
    }
    let arn_of_cluster = format!(":nodegroup/{}/", desired.cluster);
    let arns_of_other_clusters = old.nodegroup_arns.iter().filter(|arn| !arn.contains(&arn_of_cluster)).cloned();
    let observed_arns = observed.iter().map(|group| group.nodegroup.arn.clone());
    let serving = partition.current.or(partition.outgoing.last().copied()).map(|group| &group.nodegroup);
    // An answer of AWS may be older than the node group. So what was not seen stays recorded.
    let has_tag = |key: &String| serving.is_none_or(|n| n.tags.contains_key(key));
    let has_label = |key: &String| serving.is_none_or(|n| n.labels.contains_key(key));
    let has_taint = |key: &String| serving.is_none_or(|n| n.taints.iter().any(|t| update::taint_key(t) == *key));
    ManagedAttributes {
        tags: desired_and_recorded(desired.tags.keys().cloned(), &old.tags, has_tag),
        labels: desired_and_recorded(desired.labels.keys().cloned(), &old.labels, has_label),
        taints: desired_and_recorded(desired.taints.iter().map(update::taint_key), &old.taints, has_taint),
        nodegroups,
        nodegroup_arns: arns_of_other_clusters.chain(observed_arns).collect(),
        ..old.clone()
    }
}

/// The desired keys, and the recorded keys that still exist, sorted.
fn desired_and_recorded(
    desired: impl Iterator<Item = String>,
    recorded: &[String],
    exists: impl Fn(&String) -> bool,
) -> Vec<String> {
    let mut keys: Vec<_> = desired.chain(recorded.iter().filter(|key| exists(key)).cloned()).collect();
    keys.sort();
    keys.dedup();
    keys
}
