//! Fixtures for the tests of the provisioners.

use std::collections::BTreeMap;

use instance_manager::api::FieldError;
use instance_manager::api::spec_error::SpecError;
use instance_manager::aws::{Cluster, Instance, InstanceState, NetworkObject, ScalingGroup};
use instance_manager::boundaries::{Boundaries, MergedAnnotations, merge};
use instance_manager::provisioner::GroupId;
use jiff::Timestamp;

/// The group `team/web`, with its finalizer.
pub fn group_id(generation: i64, created_at: Timestamp) -> GroupId {
    GroupId {
        namespace: "team".into(),
        name: "web".into(),
        uid: "uid-1".into(),
        generation,
        created_at,
        deletion_requested_at: None,
        has_finalizer: true,
        labels: BTreeMap::new(),
    }
}

/// Annotations below the controller's prefix, as the merge without boundaries returns them.
pub fn annotations(pairs: &[(&str, &str)]) -> MergedAnnotations {
    let all: BTreeMap<_, _> = pairs.iter().map(|(k, v)| (format!("instancemgr.keikoproj.io/{k}"), *v)).collect();
    let group = serde_json::json!({ "metadata": { "annotations": all } });
    merge(&Boundaries::default(), &group, true).expect("a merged spec").annotations
}

/// The cluster `demo`.
pub fn cluster() -> Cluster {
    Cluster {
        name: "demo".into(),
        arn: "arn:aws:eks:us-west-2:1:cluster/demo".into(),
        version: "1.33".into(),
        endpoint: "https://demo".into(),
        ca: "Y2E=".into(),
        service_cidr: "10.100.0.0/16".into(),
        is_ipv6: false,
        vpc: Some("vpc-1".into()),
        authentication_mode: "CONFIG_MAP".into(),
    }
}

/// An instance in service of a group without weights.
pub fn instance(id: &str) -> Instance {
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
    }
}

/// A scaling group of one to three, without instances.
pub fn scaling_group(name: &str) -> ScalingGroup {
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
        enabled_metrics: vec![],
        instances: vec![],
        deleting: false,
    }
}

/// A subnet or security group in the VPC `vpc-1`.
pub fn network_object(id: &str) -> NetworkObject {
    let zone = Some("us-west-2a".into());
    NetworkObject { id: id.into(), name: None, vpc: "vpc-1".into(), zone, ipv4_cidr: None, assigns_ipv6: None }
}

/// The violations of the schema, and the errors of the parser about other fields.
pub fn all_errors(violations: Vec<FieldError>, parsed: Vec<SpecError>) -> Vec<SpecError> {
    let mut all: Vec<_> =
        violations.into_iter().map(|e| SpecError::invalid(&e.path, &e.value, e.rule, e.remedy)).collect();
    for error in parsed {
        if all.iter().all(|known| known.path != error.path) {
            all.push(error);
        }
    }
    all
}
