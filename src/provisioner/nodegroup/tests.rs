//! Tests of observing a group.

use std::sync::Arc;

use serde_json::json;

use super::observe::observed_state;
use super::observed::ObservedState;
use super::{desired, names, resolve};
use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
use crate::aws::inventory::fake_aws::FakeAws;
use crate::aws::nodegroup::{Nodegroup, NodegroupName};
use crate::aws::samples;
use crate::boundaries::MergedAnnotations;
use crate::provisioner::observe::fake::FakeCluster;

fn nodegroup(name: &NodegroupName, tags: &[(&str, &str)]) -> Nodegroup {
    let tags = tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Nodegroup { tags, ..samples::nodegroup(name.clone()) }
}

/// A status may name any node group. Only those that the group itself could have created are held against it.
#[tokio::test]
async fn recorded_nodegroup_with_edited_tags_is_disowned_and_not_forgotten() {
    let mut group = InstanceGroup::new("web", InstanceGroupSpec::default());
    group.metadata.namespace = Some("team".into());
    let id = group_id(&group);
    let spec: InstanceGroupSpec = serde_json::from_value(json!({
        "provisioner": "eks-managed",
        "eks-managed": {"minSize": 1, "maxSize": 3, "configuration": {
            "clusterName": "demo", "nodeRole": "arn:aws:iam::1:role/nodes", "instanceType": "m5.large",
            "subnets": ["subnet-1"],
        }},
    }))
    .expect("a spec");
    let desired = desired::parse(&id, &MergedAnnotations::default(), &spec).expect("a valid spec");
    let resolved = resolve::resolve(desired, &Default::default()).expect("a resolved group");
    let prefix = names::name_prefix("demo", &id);
    let [edited, foreign, unrecorded] = ["00000001", "victim", "00000002"].map(|suffix| match suffix {
        "victim" => NodegroupName::new("demo", suffix),
        suffix => NodegroupName::new("demo", format!("{prefix}-{suffix}")),
    });
    let stub = Arc::new(FakeAws::default());
    stub.update(|d| {
        for name in [&edited, &foreign, &unrecorded] {
            let tags = [("instancegroups.keikoproj.io/Namespace", "edited")];
            d.nodegroups.insert(name.to_string(), nodegroup(name, &tags));
        }
    });
    let recorded = json!({"managed": {"nodegroups": [edited.to_string(), foreign.to_string()]}});
    let status = serde_json::from_value(recorded).expect("a status");
    let cluster = FakeCluster::new(&stub);
    let ObservedState { nodegroups, disowned, .. } =
        observed_state(&cluster.observer(), &resolved, &status, Some("a lock")).await.expect("the observed state");
    let names: Vec<_> = disowned.into_iter().map(|found| found.name).collect();
    assert_eq!((nodegroups.len(), names), (0, vec![edited]));
}
