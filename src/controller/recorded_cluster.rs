//! The cluster, and the region, of the resources that a deletion deletes. Pure.
//!
//! The ownership tags contain the cluster, and after a change of the spec only the status says which one it was. But a
//! group of the same namespace and name in another cluster carries the same other tags, so the status alone is no proof.
//!
//! A controller that is configured for another region finds none of the resources. It must not take them for deleted.

use crate::api::{GroupId, InstanceGroupStatus};
use crate::boundaries::MergedSpec;
use crate::index::nodes::NodeIndex;
use crate::plan::{Plan, Reason, blocked_plan};
use crate::provisioner::Provisioner;
use crate::settings::Settings;

/// The cluster that a merged spec names; `None` without one.
pub(crate) fn desired<'a>(merged: &'a MergedSpec, provisioner: &dyn Provisioner) -> Option<&'a str> {
    let keys = provisioner.cluster_field().split('.').skip(1);
    keys.fold(&merged.spec, |value, key| &value[key]).as_str().filter(|cluster| !cluster.is_empty())
}

/// The plan of a deletion that the recorded cluster blocks. The recorded cluster differs from that of `--cluster-name`,
/// or without that flag, from that of the spec.
pub(crate) fn blocked_deletion(
    id: &GroupId,
    status: &InstanceGroupStatus,
    merged: Option<&MergedSpec>,
    provisioner: &dyn Provisioner,
    settings: &Settings,
) -> Option<Plan> {
    let recorded = provisioner.recorded_cluster(id, status)?;
    let path = provisioner.cluster_field();
    let (expected, reason, remedy) = match (&settings.cluster_name, merged) {
        (Some(pinned), _) => {
            (pinned.as_str(), Reason::PolicyViolation, "use the controller of that cluster".to_owned())
        }
        (None, Some(merged)) => (
            desired(merged, provisioner)?,
            Reason::InvalidSpec,
            format!("set {path} to {recorded}, and the deletion continues"),
        ),
        (None, None) => return None,
    };
    let message = format!(
        "the status names resources in the cluster {recorded}, but this group is in {expected}; to delete them, {remedy}; to keep them, remove the finalizer"
    );
    (expected != recorded).then(|| blocked_plan(id, reason, message))
}

/// The plan of a deletion in a region where the group has no nodes, although it has some in another one.
pub(crate) fn blocked_by_region(id: &GroupId, nodes: &NodeIndex, region: &str) -> Option<Plan> {
    let (node, zone) = nodes.node_outside_of(region, &id.key())?;
    let message = format!(
        "node {node} of this group is in the zone {zone}, but the controller works in the region {region} and finds none of the group's resources there; correct the controller's AWS_REGION, and the deletion continues; to keep the resources, remove the finalizer"
    );
    Some(blocked_plan(id, Reason::PolicyViolation, message))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::api::names::label;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::plan::Outcome;

    /// In a wrong region AWS has nothing of the group. Its finalizer would go, and its nodes would run for ever.
    #[test]
    fn deletion_waits_while_the_controller_works_in_another_region_than_the_nodes() {
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let index = |zone: &str| {
            let node: Node = serde_json::from_value(json!({
                "metadata": {"name": "ip-1", "labels": {
                    label::NAMESPACE: id.namespace, label::INSTANCE_GROUP: id.name,
                }},
                "spec": {"providerID": format!("aws:///{zone}/i-1")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))
            .expect("a Node");
            let index = NodeIndex::default();
            index.apply(&Event::Apply(node));
            index
        };
        assert_eq!(blocked_by_region(&id, &index("eu-west-1a"), "eu-west-1"), None);
        assert_eq!(blocked_by_region(&id, &index("us-west-2-lax-1a"), "us-west-2"), None);
        let plan = blocked_by_region(&id, &index("us-west-2a"), "eu-west-1").expect("a blocked plan");
        let Outcome::Blocked { message, .. } = plan.outcome else { panic!("{:?}", plan.outcome) };
        for part in ["ip-1", "us-west-2a", "eu-west-1", "AWS_REGION"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
