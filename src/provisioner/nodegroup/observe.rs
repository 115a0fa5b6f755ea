//! Reads the group's node groups, their nodes and the update in progress from AWS. Makes no decisions.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::try_join_all;

use super::attribute_names;
use super::delete::has_recorded_group;
use super::desired;
use super::desired::DesiredSpec;
use super::drift::immutable_drift;
use super::health::is_failed;
use super::issues::{POD_EVICTION_FAILURE, SCALING_GROUP_NOT_FOUND};
use super::members::{read_members, reread_outgoing, unlisted_node};
use super::names;
use super::observed::{ObservedNodegroup, ObservedState, partition};
use super::ownership::{self, Owner, UnprovenNodegroup, to_tags};
use super::resolve::{self, ClusterNetwork, References, ResolvedGroup};
use super::sharing::classify_owner;
use crate::api::spec_error::SpecError;
use crate::api::{GroupId, InstanceGroupStatus};
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus};
use crate::aws::{AwsErrorKind, AwsResult};
use crate::ownership::{has_ownership_tags, ownership_tags};
use crate::plan::Drift;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::provisioner::{join_times, observe};

/// Policies that every node role needs (EKS User Guide, "Amazon EKS node IAM role"). The policy of the network plugin may be
/// attached to a separate role.
const REQUIRED_POLICIES: [&str; 1] = ["AmazonEKSWorkerNodePolicy"];
/// Policies that allow nodes to pull images; one of them is enough.
const IMAGE_PULL_POLICIES: [&str; 2] = ["AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly"];

/// Of how many nodes that EKS could not drain the pods are read.
const MAX_UNDRAINED_NODES: usize = 3;

/// Looks up subnets and security groups that the spec names. If a name does not resolve, the cache is refreshed once,
/// because the resource may be new.
pub(crate) async fn network(o: &Observer<'_>, desired: &DesiredSpec) -> ObserveResult<ClusterNetwork> {
    if !resolve::uses_names(desired) {
        return Ok(ClusterNetwork::default());
    }
    let Some(cluster) = o.inventory.cluster(&desired.cluster).await.map_err(ObserveError::Aws)? else {
        return Ok(ClusterNetwork { is_cluster_missing: true, ..ClusterNetwork::default() });
    };
    let Some(vpc) = &cluster.vpc else {
        return Ok(ClusterNetwork::default());
    };
    let (subnets, groups) =
        tokio::try_join!(o.inventory.subnets(vpc), o.inventory.security_groups(vpc)).map_err(ObserveError::Aws)?;
    let found = |subnets: &[_], groups: &[_]| ClusterNetwork {
        vpc: Some(vpc.clone()),
        subnets: subnets.to_vec(),
        security_groups: groups.to_vec(),
        ..ClusterNetwork::default()
    };
    let cached = found(&subnets, &groups);
    if resolve::resolve(desired.clone(), &cached).is_ok() {
        return Ok(cached);
    }
    let (subnets, groups) = o.inventory.refresh_network(vpc).await.map_err(ObserveError::Aws)?;
    Ok(found(&subnets, &groups))
}

/// Reads the observed state of a group.
pub(crate) async fn observed_state(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    lock: Option<&str>,
) -> ObserveResult<ObservedState> {
    let id = &resolved.desired.id;
    let mut known = candidates(o, resolved, status).await?;
    let mut state = ObservedState {
        cluster_health: o.node_index.cluster_health(),
        tag_retry_pending: o.process_state.is_tagging_in_backoff(&id.key(), o.shared_max_cache_age, o.now),
        ..ObservedState::default()
    };
    let mut at = 0;
    while let Some(name) = known.get(at).cloned() {
        observe_nodegroup(o, resolved, status, &name, &mut state).await?;
        at += 1;
        // Another owner may have the name of a node group that is about to be created.
        if at == known.len()
            && !state.lock_prevents_creation(lock)
            && partition(resolved, &state, status).current.is_none()
            && !known.contains(&resolved.name)
        {
            known.push(resolved.name.clone());
        }
    }
    if !o.is_forecast {
        state.unseen_names = unseen_names(o, resolved, status, &state);
    }
    let partitioned = partition(resolved, &state, status);
    let (current, has_outgoing) =
        (partitioned.current.map(|group| group.name().clone()), !partitioned.outgoing.is_empty());
    if let Some(current) = current.as_ref().filter(|_| has_outgoing && !o.is_forecast) {
        reread_outgoing(o, status, current, &mut state).await?;
    }
    if current.is_none() && !state.lock_prevents_creation(lock) {
        state.reference_errors = resolve::reference_errors(resolved, &references(o, resolved).await?);
    }
    let recorded_update = status.update_id.as_ref().filter(|_| status.update_of.is_some());
    let updated = partition(resolved, &state, status).updated().map(|group| group.name().clone());
    if let (Some(id), Some(name)) = (recorded_update, &updated) {
        state.update = o.inventory.aws().nodegroups.describe_update(name, id).await.map_err(ObserveError::Aws)?;
    }
    let cluster_version = cluster_version(o, resolved, partition(resolved, &state, status).updated()).await;
    state.cluster_version = cluster_version;
    state.eviction_blockers = eviction_blockers(o, &state).await;
    if has_outgoing {
        set_outdated_reasons(resolved, &mut state, current.as_ref());
    }
    state.nodegroups.iter_mut().for_each(|group| observe::complete_nodes(o, &mut group.members, &id.uid));
    let members: Vec<_> = state.nodegroups.iter().flat_map(|group| group.members.iter().cloned()).collect();
    state.drains = observe::drain_views(o, &members, &id.uid).await?;
    if o.is_forecast {
        return Ok(state);
    }
    let is_paused = state.waits_for_eks(current.is_some(), &id.uid);
    state.pause = o.process_state.track_pause(&id.key(), is_paused, o.now);
    let mut has_failed = false;
    if let Some(found) = state.nodegroups.iter().find(|group| Some(group.name()) == current.as_ref()) {
        let is_lost = has_lost_scaling_group(o, found).await?;
        has_failed = is_lost || found.has_status(NodegroupStatus::CreateFailed);
        state.has_lost_scaling_group = is_lost;
        state.unlisted_nodes.extend(unlisted_node(o, found));
    }
    state.creation_failed_for = o.process_state.track_failed_creation(&id.key(), has_failed, o.now);
    if state.nodegroups.iter().any(|group| !group.nodegroup.issues.is_empty()) {
        // They only add to a message, so that IAM need not answer.
        state.missing_policies = missing_policies(o, &resolved.desired.immutable.node_role).await.unwrap_or_default();
    }
    Ok(state)
}

/// The cluster's Kubernetes version, if the spec asks for another one than the nodes have. All groups share the answer. EKS
/// itself refuses what it does not accept, so that the cluster need not be readable.
async fn cluster_version(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    updated: Option<&ObservedNodegroup>,
) -> Option<String> {
    let (desired, found) = (&resolved.desired, &updated?.nodegroup);
    let differs = |wanted: String| wanted != found.version && !found.version.is_empty();
    if !desired.kubernetes_version(Some(&found.ami_type)).is_some_and(differs) {
        return None;
    }
    Some(o.inventory.cluster(&desired.cluster).await.ok()??.version)
}

/// Whether the scaling group of a node group was deleted, and no node is left that may run pods. EKS and Auto Scaling
/// must both say so, because an answer may lack a scaling group that exists. Detached instances keep their nodes.
async fn has_lost_scaling_group(o: &Observer<'_>, current: &ObservedNodegroup) -> ObserveResult<bool> {
    let found = &current.nodegroup;
    let is_reported = current.has_status(NodegroupStatus::Degraded)
        && found.issues.iter().any(|issue| issue.code == SCALING_GROUP_NOT_FOUND);
    if !is_reported || found.scaling_groups.is_empty() || o.node_index.may_have_nodes_of(&found.name.nodegroup) {
        return Ok(false);
    }
    for name in &found.scaling_groups {
        if o.inventory.group(name, Duration::ZERO).await.map_err(ObserveError::Aws)?.is_some() {
            return Ok(false);
        }
    }
    // The scaling group of the observation may have been there before.
    Ok(current.members.is_empty())
}

/// The recorded names that the spec dropped and that EKS does not show, although it may soon.
fn unseen_names(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &ObservedState,
) -> BTreeSet<String> {
    let Some(managed) = &status.managed else { return BTreeSet::new() };
    let dropped = attribute_names::recorded(managed).difference(&attribute_names::desired(resolved)).cloned().collect();
    let (key, shown) = (resolved.desired.id.key(), attribute_names::shown(state));
    o.process_state.observe_names(&key, shown, dropped, o.consistency_delay, o.now)
}

async fn observe_nodegroup(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    name: &NodegroupName,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let Some(found) = read_nodegroup(o, name).await? else { return Ok(()) };
    let owner = classify_owner(o, resolved, status, &found);
    if owner == Owner::Others && names::is_recorded(&found.name, &resolved.desired.id, status) {
        state.disowned.push(found.clone());
        let has_records = o.node_index.has_records_of(&resolved.desired.id.uid);
        // EKS drains the nodes of a node group that it deletes.
        if has_records && found.status != NodegroupStatus::Deleting {
            state.disowned_members.extend(read_members(o, found.clone(), o.max_cache_age).await?.members);
        }
    }
    match owner {
        Owner::Ours | Owner::Found => {
            let desired_sizes = (resolved.desired.min_size, resolved.desired.max_size);
            // Read fresh, so that a desired size that the autoscaler has just set is not overwritten.
            let max_age =
                if (found.sizes.min, found.sizes.max) == desired_sizes { o.max_cache_age } else { Duration::ZERO };
            let mut observed = read_members(o, found, max_age).await?;
            join_times::restore(status, observed.members.iter_mut().map(|member| &mut member.instance));
            state.nodegroups.push(observed);
        }
        Owner::Unproven(doubt) => {
            state.unproven_nodegroup = Some(UnprovenNodegroup { name: name.clone(), doubt });
        }
        Owner::Others if *name == resolved.name => state.name_conflict = Some(name.clone()),
        Owner::Others => {}
    }
    Ok(())
}

/// The node groups that may belong to this group: the recorded ones, or else those with a matching name. When a recorded
/// one does not exist, the status may be older than what exists, for example after etcd was restored. When the status
/// names a scaling group that none of them has, Keiko controller may have created another one.
pub(super) async fn candidates(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<Vec<NodegroupName>> {
    let cluster = resolved.desired.cluster.as_str();
    let recorded: Vec<_> = names::recorded_nodegroups(status).filter(|name| name.cluster == cluster).collect();
    let id = &resolved.desired.id;
    let (mut is_missing, mut has_active) = (false, false);
    for name in &recorded {
        match o.inventory.nodegroup(name, o.max_cache_age).await.map_err(ObserveError::Aws)? {
            Some(found) => has_active |= ownership::is_named_by(status, &found),
            None => is_missing = true,
        }
    }
    if !recorded.is_empty() {
        let known = if is_missing { with_derived(o, recorded, cluster, id).await? } else { recorded };
        return Ok(if has_active { known } else { with_keiko_nodegroup(known, id, status) });
    }
    // A list that is seconds old may lack the one to adopt, and a second node group would double its nodes.
    let all = o.inventory.nodegroup_names(cluster, Duration::ZERO).await.map_err(ObserveError::Aws)?;
    let names = all.iter().map(|name| NodegroupName::new(cluster, name));
    Ok(names.filter(|name| names::is_derived_name(name, id)).collect())
}

/// Adds the node group that Keiko controller names after the group, if the status names a scaling group that none of
/// these has. After a return to Keiko controller, it is that of the node group that Keiko controller created.
pub(super) async fn with_active_nodegroup(
    o: &Observer<'_>,
    names: Vec<NodegroupName>,
    id: &GroupId,
    status: &InstanceGroupStatus,
) -> ObserveResult<Vec<NodegroupName>> {
    let mut has_active = false;
    for name in &names {
        let found = o.inventory.nodegroup(name, o.max_cache_age).await.map_err(ObserveError::Aws)?;
        has_active |= found.is_some_and(|found| ownership::is_named_by(status, &found));
    }
    Ok(if has_active { names } else { with_keiko_nodegroup(names, id, status) })
}

/// See [`with_active_nodegroup`]; none of `names` has the scaling group that the status names.
fn with_keiko_nodegroup(
    mut names: Vec<NodegroupName>,
    id: &GroupId,
    status: &InstanceGroupStatus,
) -> Vec<NodegroupName> {
    if let Some(first) = names.first().filter(|_| has_recorded_group(status)) {
        let name = NodegroupName::new(first.cluster.as_str(), id.name.as_str());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The node groups `names`, and all of the cluster whose names only this group derives. Their tags show whether they
/// are its. The one of the plain name, which other groups derive too, is among them only if it has the group's tags.
pub(super) async fn with_derived(
    o: &Observer<'_>,
    mut names: Vec<NodegroupName>,
    cluster: &str,
    id: &GroupId,
) -> ObserveResult<Vec<NodegroupName>> {
    let all = o.inventory.nodegroup_names(cluster, o.max_cache_age).await.map_err(ObserveError::Aws)?;
    let derived = all.iter().map(|name| NodegroupName::new(cluster, name)).filter(|name| names::has_prefix(name, id));
    for name in derived {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let plain = NodegroupName::new(cluster, id.name.as_str());
    if all.contains(&plain.nodegroup) && !names.contains(&plain) {
        let tags = ownership_tags(cluster, id);
        let found = read_nodegroup(o, &plain).await?;
        let is_own = found.is_some_and(|found| has_ownership_tags(&ownership::to_tags(&found.tags), &tags));
        names.extend(is_own.then_some(plain));
    }
    Ok(names)
}

/// The name of a node group with the group's tags, whatever the status records.
pub(super) async fn tagged_nodegroup(o: &Observer<'_>, id: &GroupId, cluster: &str) -> ObserveResult<Option<String>> {
    let tags = ownership_tags(cluster, id);
    for name in with_derived(o, Vec::new(), cluster, id).await? {
        let found = read_nodegroup(o, &name).await?;
        if found.is_some_and(|found| has_ownership_tags(&to_tags(&found.tags), &tags)) {
            return Ok(Some(name.nodegroup));
        }
    }
    Ok(None)
}

async fn read_nodegroup(o: &Observer<'_>, name: &NodegroupName) -> ObserveResult<Option<Nodegroup>> {
    let found = o.inventory.nodegroup(name, o.max_cache_age).await.map_err(ObserveError::Aws)?;
    Ok(found.map(|found| (*found).clone()))
}

/// Sets the reasons why the nodes of outgoing node groups are outdated.
fn set_outdated_reasons(resolved: &ResolvedGroup, state: &mut ObservedState, current: Option<&NodegroupName>) {
    for group in state.nodegroups.iter_mut().filter(|group| Some(group.name()) != current) {
        let mut reasons = immutable_drift(resolved, &group.nodegroup);
        if reasons.is_empty() {
            let to = current.unwrap_or(&resolved.name);
            reasons.push(Drift::new("node group", &group.name().nodegroup, &to.nodegroup));
        }
        group.members.iter_mut().for_each(|member| member.reasons.clone_from(&reasons));
    }
}

/// Reads the resources that a new node group would refer to. Without permission to read the role, its check is skipped; EKS
/// checks it as well.
async fn references(o: &Observer<'_>, resolved: &ResolvedGroup) -> ObserveResult<References> {
    let shape = &resolved.desired.immutable;
    let cluster = o.inventory.cluster(&resolved.desired.cluster).await.map_err(ObserveError::Aws)?;
    let ids = shape.subnets.iter().chain(&shape.security_groups);
    let found = try_join_all(ids.map(|id| o.inventory.network_object(id))).await.map_err(ObserveError::Aws)?;
    let network_objects = found.into_iter().flatten().collect();
    let is_role_missing = match desired::role_name(&shape.node_role) {
        None => false,
        Some(name) => match o.inventory.aws().iam.get_role(name).await {
            Ok(found) => found.is_none(),
            Err(error) if error.kind == AwsErrorKind::Denied => false,
            Err(error) => return Err(ObserveError::Aws(error)),
        },
    };
    let unknown_types = unknown_types(o, &shape.instance_types).await?;
    Ok(References { cluster, network_objects, is_role_missing, unknown_types })
}

/// The instance types that the region does not have. What may not be read is left to EKS.
async fn unknown_types(o: &Observer<'_>, names: &[String]) -> ObserveResult<Vec<String>> {
    let mut unknown = Vec::new();
    for name in names {
        match o.inventory.instance_type(name).await {
            Ok(found) => unknown.extend(found.is_none().then(|| name.clone())),
            Err(error) if error.kind == AwsErrorKind::Denied => {}
            Err(error) => return Err(ObserveError::Aws(error)),
        }
    }
    Ok(unknown)
}

/// The errors in what a new node group would refer to, which are reported beside errors of its fields. What cannot be
/// read is not reported: it must not hide the others.
pub(super) async fn errors_in_references(o: &Observer<'_>, resolved: &ResolvedGroup) -> Vec<SpecError> {
    match references(o, resolved).await {
        Ok(found) => resolve::reference_errors(resolved, &found),
        Err(_) => Vec::new(),
    }
}

/// What blocks the pods on the nodes that EKS could not drain. It only adds to a message, so that the API server need not
/// answer.
async fn eviction_blockers(o: &Observer<'_>, state: &ObservedState) -> Vec<String> {
    let errors = state.update.iter().filter(|update| is_failed(update)).flat_map(|update| &update.errors);
    let undrained: Vec<_> =
        errors.filter(|error| error.code == POD_EVICTION_FAILURE).flat_map(|error| &error.resources).collect();
    let members = state.nodegroups.iter().flat_map(|group| &group.members);
    let nodes = members.filter_map(|member| Some((&member.instance.id, &member.node.as_ref()?.name)));
    let nodes = nodes.filter(|(id, name)| undrained.contains(id) || undrained.contains(name));
    let mut found = Vec::new();
    for (_, node) in nodes.take(MAX_UNDRAINED_NODES) {
        let blockers = o.kube.eviction_blockers(node).await.unwrap_or_default();
        found.extend(blockers.iter().map(|blocker| format!("pod {} on {node}: {}", blocker.pod, blocker.describe())));
    }
    found
}

/// The required policies that are not attached to a role. The role may grant the same permissions by other policies.
async fn missing_policies(o: &Observer<'_>, role_arn: &str) -> AwsResult<Vec<String>> {
    let Some(role) = desired::role_name(role_arn) else { return Ok(Vec::new()) };
    let partition = role_arn.split(':').nth(1).unwrap_or("aws");
    let arn = |name: &str| format!("arn:{partition}:iam::aws:policy/{name}");
    let queried: Vec<_> = REQUIRED_POLICIES.iter().chain(&IMAGE_PULL_POLICIES).map(|name| arn(name)).collect();
    let attached = o.inventory.attached_policies(role, &queried, o.shared_max_cache_age).await?;
    let has = |name: &&str| attached.contains(&arn(name));
    let mut missing: Vec<_> =
        REQUIRED_POLICIES.iter().filter(|name| !has(name)).map(|name| (*name).to_owned()).collect();
    if !IMAGE_PULL_POLICIES.iter().any(has) {
        missing.push(IMAGE_PULL_POLICIES[0].to_owned());
    }
    Ok(missing)
}
