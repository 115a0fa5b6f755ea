//! What is seen of a group, and when nobody knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::state;
use crate::api::{InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, decode_spec, identity};
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::inventory::stub::Stub;
use crate::aws::inventory::{Ages, Inventory};
use crate::aws::{AwsErrorKind, Cluster, InstanceProfile, NetworkObject, Role};
use crate::index::groups::GroupIndex;
use crate::index::nodes::NodeIndex;
use crate::index::process_state::Memory;
use crate::k8s::{KubeCluster, fake};
use crate::provisioner::eks::observed::State;
use crate::provisioner::eks::resolve::{Environment, Resolved, resolve};
use crate::provisioner::eks::{desired, ownership};
use crate::provisioner::observe::{ObserveError, Observed, Observer};

/// The group `team/web` in the cluster `demo`, with a role of its own.
fn resolved() -> Resolved {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let spec = json!({"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2, "configuration": {
        "clusterName": "demo", "image": "ami-00000001", "instanceType": "m5.large",
        "subnets": ["subnet-1"], "securityGroups": ["sg-1"],
    }}});
    let spec = decode_spec(&spec).expect("a spec");
    let network = |id: &str| {
        vec![NetworkObject { id: id.into(), name: None, vpc: "vpc-1".into(), zone: Some("us-west-2a".into()) }]
    };
    let cluster = Cluster {
        name: "demo".into(),
        arn: "arn:aws:eks:us-west-2:1:cluster/demo".into(),
        version: "1.33".into(),
        endpoint: "https://demo".into(),
        ca: "Y2E=".into(),
        service_cidr: "10.100.0.0/16".into(),
        vpc: "vpc-1".into(),
        authentication_mode: "CONFIG_MAP".into(),
    };
    let environment = Environment {
        cluster: Some(cluster),
        subnets: network("subnet-1"),
        security_groups: network("sg-1"),
        ..Environment::default()
    };
    let wanted = desired::parse(&identity(&group), &BTreeMap::new(), &spec).expect("a group");
    resolve(wanted, &environment, false).expect("it resolves")
}

async fn look(stub: &Arc<Stub>, map_roles: &str, status: &InstanceGroupStatus) -> Observed<State> {
    let ages = Ages { idle: Duration::from_millis(1), fill: Duration::ZERO, ..Ages::default() };
    let observer = Observer {
        inventory: &Inventory::with_ages(stub.aws(), ages),
        cluster: &KubeCluster::new(fake::client(|call| panic!("nobody asks: {call:?}")), "test"),
        nodes: &NodeIndex::default(),
        memory: &Memory::default(),
        map_roles: Some(map_roles),
        groups: &GroupIndex::default(),
        max_age: Duration::ZERO,
        resync: Duration::ZERO,
        now: Timestamp::UNIX_EPOCH,
    };
    state(&observer, &resolved(), status).await
}

/// GetInstanceProfile tells no tags of the role. Taken for a stranger's, the group would go by other names for good, and
/// its first role and profile would be nobody's.
#[tokio::test]
async fn a_role_that_our_profile_holds_and_iam_does_not_tell_of_yet_is_nobodys_knowledge() {
    let (stub, resolved) = (Arc::new(Stub::default()), resolved());
    let name = resolved.names.role.clone();
    let held = Role { id: "AROA-1".into(), name: name.clone(), arn: resolved.role_arn.clone(), tags: vec![] };
    let profile = InstanceProfile {
        id: "AIPA-1".into(),
        name: name.clone(),
        arn: resolved.data.profile_arn.clone(),
        created: None,
        role: Some(held.clone()),
        tags: resolved.ownership.clone(),
    };
    stub.edit(|d| _ = d.profiles.insert(name.clone(), profile));
    let status = InstanceGroupStatus::default();
    let Err(ObserveError::Aws(error)) = look(&stub, "", &status).await else { panic!("nobody knows yet") };
    assert!(error.kind == AwsErrorKind::Unavailable && error.message.contains(&name), "{error}");
    stub.edit(|d| _ = d.roles.insert(name, Role { tags: resolved.ownership.clone(), ..held }));
    let seen = look(&stub, "", &status).await.expect("it is known");
    assert!(!ownership::taken(&resolved, &seen, &status));
}

/// Else the entry of a former role would stay for ever, once somebody has deleted the scaling group.
#[tokio::test]
async fn entries_of_former_roles_stay_on_record_while_there_is_no_scaling_group() {
    let (old, admitted) = ("arn:aws:iam::1:role/before", "arn:aws:iam::1:role/admitted");
    let status = json!({"managed": {"authEntries": [resolved().role_arn, old], "accessEntries": [admitted]}});
    let status = serde_json::from_value(status).expect("a status");
    let map_roles = aws_auth::put(None, &[AuthEntry::for_nodes(old, false)]).expect("an entry").expect("a text");
    let seen = look(&Arc::new(Stub::default()), &map_roles, &status).await.expect("it is seen");
    assert!(seen.group.is_none());
    assert_eq!((seen.former.auth, seen.former.access), (vec![old.to_owned()], vec![admitted.to_owned()]));
    assert!(seen.former.auth_gone.is_empty() && seen.former.access_gone.is_empty(), "its nodes may come back");
}
