//! Fixtures for the tests of the provisioners.

use std::collections::BTreeMap;

use instance_manager::aws::Cluster;
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
        annotations: BTreeMap::new(),
        labels: BTreeMap::new(),
    }
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
        vpc: "vpc-1".into(),
        authentication_mode: "CONFIG_MAP".into(),
    }
}
