//! Reads what `status` shows, with the permissions of the caller. What the caller may not read is reported and left
//! out.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::api::InstanceGroup;
use crate::api::names::{annotation, label};
use crate::cli::missing_permissions::explain_denied;
use crate::k8s::{DrainBlocker, KubeError, PodInfo, budgets, call};

/// What was read, or why the caller cannot read it.
pub(super) type Readable<T> = Result<T, String>;

/// One group with all related objects in Kubernetes.
pub(super) struct GroupDetails {
    /// The group.
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

/// All groups of a namespace, or of the cluster.
///
/// # Errors
/// The API server did not answer, or the caller may not list InstanceGroups.
pub(super) async fn groups(client: &Client, namespace: Option<&str>) -> Result<Vec<InstanceGroup>, KubeError> {
    let api: Api<InstanceGroup> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let found = call("list", "instancegroups", api.list(&ListParams::default())).await?;
    Ok(found.items)
}

/// One group with its nodes, the pods that drains wait for, and its events.
///
/// # Errors
/// The API server did not answer, the group does not exist, or the caller may not read it.
pub(super) async fn details(client: &Client, namespace: &str, name: &str) -> Result<GroupDetails, KubeError> {
    let api: Api<InstanceGroup> = Api::namespaced(client.clone(), namespace);
    let group = call("get", "instancegroups", api.get(name)).await?;
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
