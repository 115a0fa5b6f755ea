//! The names of managed node groups.
//!
//! The original calls a node group as its InstanceGroup, so that two namespaces cannot have groups of one name. A new one
//! here carries a hash of whose it is, and one of what EKS cannot change: another generation is another node group.

use crate::aws::nodegroup::{NodegroupName, Shape};
use crate::provisioner::GroupId;
pub use crate::util::digest::sha256;

/// The longest name of a node group: EKS user guide, "Create a managed node group for your cluster".
const LONGEST: usize = 63;
/// Digits of each hash.
const DIGITS: usize = 8;

/// What every name of one group's node groups begins with.
pub fn stem(cluster: &str, id: &GroupId) -> String {
    let readable: String = format!("{}-{}", id.namespace, id.name).replace('.', "-");
    let room = LONGEST - 2 * (DIGITS + 1);
    let cut = readable.chars().take(room).collect::<String>();
    let identity = format!("{cluster}/{}/{}", id.namespace, id.name);
    format!("{}-{}", cut.trim_end_matches('-'), &sha256(&identity)[..DIGITS])
}

/// The node group that has what is wanted.
pub fn nodegroup(cluster: &str, id: &GroupId, shape: &Shape) -> NodegroupName {
    let text = serde_json::to_string(shape).unwrap_or_default();
    NodegroupName::new(cluster, format!("{}-{}", stem(cluster, id), &sha256(&text)[..DIGITS]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use std::collections::BTreeMap;

    fn id(namespace: &str, name: &str) -> GroupId {
        GroupId {
            namespace: namespace.into(),
            name: name.into(),
            uid: "uid".into(),
            generation: 1,
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            finalizer: true,
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn two_groups_never_share_a_node_group_and_every_name_is_one_that_eks_takes() {
        let long = "a".repeat(60);
        let mut seen = std::collections::BTreeSet::new();
        for (namespace, name) in [("a-b", "c"), ("a", "b-c"), ("a.b", "c"), ("a", "b.c"), (&long, &long), (&long, "b")]
        {
            let found = nodegroup("demo", &id(namespace, name), &Shape::default());
            assert!(seen.insert(found.nodegroup.clone()), "{found} twice");
            assert!(found.nodegroup.len() <= LONGEST, "{found}");
            assert!(found.nodegroup.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{found}");
        }
        let spot = Shape { capacity_type: Some("SPOT".into()), ..Shape::default() };
        assert_ne!(nodegroup("demo", &id("a", "b"), &spot), nodegroup("demo", &id("a", "b"), &Shape::default()));
    }

    #[test]
    fn a_name_that_has_been_given_stays() {
        let shape = Shape { node_role: "arn:aws:iam::1:role/node".into(), ..Shape::default() };
        let found = nodegroup("demo", &id("team", "web"), &shape).nodegroup;
        assert!(found.starts_with(&stem("demo", &id("team", "web"))));
        assert_eq!(found, "team-web-465045b4-db5ef1c0");
    }
}
