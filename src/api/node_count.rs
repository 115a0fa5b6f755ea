//! How many nodes a group counts for, in the quota of its namespace.

use serde_json::Value;

use super::{InstanceGroupStatus, ProvisionerKind};

/// The maximum number of nodes that a spec asks for.
pub(crate) fn requested_nodes(spec: &Value) -> u64 {
    spec[sized_section(spec)]["maxSize"].as_u64().unwrap_or(0)
}

/// The section of a spec that has the sizes.
pub(crate) fn sized_section(spec: &Value) -> &'static str {
    match spec["provisioner"].as_str().and_then(ProvisionerKind::parse) {
        Some(ProvisionerKind::EksManaged) => "eks-managed",
        Some(ProvisionerKind::Eks | ProvisionerKind::EksFargate) | None => "eks",
    }
}

/// The number of nodes that a group may run according to its status, whatever its spec says now.
pub(crate) fn recorded_nodes(status: &InstanceGroupStatus) -> u64 {
    let desired = status.nodes.as_ref().map_or(0, |nodes| nodes.desired);
    u64::try_from(status.current_max.unwrap_or(0).max(desired)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requested_nodes_follow_the_provisioner() {
        let sizes = json!({"eks": {"maxSize": 3}, "eks-managed": {"maxSize": 5}});
        for (provisioner, nodes) in [(json!(null), 3), (json!("EKS"), 3), (json!("eks-managed"), 5), (json!("x"), 3)] {
            let mut spec = sizes.clone();
            spec["provisioner"] = provisioner;
            assert_eq!(requested_nodes(&spec), nodes, "{spec}");
        }
        for size in [json!(-1), json!("3"), json!(null)] {
            assert_eq!(requested_nodes(&json!({"eks": {"maxSize": size}})), 0);
        }
        assert_eq!(requested_nodes(&json!({"eks": {"maxSize": i64::MAX}})), i64::MAX as u64);
    }

    #[test]
    fn recorded_nodes_are_the_larger_of_size_and_count() {
        let recorded = |status: Value| recorded_nodes(&serde_json::from_value(status).unwrap());
        assert_eq!(recorded(json!({})), 0);
        assert_eq!(recorded(json!({"currentMax": 4, "nodes": {"desired": 2}})), 4);
        assert_eq!(recorded(json!({"currentMax": 1, "nodes": {"desired": 6}})), 6);
        assert_eq!(recorded(json!({"currentMax": -7})), 0);
    }
}
