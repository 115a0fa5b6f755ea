//! Samples of what AWS returns, for unit tests. A test changes only what it is about.

use std::collections::BTreeMap;

use super::nodegroup::{Nodegroup, NodegroupName, NodegroupSizes, NodegroupStatus};
use super::{Cluster, Instance, InstanceState, NetworkObject, ScalingActivity, ScalingGroup};

/// An instance in service of a group without weights.
pub(crate) fn instance(id: &str) -> Instance {
    Instance {
        id: id.into(),
        zone: "us-west-2a".into(),
        instance_type: "m5.large".into(),
        state: InstanceState::InService,
        healthy: true,
        waits_in_hook: false,
        is_retained: false,
        template: None,
        launch_configuration: None,
        weight: 1,
        in_service_since: None,
        was_in_service: false,
        activity_refused_at: None,
    }
}

/// An active node group of one to three nodes, without scaling groups and tags.
pub(crate) fn nodegroup(name: NodegroupName) -> Nodegroup {
    Nodegroup {
        arn: format!("arn:aws:eks:us-west-2:1:nodegroup/{name}/id"),
        name,
        created: Some(jiff::Timestamp::UNIX_EPOCH),
        status: NodegroupStatus::Active,
        version: "1.33".into(),
        release_version: "1.33.0-20250101".into(),
        capacity_type: "ON_DEMAND".into(),
        sizes: NodegroupSizes { min: 1, max: 3, desired: Some(1) },
        instance_types: vec!["m5.large".into()],
        subnets: vec!["subnet-1".into()],
        key_pair: None,
        security_groups: vec![],
        ami_type: "AL2023_x86_64_STANDARD".into(),
        node_role: "arn:aws:iam::1:role/nodes".into(),
        labels: Default::default(),
        taints: vec![],
        scaling_groups: vec![],
        disk_size: Some(20),
        issues: vec![],
        max_unavailable: None,
        repair: false,
        tags: Default::default(),
    }
}

/// A scaling group of one to three, without instances.
pub(crate) fn scaling_group(name: &str) -> ScalingGroup {
    ScalingGroup {
        name: name.into(),
        min: 1,
        max: 3,
        desired: 1,
        subnets: vec![],
        template: None,
        launch_configuration: None,
        warm_pool: None,
        mixed: None,
        tags: vec![],
        unpropagated_tags: vec![],
        suspended_processes: vec![],
        suspension_reasons: BTreeMap::new(),
        enabled_metrics: vec![],
        instances: vec![],
        deleting: false,
        is_deletion_protected: false,
    }
}

/// A scaling activity in progress, with this description.
pub(crate) fn scaling_activity(description: &str) -> ScalingActivity {
    ScalingActivity {
        status: "InProgress".into(),
        description: description.into(),
        cause: String::new(),
        zone: None,
        message: String::new(),
        started: None,
    }
}

/// A cluster in the VPC `vpc-1`.
pub(crate) fn cluster(name: &str) -> Cluster {
    Cluster {
        name: name.into(),
        arn: format!("arn:aws:eks:us-west-2:1:cluster/{name}"),
        version: "1.33".into(),
        endpoint: "https://demo".into(),
        ca: "Y2E=".into(),
        service_cidr: "10.100.0.0/16".into(),
        is_ipv6: false,
        vpc: Some("vpc-1".into()),
        authentication_mode: "CONFIG_MAP".into(),
    }
}

/// A subnet or security group in the VPC `vpc-1`.
pub(crate) fn network_object(id: &str) -> NetworkObject {
    let zone = Some("us-west-2a".into());
    NetworkObject { id: id.into(), name: None, vpc: "vpc-1".into(), zone, ipv4_cidr: None, assigns_ipv6: None }
}
