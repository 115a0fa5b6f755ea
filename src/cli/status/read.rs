//! Reads what `status` shows, with the permissions of the caller. What the caller may not read is reported and left
//! out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::api::names::{annotation, condition, label};
use crate::api::{Condition, CurrentState, GroupObject, InstanceGroup, InstanceGroupSpec};
use crate::cli::missing_permissions::explain_denied;
use crate::cli::plan::snapshot::list_all;
use crate::controller::report::INVALID_OBJECT;
use crate::k8s::{DrainBlocker, KubeError, PodInfo, budgets, call};
use crate::plan::StalledReason;

/// What was read, or why the caller cannot read it.
pub(super) type Readable<T> = Result<T, String>;

/// One group with all related objects in Kubernetes.
pub(super) struct GroupDetails {
    /// The InstanceGroup with its status.
    pub group: InstanceGroup,
    /// Its nodes, by their labels.
    pub nodes: Readable<Vec<Node>>,
    /// Pods that a drain has to evict, on nodes that are being drained.
    pub pods_to_evict: Readable<Vec<DrainedPod>>,
    /// Its events, newest last.
    pub events: Readable<Vec<Event>>,
}

/// A pod on a node that is being drained.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DrainedPod {
    /// Name of the node.
    pub node: String,
    /// `namespace/name` of the pod.
    pub pod: String,
    /// Since when it is terminating, and its finalizers; `None` for a pod that still has to be evicted.
    pub terminating: Option<(Timestamp, Vec<String>)>,
    /// What blocks it, as the API server would answer an eviction; `None` when it may be evicted.
    pub obstacle: Readable<Option<DrainBlocker>>,
}

/// All groups of a namespace, or of the cluster. One that cannot be decoded hides no other one.
///
/// # Errors
/// The API server did not answer, or the caller may not list InstanceGroups.
pub(super) async fn groups(client: &Client, namespace: Option<&str>) -> Result<Vec<InstanceGroup>, KubeError> {
    let api: Api<GroupObject> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    Ok(list_all(api, "instancegroups").await?.into_iter().map(as_group).collect())
}

/// The group; for one that cannot be decoded, its status alone, with what the controller reports on such an object.
fn as_group(stored: GroupObject) -> InstanceGroup {
    stored.0.unwrap_or_else(|invalid| {
        let mut status = invalid.status.unwrap_or_default();
        let reason = StalledReason::InvalidSpec.to_string();
        let is_reported =
            |found: &Condition| found.r#type == condition::STALLED && found.is_true() && found.has_reason(&reason);
        if !status.conditions.iter().any(is_reported) {
            let replaced = [condition::READY, condition::RECONCILING, condition::STALLED];
            status.conditions.retain(|found| !replaced.contains(&found.r#type.as_str()));
            status.conditions.extend([
                Condition::new(condition::READY, false, &reason, INVALID_OBJECT),
                Condition::new(condition::STALLED, true, &reason, INVALID_OBJECT),
            ]);
        }
        status.current_state = Some(CurrentState::Error.as_str().to_owned());
        InstanceGroup { metadata: invalid.metadata, spec: InstanceGroupSpec::default(), status: Some(status) }
    })
}

/// One group with its nodes, the pods that drains wait for, and its events.
///
/// # Errors
/// The API server did not answer, the group does not exist, or the caller may not read it.
pub(super) async fn details(client: &Client, namespace: &str, name: &str) -> Result<GroupDetails, KubeError> {
    let api: Api<GroupObject> = Api::namespaced(client.clone(), namespace);
    let group = as_group(call("get", "instancegroups", api.get(name)).await?);
    let selector = format!("{}={namespace},{}={name}", label::NAMESPACE, label::INSTANCE_GROUP);
    let params = ListParams::default().labels(&selector);
    let (nodes, events) = futures::join!(list_nodes(client, &params), list_events(client, &group));
    let draining = nodes.iter().flatten().filter(|node| is_drained(node)).map(ResourceExt::name_any);
    let pods_to_evict = pods_to_evict(client, draining.collect()).await;
    Ok(GroupDetails { group, nodes, pods_to_evict, events })
}

/// Whether the controller drains a node.
pub(super) fn is_drained(node: &Node) -> bool {
    node.annotations().contains_key(annotation::DISRUPTION)
}

async fn list_nodes(client: &Client, params: &ListParams) -> Readable<Vec<Node>> {
    let found = call("list", "nodes", Api::<Node>::all(client.clone()).list(params)).await;
    let mut nodes = found.map_err(|error| explain_denied(&error, None))?.items;
    nodes.sort_by_key(ResourceExt::name_any);
    Ok(nodes)
}

async fn list_events(client: &Client, group: &InstanceGroup) -> Readable<Vec<Event>> {
    let (namespace, name) = (group.namespace().unwrap_or_default(), group.name_any());
    let selector = format!("regarding.kind=InstanceGroup,regarding.name={name}");
    let params = ListParams::default().fields(&selector);
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    let found = call("list", "events", api.list(&params)).await;
    let mut events = found.map_err(|error| explain_denied(&error, Some(&namespace)))?.items;
    let uid = group.uid();
    events.retain(|event| event.regarding.as_ref().and_then(|about| about.uid.clone()) == uid);
    events.sort_by_key(|event| event.event_time.as_ref().map(|time| time.0));
    Ok(events)
}

async fn pods_to_evict(client: &Client, nodes: Vec<String>) -> Readable<Vec<DrainedPod>> {
    let (mut found, mut by_namespace) = (Vec::new(), BTreeMap::new());
    for node in nodes {
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = call("list", "pods", Api::<Pod>::all(client.clone()).list(&params)).await;
        let pods = pods.map_err(|error| explain_denied(&error, None))?.items;
        for pod in pods.iter().filter(|pod| PodInfo::from(*pod).must_be_evicted()) {
            let namespace = pod.namespace().unwrap_or_default();
            if !by_namespace.contains_key(&namespace) {
                let found = budgets::list(client, Some(&namespace)).await;
                by_namespace.insert(namespace.clone(), found.map_err(|error| explain_denied(&error, Some(&namespace))));
            }
            let obstacle = by_namespace[&namespace]
                .as_ref()
                .map_err(Clone::clone)
                .map(|all: &Vec<_>| DrainBlocker::new(&node, pod, &budgets::selecting(all, pod.labels())));
            let deleted_at = pod.metadata.deletion_timestamp.as_ref();
            found.push(DrainedPod {
                node: node.clone(),
                pod: format!("{namespace}/{}", pod.name_any()),
                terminating: deleted_at.map(|at| (at.0, pod.finalizers().to_vec())),
                obstacle,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::text;
    use super::*;
    use crate::k8s::fake;

    fn object(name: &str, user_data: &Value) -> Value {
        json!({
            "apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup",
            "metadata": {"name": name, "namespace": "team", "generation": 2},
            "spec": {"eks": {"configuration": {"userData": user_data}}},
            "status": {"currentState": "Ready", "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]},
        })
    }

    /// An API server with the group `good`, and the group `bad`, whose user data is a text instead of a list.
    fn server() -> Client {
        fake::client(|call| {
            let groups = "/apis/instancemgr.keikoproj.io/v1alpha1";
            let bad = object("bad", &json!("secret"));
            let items = match call.path.strip_prefix(groups) {
                Some("/namespaces/team/instancegroups/bad") => return (200, bad),
                Some("/instancegroups") => vec![object("good", &json!([])), bad],
                _ => vec![],
            };
            (200, json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}))
        })
    }

    /// The operator on call must find every group although one tenant's object is broken. What is wrong with that one
    /// is said without its values, which may be secrets.
    #[tokio::test]
    async fn group_that_cannot_be_decoded_hides_no_other_group_and_shows_no_value() {
        let (client, now) = (server(), Timestamp::UNIX_EPOCH);
        let listed = text::list(&groups(&client, None).await.expect("two groups"), None, now);
        let shown = text::group(&details(&client, "team", "bad").await.expect("a group"), now);
        let lines: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1][..2], ["team/bad", "Error"], "{listed}");
        assert_eq!(lines[2][..2], ["team/good", "Ready"], "{listed}");
        assert!(shown.contains("team/bad: Error"), "{shown}");
        for text in [listed, shown] {
            assert!(
                text.contains("InvalidSpec") && text.contains(INVALID_OBJECT) && !text.contains("secret"),
                "{text}"
            );
        }
    }
}
