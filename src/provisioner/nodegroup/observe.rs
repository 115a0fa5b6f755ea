//! Looks: the node groups by the names that the status remembers, their nodes, and the update under way. No decision is
//! made here.

use std::time::Duration;

use futures::future::try_join_all;

use super::desired;
use super::desired::DesiredSpec;
use super::names;
use super::observed;
use super::observed::{ObservedNodegroup, ObservedState, Owner, owner_of, partition};
use super::resolve::{self, ClusterNetwork, References, ResolvedGroup};
use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus};
use crate::aws::{AwsErrorKind, AwsResult};
use crate::plan::Drift;
use crate::provisioner::observe;
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer};
use crate::rotation::NodeInstance;

/// What every node needs: EKS user guide, "Amazon EKS node IAM role". The network plugin's may be on its own role instead.
const REQUIRED_POLICIES: [&str; 1] = ["AmazonEKSWorkerNodePolicy"];
/// Either of them lets nodes pull images.
const IMAGE_PULL_POLICIES: [&str; 2] = ["AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly"];

/// What names mean. A name that does not resolve is looked for again, for it may have been given since.
pub async fn network(o: &Observer<'_>, wanted: &DesiredSpec) -> ObserveResult<ClusterNetwork> {
    if !resolve::uses_names(wanted) {
        return Ok(ClusterNetwork::default());
    }
    let Some(cluster) = o.inventory.cluster(&wanted.cluster).await.map_err(ObserveError::Aws)? else {
        return Ok(ClusterNetwork { is_cluster_missing: true, ..ClusterNetwork::default() });
    };
    let (subnets, groups) =
        tokio::try_join!(o.inventory.subnets(&cluster.vpc), o.inventory.security_groups(&cluster.vpc))
            .map_err(ObserveError::Aws)?;
    let found =
        ClusterNetwork { subnets: subnets.to_vec(), security_groups: groups.to_vec(), is_cluster_missing: false };
    if resolve::resolve(wanted.clone(), &found).is_ok() {
        return Ok(found);
    }
    let (subnets, groups) = o.inventory.refresh_network(&cluster.vpc).await.map_err(ObserveError::Aws)?;
    Ok(ClusterNetwork { subnets: subnets.to_vec(), security_groups: groups.to_vec(), is_cluster_missing: false })
}

/// What there is of one InstanceGroup.
pub async fn observed_state(
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
        // Somebody may have what a new one would be called.
        if at == known.len()
            && !state.lock_prevents_creation(lock)
            && partition(resolved, &state, status).current.is_none()
            && !known.contains(&resolved.name)
        {
            known.push(resolved.name.clone());
        }
    }
    let halves = partition(resolved, &state, status);
    let (current, alone) = (halves.current.map(|group| group.name().clone()), halves.outgoing.is_empty());
    if current.is_none() && !state.lock_prevents_creation(lock) {
        state.reference_errors = resolve::reference_errors(resolved, &references(o, resolved).await?);
    }
    let followed = status.update_id.as_ref().filter(|_| status.update_of.is_some());
    if let (Some(id), Some(name)) = (followed, &current) {
        state.update = o.inventory.aws().nodegroups.describe_update(name, id).await.map_err(ObserveError::Aws)?;
    }
    if !alone {
        set_outdated_reasons(resolved, &mut state, current.as_ref());
    }
    let members: Vec<_> = state.nodegroups.iter().flat_map(|group| group.members.iter().cloned()).collect();
    state.drains = observe::drain_views(o, &members, &id.uid).await?;
    if state.nodegroups.iter().any(|group| !group.nodegroup.issues.is_empty()) {
        state.missing_policies =
            missing_policies(o, &resolved.desired.immutable.node_role).await.map_err(ObserveError::Aws)?;
    }
    Ok(state)
}

/// Whose a node group is. One without tags that the status of another InstanceGroup names, and this one's does not, is
/// the other's, though both are called alike and their nodes take on one role.
pub(super) fn classify_owner(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    found: &Nodegroup,
) -> Owner {
    let told = status.active_scaling_group_name.as_deref().is_some_and(|name| !name.is_empty());
    let key = resolved.desired.id.key();
    match owner_of(resolved, status, found) {
        judged @ (Owner::Found | Owner::Older) if !told => {
            let named = o.group_index.with_scaling_group(&found.scaling_groups.join(","));
            if named.iter().any(|other| *other != key) { Owner::Others } else { judged }
        }
        judged => judged,
    }
}

async fn observe_nodegroup(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    name: &NodegroupName,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let Some(found) = read_nodegroup(o, name).await? else { return Ok(()) };
    match classify_owner(o, resolved, status, &found) {
        Owner::Ours | Owner::Found => {
            let wanted = (resolved.desired.min_size, resolved.desired.max_size);
            // A desired size that the autoscaler has just written must not be overwritten with the one before it.
            let max_age = if (found.sizes.min, found.sizes.max) == wanted { o.max_cache_age } else { Duration::ZERO };
            state.nodegroups.push(read_members(o, found, max_age).await?);
        }
        Owner::Older => state.predating_nodegroup = Some(name.clone()),
        Owner::Others if *name == resolved.name => state.name_conflict = Some(name.clone()),
        Owner::Others => {}
    }
    Ok(())
}

/// The names that may be this group's: those on record, or without a record those that read like it.
pub(super) async fn candidates(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<Vec<NodegroupName>> {
    let cluster = resolved.desired.cluster.as_str();
    let recorded: Vec<_> = recorded_nodegroups(status).filter(|name| name.cluster == cluster).collect();
    if !recorded.is_empty() {
        return Ok(recorded);
    }
    let id = &resolved.desired.id;
    let prefix = format!("{}-", names::name_prefix(cluster, id));
    let all = o.inventory.nodegroup_names(cluster, o.max_cache_age).await.map_err(ObserveError::Aws)?;
    let ours = all.iter().filter(|name| **name == id.name || name.starts_with(&prefix));
    Ok(ours.map(|name| NodegroupName::new(cluster, name)).collect())
}

/// The node groups that the status remembers, in the order of their making.
pub fn recorded_nodegroups(status: &InstanceGroupStatus) -> impl Iterator<Item = NodegroupName> + '_ {
    status.managed.iter().flat_map(|managed| &managed.nodegroups).filter_map(|text| NodegroupName::parse(text))
}

async fn read_nodegroup(o: &Observer<'_>, name: &NodegroupName) -> ObserveResult<Option<Nodegroup>> {
    let found = o.inventory.nodegroup(name, o.max_cache_age).await.map_err(ObserveError::Aws)?;
    Ok(found.map(|found| (*found).clone()))
}

/// A node group with its nodes, read through its scaling groups.
async fn read_members(o: &Observer<'_>, nodegroup: Nodegroup, max_age: Duration) -> ObserveResult<ObservedNodegroup> {
    let mut scaling_groups = Vec::new();
    for name in &nodegroup.scaling_groups {
        scaling_groups.extend(o.inventory.group(name, max_age).await.map_err(ObserveError::Aws)?);
    }
    let instances = scaling_groups.iter().flat_map(|group| group.instances.clone());
    let members = instances
        .map(|instance| NodeInstance { node: o.node_index.get(&instance.id), reasons: Vec::new(), instance })
        .collect();
    Ok(ObservedNodegroup { nodegroup, scaling_groups, members })
}

/// Says of every node of the others why it has to go.
fn set_outdated_reasons(resolved: &ResolvedGroup, state: &mut ObservedState, current: Option<&NodegroupName>) {
    for group in state.nodegroups.iter_mut().filter(|group| Some(group.name()) != current) {
        let mut because = observed::immutable_drift(resolved, &group.nodegroup);
        if because.is_empty() {
            let to = current.unwrap_or(&resolved.name);
            because.push(Drift::new("node group", &group.name().nodegroup, &to.nodegroup));
        }
        group.members.iter_mut().for_each(|member| member.reasons.clone_from(&because));
    }
}

/// What a new node group would refer to. A right to look that is missing stops nothing: EKS looks as well.
async fn references(o: &Observer<'_>, resolved: &ResolvedGroup) -> ObserveResult<References> {
    let shape = &resolved.desired.immutable;
    let cluster = o.inventory.cluster(&resolved.desired.cluster).await.map_err(ObserveError::Aws)?;
    let ids = shape.subnets.iter().chain(&shape.security_groups);
    let found = try_join_all(ids.map(|id| o.inventory.network_object(id))).await.map_err(ObserveError::Aws)?;
    let network_objects = found.into_iter().flatten().collect();
    let name = desired::role_name(&shape.node_role).unwrap_or_default();
    let is_role_missing = match o.inventory.aws().iam.get_role(name).await {
        Ok(found) => found.is_none(),
        Err(error) if error.kind == AwsErrorKind::Denied => false,
        Err(error) => return Err(ObserveError::Aws(error)),
    };
    Ok(References { cluster, network_objects, is_role_missing })
}

/// The policies that nodes need and that a role lacks; a role may grant the same by policies of its owner's.
async fn missing_policies(o: &Observer<'_>, role_arn: &str) -> AwsResult<Vec<String>> {
    let Some(role) = desired::role_name(role_arn) else { return Ok(Vec::new()) };
    let partition = role_arn.split(':').nth(1).unwrap_or("aws");
    let arn = |name: &str| format!("arn:{partition}:iam::aws:policy/{name}");
    let asked: Vec<_> = REQUIRED_POLICIES.iter().chain(&IMAGE_PULL_POLICIES).map(|name| arn(name)).collect();
    let attached = o.inventory.attached_policies(role, &asked, o.shared_max_cache_age).await?;
    let has = |name: &&str| attached.contains(&arn(name));
    let mut lacking: Vec<_> =
        REQUIRED_POLICIES.iter().filter(|name| !has(name)).map(|name| (*name).to_owned()).collect();
    if !IMAGE_PULL_POLICIES.iter().any(has) {
        lacking.push(IMAGE_PULL_POLICIES[0].to_owned());
    }
    Ok(lacking)
}

/// Whether EKS takes no change at this moment.
pub(super) fn is_busy(status: NodegroupStatus) -> bool {
    match status {
        NodegroupStatus::Creating | NodegroupStatus::Updating | NodegroupStatus::Deleting => true,
        NodegroupStatus::Active
        | NodegroupStatus::CreateFailed
        | NodegroupStatus::DeleteFailed
        | NodegroupStatus::Degraded
        | NodegroupStatus::Other => false,
    }
}
