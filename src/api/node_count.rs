//! How many nodes a group counts for, in the quota of its namespace.

use serde_json::Value;

use super::{InstanceGroupStatus, ProvisionerKind};

/// What a spec requests, for the quota of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeDemand {
    /// The maximum number of instances: `maxSize`, a warm pool, and what a surge adds. With instance weights, units of
    /// capacity.
    pub nodes: u64,
    /// What a surge adds.
    pub surge: u64,
    /// The instance types that it lists, with their weights.
    pub types: Vec<(String, u64)>,
}

impl NodeDemand {
    /// What a spec requests.
    pub(crate) fn from_spec(spec: &Value) -> Self {
        Self { nodes: max_size(spec).saturating_add(extra_nodes(spec)), surge: surge(spec), types: types(spec) }
    }

    /// The most vCPUs that so many nodes can have, if all of them are of the listed type with which there are most. `None`
    /// when those of a type are not known.
    pub(crate) fn vcpus(&self, nodes: u64, of_type: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
        if nodes == 0 {
            return Some(0);
        }
        let with_type =
            |(name, weight): &(String, u64)| Some(nodes.div_ceil((*weight).max(1)).saturating_mul(of_type(name)?));
        let all: Option<Vec<u64>> = self.types.iter().map(with_type).collect();
        all?.into_iter().max()
    }
}

/// The instance types that a spec lists, each once, with their weights.
fn types(spec: &Value) -> Vec<(String, u64)> {
    let configuration = &spec[sized_section(spec)]["configuration"];
    let listed = [&configuration["mixedInstancesPolicy"]["instanceTypes"], &configuration["instanceTypes"]];
    let listed = listed.into_iter().filter_map(Value::as_array).flatten().filter_map(|item| {
        let name = item.as_str().or(item["type"].as_str())?;
        Some((name.to_owned(), item["weight"].as_u64().filter(|weight| *weight > 0).unwrap_or(1)))
    });
    let mut found: Vec<(String, u64)> = listed.collect();
    if let Some(first) = configuration["instanceType"].as_str().filter(|first| !first.is_empty())
        && found.iter().all(|(name, _)| name != first)
    {
        found.insert(0, (first.to_owned(), 1));
    }
    found
}

fn max_size(spec: &Value) -> u64 {
    spec[sized_section(spec)]["maxSize"].as_u64().unwrap_or(0)
}

/// The instances that a spec requests beyond `maxSize`.
fn extra_nodes(spec: &Value) -> u64 {
    let size = max_size(spec);
    if sized_section(spec) != "eks" {
        return 0;
    }
    let pool = &spec["eks"]["warmPool"];
    // A pool's maxSize counts the group's own instances too; -1 is the group's maxSize.
    let prepared = pool["maxSize"].as_u64().unwrap_or(0).saturating_sub(size);
    let pool = pool["minSize"].as_u64().unwrap_or(0).max(prepared);
    pool.saturating_add(surge(spec))
}

/// The instances that a surge adds.
fn surge(spec: &Value) -> u64 {
    let size = max_size(spec);
    if sized_section(spec) != "eks" {
        return 0;
    }
    let surge = match &spec["strategy"]["rollingUpdate"]["maxSurge"] {
        _ if spec["strategy"]["type"].as_str().is_some_and(|kind| kind.eq_ignore_ascii_case("crd")) => 0,
        Value::Number(count) => count.as_u64().unwrap_or(0),
        Value::String(text) => match text.strip_suffix('%') {
            Some(percent) => percent.parse().map_or(0, |percent: u64| size.saturating_mul(percent).div_ceil(100)),
            None => text.parse().unwrap_or(0),
        },
        _ => 0,
    };
    surge.min(size)
}

/// The section of a spec that has the sizes.
pub(crate) fn sized_section(spec: &Value) -> &'static str {
    match spec["provisioner"].as_str().and_then(ProvisionerKind::parse) {
        Some(ProvisionerKind::EksManaged) => "eks-managed",
        Some(ProvisionerKind::Eks | ProvisionerKind::EksFargate) | None => "eks",
    }
}

/// The nodes that a group has under a quota, whatever its spec is now: what the quota allowed last, or what the status
/// records if that is more. A status without an allowed number is older than it, so what it requests beyond `maxSize`
/// counts as allowed. During a replacement of a managed node group both exist.
pub(crate) fn used_nodes(status: &InstanceGroupStatus, spec: &Value) -> u64 {
    let number = |count: i64| u64::try_from(count).unwrap_or(0);
    let desired = status.nodes.as_ref().map_or(0, |nodes| nodes.desired);
    let node_groups = status.managed.as_ref().map_or(1, |managed| managed.nodegroups.len().max(1)) as u64;
    let recorded = number(status.current_max.unwrap_or(0)).saturating_mul(node_groups).max(number(desired));
    match status.quota_nodes {
        Some(allowed) => recorded.max(number(allowed)),
        None if recorded == 0 => 0,
        None => recorded.saturating_add(extra_nodes(spec)),
    }
}

/// Whether a group has, or may have, anything in AWS.
pub(crate) fn has_resources(status: &InstanceGroupStatus) -> bool {
    status.quota_nodes.is_some()
        || status.current_max.is_some()
        || status.active_scaling_group_name.as_ref().is_some_and(|name| !name.is_empty())
        || status.managed.as_ref().is_some_and(|managed| !managed.nodegroups.is_empty())
        || status.fargate.as_ref().is_some_and(|fargate| !fargate.profiles.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn requested_nodes(spec: &Value) -> u64 {
        NodeDemand::from_spec(spec).nodes
    }

    /// AWS's own quota is in vCPUs: a group may launch any of its types.
    #[test]
    fn vcpus_are_those_of_the_type_with_which_there_are_most() {
        let of_type = |name: &str| match name {
            "m5.large" => Some(2),
            "m5.4xlarge" => Some(16),
            _ => None,
        };
        let vcpus = |configuration: Value| {
            let demand = NodeDemand::from_spec(&json!({"eks": {"maxSize": 10, "configuration": configuration}}));
            demand.vcpus(demand.nodes, &of_type)
        };
        let mixed =
            |types: Value| json!({"instanceType": "m5.large", "mixedInstancesPolicy": {"instanceTypes": types}});
        assert_eq!(vcpus(json!({"instanceType": "m5.large"})), Some(20));
        assert_eq!(vcpus(mixed(json!([{"type": "m5.4xlarge"}]))), Some(160));
        assert_eq!(
            vcpus(mixed(json!([{"type": "m5.4xlarge", "weight": 8}, {"type": "m5.large", "weight": 1}]))),
            Some(32)
        );
        assert_eq!(vcpus(mixed(json!([{"type": "x9.huge"}]))), None, "unknown is not zero");
        assert_eq!(vcpus(json!({})), None);
        let managed = json!({"provisioner": "eks-managed", "eks-managed": {"maxSize": 3, "configuration": {"instanceTypes": ["m5.large", "m5.4xlarge"]}}});
        assert_eq!(NodeDemand::from_spec(&managed).vcpus(3, &of_type), Some(48));
        assert_eq!(NodeDemand::from_spec(&json!({"provisioner": "eks-fargate"})).vcpus(0, &of_type), Some(0));
    }

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
    fn warm_pools_and_surges_count() {
        let count = |pool: Value, surge: Value| {
            requested_nodes(
                &json!({"eks": {"maxSize": 10, "warmPool": pool}, "strategy": {"rollingUpdate": {"maxSurge": surge}}}),
            )
        };
        for (pool, surge, nodes) in [
            (json!(null), json!(null), 10),
            (json!({}), json!(0), 10),
            (json!({"minSize": 3}), json!(null), 13),
            (json!({"minSize": 3, "maxSize": -1}), json!(null), 13),
            (json!({"minSize": 3, "maxSize": 12}), json!(null), 13),
            (json!({"minSize": 1, "maxSize": 15}), json!(null), 15),
            (json!(null), json!(2), 12),
            (json!(null), json!("25%"), 13),
            (json!(null), json!("4"), 14),
            (json!(null), json!(99), 20),
            (json!({"minSize": 3}), json!(2), 15),
        ] {
            assert_eq!(count(pool.clone(), surge.clone()), nodes, "{pool} {surge}");
        }
        let crd = json!({"eks": {"maxSize": 10}, "strategy": {"type": "crd", "rollingUpdate": {"maxSurge": 5}}});
        assert_eq!(requested_nodes(&crd), 10);
    }

    #[test]
    fn used_nodes_are_the_larger_of_allowed_and_recorded() {
        let spec = json!({"eks": {"maxSize": 9, "warmPool": {"minSize": 2}}});
        let used = |status: Value| used_nodes(&serde_json::from_value(status).unwrap(), &spec);
        assert_eq!(used(json!({})), 0);
        assert_eq!(used(json!({"currentMax": 4, "nodes": {"desired": 2}})), 6, "an older status, with its warm pool");
        assert_eq!(used(json!({"currentMax": 4, "quotaNodes": 5})), 5);
        assert_eq!(used(json!({"currentMax": 4, "quotaNodes": 3})), 4, "until it is smaller");
        assert_eq!(used(json!({"currentMax": 1, "nodes": {"desired": 6}, "quotaNodes": 0})), 6);
        assert_eq!(used(json!({"currentMax": -7})), 0);
        let both = json!({"currentMax": 4, "quotaNodes": 4, "managed": {"nodegroups": ["demo/a", "demo/b"]}});
        assert_eq!(used(both), 8, "two managed node groups");
    }
}
