//! Derives the names of managed node groups, and reads the recorded ones.
//!
//! Keiko controller names a node group after its InstanceGroup, so groups of one name in two namespaces share it. New
//! names contain a hash of the owner and a hash of the immutable fields: changed immutable fields mean another node group.

use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::{ImmutableFields, NodegroupName};
use crate::provisioner::GroupId;
pub(crate) use crate::util::digest::sha256_hex;

/// Maximum length of a node group name (EKS User Guide, "Create a managed node group for your cluster").
const MAX_NODEGROUP_NAME: usize = 63;
/// Number of hexadecimal digits of each hash.
const HASH_DIGITS: usize = 8;

/// The common prefix of the names of a group's node groups.
pub(crate) fn name_prefix(cluster: &str, id: &GroupId) -> String {
    let readable: String = format!("{}-{}", id.namespace, id.name).replace('.', "-");
    let room = MAX_NODEGROUP_NAME - 2 * (HASH_DIGITS + 1);
    let truncated = readable.chars().take(room).collect::<String>();
    let identity = format!("{cluster}/{}/{}", id.namespace, id.name);
    format!("{}-{}", truncated.trim_end_matches('-'), &sha256_hex(&identity)[..HASH_DIGITS])
}

/// The name of the node group with these immutable fields.
pub(crate) fn nodegroup_name(cluster: &str, id: &GroupId, shape: &ImmutableFields) -> NodegroupName {
    let text = serde_json::to_string(shape).unwrap_or_default();
    NodegroupName::new(cluster, format!("{}-{}", name_prefix(cluster, id), &sha256_hex(&text)[..HASH_DIGITS]))
}

/// Whether a node group has a name that a controller derives for the group.
pub(crate) fn is_derived_name(name: &NodegroupName, id: &GroupId) -> bool {
    name.nodegroup == id.name || has_prefix(name, id)
}

/// Whether a node group has a name that this controller derives for the group, and for no other one.
pub(crate) fn has_prefix(name: &NodegroupName, id: &GroupId) -> bool {
    name.nodegroup.starts_with(&format!("{}-", name_prefix(&name.cluster, id)))
}

/// Whether the status records a node group under a name that a controller derives for the group. Any other name in the
/// status comes from somewhere else.
pub(crate) fn is_recorded(name: &NodegroupName, id: &GroupId, status: &InstanceGroupStatus) -> bool {
    is_derived_name(name, id) && recorded_nodegroups(status).any(|recorded| recorded == *name)
}

/// The node group in an ARN such as `arn:aws:eks:us-west-2:1:nodegroup/<cluster>/<name>/<id>`.
pub(crate) fn nodegroup_in_arn(arn: &str) -> Option<NodegroupName> {
    let mut parts = arn.split_once(":nodegroup/")?.1.split('/');
    Some(NodegroupName::new(parts.next()?, parts.next()?))
}

/// The node groups recorded in status, in order of creation. All are in the cluster of the first one.
pub(crate) fn recorded_nodegroups(status: &InstanceGroupStatus) -> impl Iterator<Item = NodegroupName> + '_ {
    let all =
        || status.managed.iter().flat_map(|managed| &managed.nodegroups).filter_map(|text| NodegroupName::parse(text));
    let cluster = all().next().map(|first| first.cluster);
    all().filter(move |name| Some(&name.cluster) == cluster.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};

    fn id(namespace: &str, name: &str) -> GroupId {
        let mut group = InstanceGroup::new(name, InstanceGroupSpec::default());
        group.metadata.namespace = Some(namespace.into());
        group_id(&group)
    }

    #[test]
    fn names_are_unique_and_valid() {
        let long = "a".repeat(60);
        let mut seen = std::collections::BTreeSet::new();
        for (namespace, name) in [("a-b", "c"), ("a", "b-c"), ("a.b", "c"), ("a", "b.c"), (&long, &long), (&long, "b")]
        {
            let found = nodegroup_name("demo", &id(namespace, name), &ImmutableFields::default());
            assert!(seen.insert(found.nodegroup.clone()), "{found} twice");
            assert!(found.nodegroup.len() <= MAX_NODEGROUP_NAME, "{found}");
            assert!(found.nodegroup.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{found}");
        }
        let spot = ImmutableFields { capacity_type: Some("SPOT".into()), ..ImmutableFields::default() };
        assert_ne!(
            nodegroup_name("demo", &id("a", "b"), &spot),
            nodegroup_name("demo", &id("a", "b"), &ImmutableFields::default())
        );
    }

    #[test]
    fn nodegroup_name_is_stable() {
        let shape = ImmutableFields { node_role: "arn:aws:iam::1:role/node".into(), ..ImmutableFields::default() };
        let found = nodegroup_name("demo", &id("team", "web"), &shape).nodegroup;
        assert!(found.starts_with(&name_prefix("demo", &id("team", "web"))));
        assert_eq!(found, "team-web-465045b4-db5ef1c0");
    }
}
