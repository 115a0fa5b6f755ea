//! What every provisioner needs to observe a group, and the observation of nodes that are being drained. Each provisioner
//! observes its own resources in its own folder.

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod network;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};

use crate::auth::aws_auth::MapRoles;
use crate::aws::inventory::Inventory;
use crate::aws::{AwsError, InstanceState};
use crate::index::groups::GroupIndex;
use crate::index::nodes::{NodeIndex, instance_id, node_view};
use crate::index::process_state::ProcessState;
use crate::k8s::{AttachedVolume, KubeApi, KubeError, PodInfo, PodKind};
use crate::plan::{PlannedStep, PodRef};
use crate::rotation::{DrainView, Drains, NodeInstance, NodeView, PodView, stale_nodes};
use crate::util::recorded_time;

/// How many Nodes are read at a time.
const CONCURRENT_READS: usize = 10;
/// How far the clocks of two controllers may differ.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(1);

/// A failed read. It never means that the resource does not exist.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObserveError {
    /// An AWS call failed.
    #[error("reading from AWS: {0}")]
    Aws(#[source] AwsError),
    /// A Kubernetes call failed.
    #[error("reading from Kubernetes: {0}")]
    Kube(#[source] KubeError),
}

/// Clients, caches and settings to observe a group with.
pub(crate) struct Observer<'a> {
    /// Batched and cached reads from AWS.
    pub inventory: &'a Inventory,
    /// Kubernetes client, for pods and volumes of single nodes.
    pub kube: &'a dyn KubeApi,
    /// Nodes by instance id.
    pub node_index: &'a NodeIndex,
    /// Timers of drains and other state of this process.
    pub process_state: &'a ProcessState,
    /// `mapRoles` of kube-system/aws-auth from the watch; empty when the map or the field does not exist.
    pub map_roles: &'a MapRoles,
    /// Index of what groups share: roles, and entries in aws-auth that the controller added.
    pub group_index: &'a GroupIndex,
    /// The images that aliases resolve to; `None` where they resolve to AWS's present image.
    pub images: Option<&'a BTreeMap<String, String>>,
    /// Maximum age of a cached read.
    pub max_cache_age: Duration,
    /// Maximum age of a read that is shared between groups.
    pub shared_max_cache_age: Duration,
    /// How long AWS may not show what was created.
    pub consistency_delay: SignedDuration,
    /// See [`crate::settings::Timing::launch_retry`].
    pub launch_retry: SignedDuration,
    /// How long the controller delays the next drain of a node whose drain it ended.
    pub drain_retry: SignedDuration,
    /// How long a node may be NotReady before something must be wrong with it.
    pub unready_limit: SignedDuration,
    /// Whether nothing is written after this observation. A forecast reads only what decides which nodes change, and
    /// records nothing that belongs to a reconcile, such as a lost instance.
    pub is_forecast: bool,
    /// Reference time of this reconcile.
    pub now: Timestamp,
}

impl Observer<'_> {
    /// Sorts out the records on the Node of a group's instance, and adds what this process did to the instance.
    pub(crate) fn complete_node(&self, node: &mut NodeView, instance: &str, uid: &str) {
        node.adopt_records(uid, self.now);
        node.termination_sent_at = self.process_state.termination_sent_at(instance);
    }
}

/// Result of an observation.
pub(crate) type ObserveResult<T> = Result<T, ObserveError>;

/// Pods and volumes of the nodes that carry this group's disruption record. Pods of other nodes are not read. Another node has a
/// view if its next drain is delayed, or if it has become unready and times look older since a jump of the clock.
pub(crate) async fn drain_views(o: &Observer<'_>, members: &[NodeInstance], uid: &str) -> ObserveResult<Drains> {
    let mut drains = Drains::new();
    for member in members {
        let Some(node) = &member.node else { continue };
        if member.disruption_of(uid).is_none() {
            let retry_drain_at = retry_drain_at(o, node);
            let since_clock_jump = since_clock_jump(o).filter(|_| node.has_become_unready());
            if retry_drain_at.is_some() || since_clock_jump.is_some() {
                drains
                    .insert(node.name.clone(), DrainView { retry_drain_at, since_clock_jump, ..DrainView::default() });
            }
            continue;
        }
        if matches!(member.instance.state, InstanceState::Terminating | InstanceState::Other) {
            continue;
        }
        drains.insert(node.name.clone(), drain_view(o, node).await?);
    }
    Ok(drains)
}

/// When a Node whose drain was ended is drained again. Its kubelet may write the annotation, too, and must not keep the node out
/// of every rotation. Nor must a controller whose clock was ahead.
fn retry_drain_at(o: &Observer<'_>, node: &NodeView) -> Option<Timestamp> {
    node.drain_after.filter(|at| !recorded_time::is_ahead(*at, o.drain_retry + CLOCK_TOLERANCE, o.now))
}

/// The nodes that were read at the source for one plan.
#[derive(Default)]
pub(crate) struct VerifiedNodes {
    instances: BTreeSet<String>,
    /// Whether the plan is that of a deletion, which removes all nodes.
    removes_all: bool,
}

impl VerifiedNodes {
    /// For the plan of a deletion.
    pub(crate) fn of_deletion() -> Self {
        VerifiedNodes { removes_all: true, ..VerifiedNodes::default() }
    }

    /// Reads the nodes on which a plan depends so much that their cached state does not suffice. Returns them by
    /// instance, for the caller to plan again; empty when the plan depends on no other node. Updates `drains`.
    pub(crate) async fn read(
        &mut self,
        o: &Observer<'_>,
        steps: &[PlannedStep],
        members: &[NodeInstance],
        uid: &str,
        drains: &mut Drains,
    ) -> ObserveResult<BTreeMap<String, Option<NodeView>>> {
        let to_reread = stale_nodes::nodes_to_reread(steps, self.removes_all, members, &self.instances);
        let mut found = BTreeMap::new();
        for chunk in to_reread.chunks(CONCURRENT_READS) {
            let reads: Vec<_> = chunk.iter().map(|member| read_cached_node(o, member)).collect();
            found.extend(try_join_all(reads).await?);
        }
        let missing: Vec<_> = to_reread
            .iter()
            .map(|m| m.instance.id.clone())
            .filter(|id| !found.get(id).is_some_and(Option::is_some))
            .collect();
        for (instance, names) in node_names(o, &missing).await? {
            let (node, pods) = find_node(o, &instance, &names).await?;
            if node.is_none() {
                let since_clock_jump = since_clock_jump(o);
                drains.insert(instance.clone(), DrainView { pods, since_clock_jump, ..DrainView::default() });
            }
            found.insert(instance, node);
        }
        for (instance, node) in &mut found {
            node.iter_mut().for_each(|node| o.complete_node(node, instance, uid));
        }
        for member in to_reread {
            let node = found.get(&member.instance.id).cloned().flatten();
            let verified = NodeInstance { node, ..member.clone() };
            let drain_after = |m: &NodeInstance| m.node.as_ref().and_then(|node| node.drain_after);
            if verified.disruption_of(uid) != member.disruption_of(uid) || drain_after(&verified) != drain_after(member)
            {
                drains.remove(member.drain_key());
                drains.extend(drain_views(o, &[verified], uid).await?);
            }
            self.instances.insert(member.instance.id.clone());
        }
        Ok(found)
    }
}

/// Completes the Nodes of a group's instances, see [`Observer::complete_node`].
pub(crate) fn complete_nodes(o: &Observer<'_>, members: &mut [NodeInstance], uid: &str) {
    for member in members {
        let instance = &member.instance.id;
        member.node.iter_mut().for_each(|node| o.complete_node(node, instance, uid));
    }
}

/// The Node that the cache has for an instance, unless it belongs to another instance now.
async fn read_cached_node(o: &Observer<'_>, member: &NodeInstance) -> ObserveResult<(String, Option<NodeView>)> {
    let instance = member.instance.id.clone();
    let Some(cached) = &member.node else { return Ok((instance, None)) };
    let found = o.kube.node(&cached.name).await.map_err(ObserveError::Kube)?;
    let own = found.filter(|node| instance_id(node).is_none_or(|id| id == instance));
    Ok((instance, own.map(|fresh| with_history(node_view(&fresh), cached))))
}

/// What one read of a Node does not show: whether it was Ready before, and its duplicates.
fn with_history(fresh: NodeView, cached: &NodeView) -> NodeView {
    NodeView {
        was_ready: fresh.was_ready || cached.was_ready,
        drain_last: cached.drain_last,
        duplicates: cached.duplicates.clone(),
        ..fresh
    }
}

/// The names that the Nodes of instances can have: the private DNS name, or the instance ID.
///
/// The node's role is authorized for no other name, and the API server cannot select Nodes by `providerID`.
async fn node_names(o: &Observer<'_>, instances: &[String]) -> ObserveResult<Vec<(String, Vec<String>)>> {
    let mut dns_names = BTreeMap::new();
    for chunk in instances.chunks(100) {
        dns_names.extend(o.inventory.aws().ec2.private_dns_names(chunk).await.map_err(ObserveError::Aws)?);
    }
    Ok(instances
        .iter()
        .map(|id| (id.clone(), dns_names.remove(id).into_iter().chain([id.clone()]).collect()))
        .collect())
}

/// The Node of an instance by its possible names; without a Node the pods that are bound to one of these names.
async fn find_node(
    o: &Observer<'_>,
    instance: &str,
    names: &[String],
) -> ObserveResult<(Option<NodeView>, Vec<PodView>)> {
    let mut pods = Vec::new();
    for name in names {
        match o.kube.node(name).await.map_err(ObserveError::Kube)? {
            Some(node) if instance_id(&node).is_none_or(|id| id == instance) => {
                return Ok((Some(node_view(&node)), Vec::new()));
            }
            // Another instance has the address now.
            Some(_) => {}
            None => pods.extend(pods_on_node(o, name).await?),
        }
    }
    Ok((None, pods))
}

pub(crate) async fn pods_on_node(o: &Observer<'_>, node: &str) -> ObserveResult<Vec<PodView>> {
    let pods = o.kube.pods_on_node(node).await.map_err(ObserveError::Kube)?;
    let view = |p: PodInfo| PodView {
        is_ignored: p.is_ignored(),
        is_finished: p.is_finished(),
        is_unmanaged: p.kind == PodKind::Unmanaged,
        is_terminating: p.deletion_timestamp.is_some(),
        terminating_until: p.deletion_timestamp,
        created: p.created,
        tolerates_cordon: p.tolerates_cordon,
        is_newer_than_drain: false,
        grace_seconds: p.grace_seconds,
        pod: PodRef { namespace: p.namespace, name: p.name, uid: p.uid },
    };
    Ok(pods.into_iter().map(view).collect())
}

async fn drain_view(o: &Observer<'_>, node: &NodeView) -> ObserveResult<DrainView> {
    let mut pods = pods_on_node(o, &node.name).await?;
    let since = node.disruption.as_ref().map_or(Timestamp::MAX, |record| record.since);
    o.process_state.drain_clocks(&node.name, |clocks| {
        let first = clocks.first_pods(since, pods.iter().map(|p| p.pod.uid.clone()));
        pods.iter_mut().for_each(|p| p.is_newer_than_drain = !first.contains(&p.pod.uid) || came_back(p, node, since));
    });
    let empty = pods.iter().all(|p| p.is_left_by_drain());
    let (retry_drain_at, node) = (retry_drain_at(o, node), node.name.as_str());
    let volumes = if empty { o.kube.volume_attachments(node).await.map_err(ObserveError::Kube)? } else { Vec::new() };
    let (empty_since, last_blocked_eviction) = o.process_state.drain_clocks(node, |clocks| {
        clocks.track(empty, o.now);
        (clocks.empty_since, clocks.evictions_blocked)
    });
    Ok(DrainView {
        pods,
        empty_since: empty_since.into_iter().chain(detaching_since(&volumes)).min(),
        attached_volumes: volumes.into_iter().map(|volume| volume.name).collect(),
        last_blocked_eviction,
        retry_drain_at,
        since_clock_jump: since_clock_jump(o),
    })
}

/// Whether a pod was created after the drain that began at `since`, by the clocks of the control plane. That of this process
/// may be behind, and every pod would count as one that came back.
fn came_back(pod: &PodView, node: &NodeView, since: Timestamp) -> bool {
    let began = node.unschedulable_since.map(|at| at.max(since));
    pod.created.zip(began).is_some_and(|(created, began)| created.duration_since(began) > COME_BACK_AFTER)
}

/// How long after the begin of a drain a pod must have been created to count as one that came back. It applies if the
/// process was restarted since.
const COME_BACK_AFTER: SignedDuration = SignedDuration::from_secs(30);

fn since_clock_jump(o: &Observer<'_>) -> Option<SignedDuration> {
    let since = o.process_state.clock_jumps(|clocks| clocks.since_jump(Instant::now()))?;
    since.try_into().ok()
}

/// Since when all of these volumes are being detached, which begins when their pods are gone. The API server keeps this
/// time, so the wait for volumes does not begin again with the process.
fn detaching_since(volumes: &[AttachedVolume]) -> Option<Timestamp> {
    let since: Option<Vec<_>> = volumes.iter().map(|volume| volume.detaching_since).collect();
    since?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::{Value, json};

    use super::*;

    use crate::k8s::fake;
    use crate::provisioner::observe::fake::FakeCluster;

    #[test]
    fn volumes_are_being_detached_since_the_last_one_is() {
        let volume = |seconds: Option<i64>| AttachedVolume {
            name: "v".into(),
            detaching_since: seconds.and_then(|at| Timestamp::from_second(at).ok()),
        };
        let since = |volumes: &[AttachedVolume]| detaching_since(volumes).map(Timestamp::as_second);
        assert_eq!(since(&[volume(Some(9)), volume(Some(5))]), Some(9));
        assert_eq!(since(&[volume(Some(9)), volume(None)]), None, "a pod may still use the other");
        assert_eq!(since(&[]), None);
    }

    /// The scheduler places such a pod on the drained node again and again. Without a record, the controller would
    /// evict it twice a second until the clocks show that it came back.
    #[tokio::test]
    async fn pod_that_comes_back_to_a_drained_node_is_evicted_once() {
        let lists = Arc::new(AtomicUsize::new(0));
        let client = fake::client(move |call| {
            let created = Timestamp::UNIX_EPOCH.to_string();
            let pod = |name: &str| {
                json!({"metadata": {"name": name, "namespace": "apps", "uid": name, "creationTimestamp": created},
                       "spec": {"containers": [], "tolerations": [{"operator": "Exists"}]}})
            };
            let pods = match (call.path.as_str(), lists.fetch_add(1, Ordering::Relaxed)) {
                ("/api/v1/pods", 0) => vec![pod("first")],
                ("/api/v1/pods", _) => vec![pod("first"), pod("second")],
                (path, _) => panic!("unexpected call: {path}"),
            };
            (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}))
        });
        let cluster = FakeCluster::new(&Arc::default()).with_client(client);
        let evicted = async |since: i64| {
            let since = Timestamp::from_second(since).expect("a time");
            let record = json!({"group": "uid", "templateVersion": "2", "since": since}).to_string();
            let node =
                json!({"metadata": {"name": "n", "annotations": {"instancemgr.keikoproj.io/disruption": record}}});
            let node = node_view(&serde_json::from_value(node).expect("a Node"));
            let view = drain_view(&cluster.observer(), &node).await.expect("a view");
            let left: Vec<_> = view.pods.into_iter().filter(|p| !p.is_left_by_drain()).collect();
            left.into_iter().map(|p| p.pod.name).collect::<Vec<_>>()
        };
        assert_eq!(evicted(1).await, ["first"]);
        assert_eq!(evicted(1).await, ["first"], "the second came later");
        assert_eq!(evicted(2).await, ["first", "second"], "a new drain begins with what it finds");
    }

    /// After a restart, such a pod would be evicted again, and come back again.
    #[tokio::test]
    async fn pod_that_came_back_before_a_restart_is_not_evicted_again() {
        let client = fake::client(|_| {
            let pod = json!({
                "metadata": {"name": "back", "namespace": "apps", "uid": "back", "creationTimestamp": "1970-01-01T00:20:00Z"},
                "spec": {"containers": [], "tolerations": [{"operator": "Exists"}]},
            });
            (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]}))
        });
        let cluster = FakeCluster::new(&Arc::default()).with_client(client);
        let record = json!({"group": "uid", "templateVersion": "2", "since": "1970-01-01T00:10:00Z"}).to_string();
        let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": "1970-01-01T00:10:01Z"});
        let node = json!({
            "metadata": {"name": "n", "annotations": {"instancemgr.keikoproj.io/disruption": record}},
            "spec": {"taints": [taint]},
        });
        let node = node_view(&serde_json::from_value(node).expect("a Node"));
        let view = drain_view(&cluster.observer(), &node).await.expect("a view");
        assert!(view.pods.iter().all(PodView::is_left_by_drain), "{:?}", view.pods);
    }

    /// The clock of this process was 45 seconds behind when it cordoned the node. Its pods would be terminated with the node, past
    /// their budgets.
    #[test]
    fn pod_that_was_there_before_the_drain_did_not_come_back_whatever_the_clock_says() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let came_back = |created: i64, tainted: Option<i64>, since: i64| {
            let taint = |second| json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": at(second)});
            let taints: Vec<_> = tainted.map(taint).into_iter().collect();
            let node = json!({"metadata": {"name": "n"}, "spec": {"taints": taints}});
            let node = node_view(&serde_json::from_value(node).expect("a Node"));
            super::came_back(&PodView { created: Some(at(created)), ..pod_view() }, &node, at(since))
        };
        assert!(!came_back(940, Some(1000), 900), "the clock was behind");
        assert!(!came_back(940, None, 900), "nobody knows when the drain began");
        assert!(!came_back(1020, Some(1000), 900), "the clocks of the control plane differ a little");
        assert!(came_back(1040, Some(1000), 900));
        assert!(!came_back(1040, Some(10), 1020), "a user had cordoned the node long before");
    }

    fn pod_view() -> PodView {
        PodView {
            pod: PodRef { namespace: "apps".into(), name: "web".into(), uid: "web".into() },
            is_ignored: false,
            is_finished: false,
            is_unmanaged: false,
            is_terminating: false,
            terminating_until: None,
            created: None,
            tolerates_cordon: true,
            is_newer_than_drain: false,
            grace_seconds: 30,
        }
    }

    /// The Node of instance `i-1`, and the names of the pods that are bound without it, in a cluster of some Nodes.
    async fn find(nodes: &'static [(&'static str, &'static str)]) -> (Option<String>, Vec<String>) {
        let client = fake::client(move |call| {
            if call.path == "/api/v1/pods" {
                let name = call
                    .query
                    .rsplit_once("spec.nodeName%3D")
                    .map_or("", |(_, rest)| rest.split('&').next().unwrap_or_default());
                let pod = json!({"metadata": {"name": format!("pod-on-{name}"), "namespace": "apps"}});
                return (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod]}));
            }
            let name = call.path.strip_prefix("/api/v1/nodes/").expect("a Node is read").to_owned();
            let provider =
                |id: &str| if id.is_empty() { Value::Null } else { json!(format!("aws:///us-west-2a/{id}")) };
            match nodes.iter().find(|(node, _)| *node == name) {
                Some((_, id)) => (
                    200,
                    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "spec": {"providerID": provider(id)}}),
                ),
                None => fake::failure(404, "NotFound", "no such node"),
            }
        });
        let cluster = FakeCluster::new(&Arc::default()).with_client(client);
        let observer = cluster.observer();
        let names = node_names(&observer, &["i-1".into()]).await.expect("names");
        let (node, pods) = find_node(&observer, &names[0].0, &names[0].1).await.expect("answers");
        (node.map(|node| node.name), pods.into_iter().map(|view| view.pod.name).collect())
    }

    #[tokio::test]
    async fn node_is_found_by_private_dns_name_or_instance_id() {
        assert_eq!(find(&[("ip-of-i-1", "i-1")]).await.0.as_deref(), Some("ip-of-i-1"));
        assert_eq!(find(&[("i-1", "i-1")]).await.0.as_deref(), Some("i-1"));
        assert_eq!(find(&[("ip-of-i-1", "")]).await.0.as_deref(), Some("ip-of-i-1"), "no providerID yet");
    }

    /// A kubelet that missed one heartbeat looks dead after a jump of the clock, and the rotation would take its node.
    #[tokio::test]
    async fn unready_node_shows_a_jump_of_the_clock_before_its_drain() {
        let cluster = FakeCluster::new(&Arc::default());
        let observer = cluster.observer();
        let member = |name: &str, ready: &str| {
            let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let node = json!({"metadata": {"name": name}, "status": {"conditions": [condition]}});
            NodeInstance {
                instance: crate::aws::samples::instance(name),
                node: Some(node_view(&serde_json::from_value(node).expect("a Node"))),
                lost_node: None,
                is_recorded_standby: false,
                reasons: Vec::new(),
                in_place: None,
            }
        };
        let members = [member("ready", "True"), member("silent", "Unknown")];
        assert!(drain_views(&observer, &members, "own").await.expect("views").is_empty());
        let start = Instant::now();
        observer.process_state.clock_jumps(|clocks| {
            clocks.observe(Timestamp::UNIX_EPOCH, start);
            clocks.observe(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(1), start);
        });
        let views = drain_views(&observer, &members, "own").await.expect("views");
        assert_eq!(views.keys().collect::<Vec<_>>(), ["silent"]);
        assert!(!views["silent"].is_clock_steady_for(SignedDuration::from_mins(5)));
    }

    /// A kubelet writes the annotation with a time years ahead, and the admin's image never reaches its node. Or the clock of
    /// the controller was ahead when it wrote it.
    #[tokio::test]
    async fn time_of_the_next_drain_is_within_the_delay_of_the_controller() {
        let cluster = FakeCluster::new(&Arc::default());
        let observer = cluster.observer();
        let delayed = |by: SignedDuration| {
            let node = json!({"metadata": {"name": "n", "annotations": {
                "instancemgr.keikoproj.io/drain-after": (observer.now + by).to_string(),
            }}});
            retry_drain_at(&observer, &node_view(&serde_json::from_value(node).expect("a Node"))).is_some()
        };
        assert!(delayed(SignedDuration::from_mins(5)) && delayed(SignedDuration::from_mins(6)));
        assert!(!delayed(SignedDuration::from_mins(7)));
        assert!(!delayed(SignedDuration::from_hours(24 * 365)));
    }

    #[tokio::test]
    async fn pods_count_without_a_node_unless_another_instance_has_the_name() {
        assert_eq!(find(&[]).await, (None, vec!["pod-on-ip-of-i-1".into(), "pod-on-i-1".into()]));
        assert_eq!(find(&[("ip-of-i-1", "i-2")]).await, (None, vec!["pod-on-i-1".into()]));
    }
}
