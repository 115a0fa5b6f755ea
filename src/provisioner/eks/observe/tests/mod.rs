//! Tests of observing a group, also when AWS returns incomplete data.

mod activities;
mod auth_entries;
mod resources;
mod roles;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use crate::api::names::{FINALIZER, condition};
use crate::api::spec_error::SpecError;
use crate::api::{Condition, GroupId, InstanceGroup, InstanceGroupSpec, InstanceGroupStatus, decode_spec, group_id};
use crate::auth::access_entries::JoinMethod;
use crate::auth::aws_auth::{self, AuthEntry};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::samples::{cluster, instance, network_object, scaling_activity, scaling_group};
use crate::aws::{
    AccessEntry, AwsErrorKind, BlockDevice, Cluster, Instance, InstanceProfile, LaunchTemplate, Role, ScalingActivity,
    ScalingGroup, Tag, TemplateData, TemplatePin, TemplateVersion, WarmPool, WarmSizes,
};
use crate::index::nodes::NodeIndex;
use crate::provisioner::eks::launch_template::fingerprint::Fingerprint;
use crate::provisioner::eks::names::GroupNames;
use crate::provisioner::eks::observe::remaining_resources::{members_with_drains, remaining_resources};
use crate::provisioner::eks::observe::unrecorded;
use crate::provisioner::eks::observed::ObservedState;
use crate::provisioner::eks::references::References;
use crate::provisioner::eks::resolve::{ResolvedGroup, resolve};
use crate::provisioner::eks::{desired, ownership};
use crate::provisioner::join;
use crate::provisioner::name_form::NameForm;
use crate::provisioner::observe::fake::FakeCluster;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::rejected_fields::Part;

/// The group `team/web` in the cluster `demo`, with a role that the controller creates.
pub(super) fn resolved() -> ResolvedGroup {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let spec = json!({"provisioner": "eks", "eks": {"minSize": 1, "maxSize": 2, "configuration": {
        "clusterName": "demo", "image": "ami-00000001", "instanceType": "m5.large",
        "subnets": ["subnet-1"], "securityGroups": ["sg-1"],
    }}});
    let spec = decode_spec(&spec).expect("a spec");
    let references = References {
        cluster: Some(cluster("demo")),
        subnets: vec![network_object("subnet-1")],
        security_groups: vec![network_object("sg-1")],
        ..References::default()
    };
    let desired = desired::parse(&group_id(&group), &Default::default(), &spec).expect("a group");
    resolve(desired, &references, NameForm::Plain).expect("a resolved group")
}

async fn observe_with(
    stub: &Arc<FakeAws>,
    map_roles: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedState> {
    observe_group(stub, &resolved(), map_roles, status).await
}

async fn observe_group(
    stub: &Arc<FakeAws>,
    resolved: &ResolvedGroup,
    map_roles: &str,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedState> {
    with_observer(stub, map_roles, async |observer| super::observe(&observer, resolved, status).await).await
}

/// Gives `read` an observer of a cluster without nodes and other groups.
async fn with_observer<T>(stub: &Arc<FakeAws>, map_roles: &str, read: impl AsyncFnOnce(Observer<'_>) -> T) -> T {
    let cluster = FakeCluster::new(stub).with_map_roles(map_roles);
    read(cluster.observer()).await
}

/// The launch template of the group, with one version.
fn own_template(resolved: &ResolvedGroup) -> LaunchTemplate {
    LaunchTemplate {
        id: "lt-1".into(),
        name: resolved.names.template.clone(),
        default_version: 1,
        latest_version: 1,
        tags: resolved.ownership_tags.clone(),
    }
}

/// Otherwise a lock, or a spec that a tenant reverts, would uncordon a node whose instance is about to end.
#[tokio::test]
async fn node_says_when_the_controller_terminated_its_instance() {
    let (stub, resolved) = (Arc::new(FakeAws::default()), resolved());
    let group = ScalingGroup {
        tags: resolved.tags.clone(),
        instances: vec![instance("i-1"), instance("i-2")],
        ..scaling_group(&resolved.names.scaling_group)
    };
    stub.update(|d| _ = d.groups.insert(group.name.clone(), group.clone()));
    let node_index = NodeIndex::default();
    for name in ["i-1", "i-2"] {
        let node = json!({"metadata": {"name": name}, "spec": {"providerID": format!("aws:///us-west-2a/{name}")}});
        node_index.apply(&Event::Apply(serde_json::from_value::<Node>(node).expect("a Node")));
    }
    let cluster = FakeCluster::new(&stub);
    let observer = Observer { node_index: &node_index, ..cluster.observer() };
    observer.process_state.record_termination("i-1", SignedDuration::from_secs(120), observer.now);
    let status = InstanceGroupStatus::default();
    let observed = super::observe(&observer, &resolved, &status).await.expect("a state");
    let sent_at = |id: &str| observed.nodes[id].termination_sent_at;
    assert_eq!((sent_at("i-1"), sent_at("i-2")), (Some(observer.now), None));
    let (members, _) = members_with_drains(&observer, &group.instances, "uid", &status).await.expect("members");
    let sent_at: Vec<_> = members.iter().map(|m| m.node.as_ref().expect("a node").termination_sent_at).collect();
    assert_eq!(sent_at, [Some(observer.now), None]);
}
