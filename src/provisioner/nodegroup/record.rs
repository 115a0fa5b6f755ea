//! Records in the status which attributes the controller sets, before it sets them.

use serde_json::json;

use super::attribute_names::{self, NameKind, was_seen};
use super::health;
use super::input::PlanInput;
use super::names::nodegroup_in_arn;
use super::observed::{ObservedNodegroup, Partition};
use super::update;
use crate::api::{ManagedAttributes, ProvisionerKind};
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus};
use crate::plan::PlanBuilder;
use crate::provisioner::recreated::was_ready;

/// Records the attributes that this plan sets, the node group that it creates (`created`), and an adoption.
pub(crate) fn record(
    input: &PlanInput,
    partition: &Partition,
    created: Option<&NodegroupName>,
    builder: &mut PlanBuilder,
) {
    let old = input.status.managed.clone().unwrap_or_default();
    let managed = managed_attributes(input, created, &old);
    let adopted = partition.current.filter(|_| partition.is_adopting);
    if managed == old && adopted.is_none() {
        return;
    }
    let mut fields =
        vec![("managed".to_owned(), json!(managed)), ("provisioner".to_owned(), json!(ProvisionerKind::EksManaged))];
    // Both fields are written together: a recorded name without its hash would make the group outdated.
    if let Some(group) = adopted {
        let mut template = input.status.template.clone().unwrap_or_default();
        template.adopted_hash = Some(input.resolved.hash.clone());
        template.adopted_version = Some(group.name().nodegroup.clone());
        fields.push(("template".to_owned(), json!(template)));
    }
    builder.record_changes(input.status, fields);
}

/// The attributes that the controller sets: the desired ones, and the recorded ones that still exist.
fn managed_attributes(
    input: &PlanInput,
    created: Option<&NodegroupName>,
    old: &ManagedAttributes,
) -> ManagedAttributes {
    let desired = &input.resolved.desired;
    let observed = &input.observed.nodegroups;
    let exists = |name: &str| observed.iter().any(|group| group.name().to_string() == name);
    let is_in_other_cluster = |name: &str| !name.starts_with(&format!("{}/", desired.cluster));
    let is_disowned = |name: &str| input.observed.disowned.iter().any(|found| found.name.to_string() == name);
    let is_unseen = |kind: NameKind, name: &str| input.observed.unseen_names.contains(&kind.named(name));
    let is_kept = |name: &str| {
        exists(name)
            || is_in_other_cluster(name)
            || is_disowned(name)
            || is_unseen(NameKind::Nodegroup, name)
            || may_be_new(input, old, name)
    };
    let mut nodegroups: Vec<_> = old.nodegroups.iter().filter(|name| is_kept(name)).cloned().collect();
    for name in observed.iter().map(ObservedNodegroup::name).chain(created).map(ToString::to_string) {
        if !nodegroups.contains(&name) {
            nodegroups.push(name);
        }
    }
    let is_kept_arn = |arn: &&String| match nodegroup_in_arn(arn) {
        Some(name) => name.cluster != desired.cluster || is_disowned(&name.to_string()),
        None => true,
    };
    let kept_arns = old.nodegroup_arns.iter().filter(is_kept_arn).cloned();
    let observed_arns = observed.iter().map(|group| group.nodegroup.arn.clone());
    // An answer of AWS may be older than the node group, and a change in progress shows when it is done. So what was not
    // seen stays recorded. A spec that goes back makes an outgoing node group the current one, with what it carries.
    let is_busy = observed.iter().any(|group| group.nodegroup.status.is_busy()) || health::is_update_in_progress(input);
    let keeps = |kind: NameKind, key: &str, shows: &dyn Fn(&Nodegroup) -> bool| {
        is_busy || observed.is_empty() || is_unseen(kind, key) || observed.iter().any(|group| shows(&group.nodegroup))
    };
    let has_tag = |key: &String| keeps(NameKind::Tag, key, &|n| n.tags.contains_key(key));
    let has_label = |key: &String| keeps(NameKind::Label, key, &|n| n.labels.contains_key(key));
    let has_taint =
        |key: &String| keeps(NameKind::Taint, key, &|n| n.taints.iter().any(|t| update::taint_key(t) == *key));
    let has_max_unavailable = || keeps(NameKind::MaxUnavailable, "", &attribute_names::has_max_unavailable);
    let has_active = observed.iter().any(|group| group.has_status(NodegroupStatus::Active));
    let has_repair = || keeps(NameKind::NodeRepair, "", &|n| n.repair);
    ManagedAttributes {
        max_unavailable: attribute_names::sets_max_unavailable(desired) || old.max_unavailable && has_max_unavailable(),
        node_repair: desired.node_repair == Some(true) || old.node_repair && has_repair(),
        tags: desired_and_recorded(desired.tags.keys().cloned(), &old.tags, has_tag),
        labels: desired_and_recorded(desired.labels.keys().cloned(), &old.labels, has_label),
        taints: desired_and_recorded(desired.taints.iter().map(update::taint_key), &old.taints, has_taint),
        nodegroups,
        nodegroup_arns: kept_arns.chain(observed_arns).collect(),
        nodegroup_deletion: old.nodegroup_deletion.filter(|_| created.is_none() && !has_active),
        ..old.clone()
    }
}

/// Whether a recorded node group that EKS does not have may have been created just now. Its ARN is recorded once it was
/// seen. One that was not seen stays until it was searched for twice: another name was recorded after it, or the group
/// was Ready without it.
fn may_be_new(input: &PlanInput, old: &ManagedAttributes, name: &str) -> bool {
    !was_seen(old, name) && old.nodegroups.last().is_some_and(|last| last == name) && !was_ready(input.status)
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
