//! Looks: the node groups by the names that the status remembers, their nodes, and the update under way. No decision is
//! made here.

use std::time::Duration;

use futures::future::try_join_all;

use super::desired;
use super::desired::Wanted;
use super::names;
use super::observed;
use super::observed::{Group, State, Whose, split, whose};
use super::resolve::{self, Environment, Network, Resolved};
use crate::api::InstanceGroupStatus;
use crate::aws::nodegroup::{Nodegroup, NodegroupName, NodegroupStatus};
use crate::aws::{AwsErrorKind, AwsResult};
use crate::plan::Drift;
use crate::provisioner::observe;
use crate::provisioner::observe::{ObserveError, Observed, Observer};
use crate::rotation::Member;

/// What every node needs: EKS user guide, "Amazon EKS node IAM role". The network plugin's may be on its own role instead.
const NEEDED: [&str; 1] = ["AmazonEKSWorkerNodePolicy"];
/// Either of them lets nodes pull images.
const PULL: [&str; 2] = ["AmazonEC2ContainerRegistryPullOnly", "AmazonEC2ContainerRegistryReadOnly"];

/// What names mean. A name that does not resolve is looked for again, for it may have been given since.
pub async fn network(o: &Observer<'_>, wanted: &Wanted) -> Observed<Network> {
    if !resolve::by_name(wanted) {
        return Ok(Network::default());
    }
    let Some(cluster) = o.inventory.cluster(&wanted.cluster).await.map_err(ObserveError::Aws)? else {
        return Ok(Network { no_cluster: true, ..Network::default() });
    };
    let (subnets, groups) =
        tokio::try_join!(o.inventory.subnets(&cluster.vpc), o.inventory.security_groups(&cluster.vpc))
            .map_err(ObserveError::Aws)?;
    let found = Network { subnets: subnets.to_vec(), security_groups: groups.to_vec(), no_cluster: false };
    if resolve::resolve(wanted.clone(), &found).is_ok() {
        return Ok(found);
    }
    let (subnets, groups) = o.inventory.refresh_network(&cluster.vpc).await.map_err(ObserveError::Aws)?;
    Ok(Network { subnets: subnets.to_vec(), security_groups: groups.to_vec(), no_cluster: false })
}

/// What there is of one InstanceGroup.
pub async fn state(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    lock: Option<&str>,
) -> Observed<State> {
    let id = &resolved.wanted.id;
    let mut known = candidates(o, resolved, status).await?;
    let mut state = State {
        fleet: o.nodes.fleet(),
        tagging_rests: o.memory.tagging_rests(&id.key(), o.resync, o.now),
        ..State::default()
    };
    let mut at = 0;
    while let Some(name) = known.get(at).cloned() {
        look(o, resolved, status, &name, &mut state).await?;
        at += 1;
        // Somebody may have what a new one would be called.
        if at == known.len()
            && !state.holds(lock)
            && split(resolved, &state, status).current.is_none()
            && !known.contains(&resolved.name)
        {
            known.push(resolved.name.clone());
        }
    }
    let halves = split(resolved, &state, status);
    let (current, alone) = (halves.current.map(|group| group.name().clone()), halves.others.is_empty());
    if current.is_none() && !state.holds(lock) {
        state.problems = resolve::problems(resolved, &environment(o, resolved).await?);
    }
    let followed = status.update_id.as_ref().filter(|_| status.update_of.is_some());
    if let (Some(id), Some(name)) = (followed, &current) {
        state.update = o.inventory.aws().nodegroups.describe_update(name, id).await.map_err(ObserveError::Aws)?;
    }
    if !alone {
        explain(resolved, &mut state, current.as_ref());
    }
    let members: Vec<_> = state.groups.iter().flat_map(|group| group.members.iter().cloned()).collect();
    state.drains = observe::drains(o, &members, &id.uid).await?;
    if state.groups.iter().any(|group| !group.nodegroup.issues.is_empty()) {
        state.lacking = lacking(o, &resolved.wanted.shape.node_role).await.map_err(ObserveError::Aws)?;
    }
    Ok(state)
}

/// Whose a node group is. One without tags that the status of another InstanceGroup names, and this one's does not, is
/// the other's, though both are called alike and their nodes take on one role.
pub(super) fn judged(o: &Observer<'_>, resolved: &Resolved, status: &InstanceGroupStatus, found: &Nodegroup) -> Whose {
    let told = status.active_scaling_group_name.as_deref().is_some_and(|name| !name.is_empty());
    let key = resolved.wanted.id.key();
    match whose(resolved, status, found) {
        judged @ (Whose::Found | Whose::Older) if !told => {
            let named = o.groups.with_scaling_group(&found.scaling_groups.join(","));
            if named.iter().any(|other| *other != key) { Whose::Others } else { judged }
        }
        judged => judged,
    }
}

async fn look(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    name: &NodegroupName,
    state: &mut State,
) -> Observed<()> {
    let Some(found) = nodegroup(o, name).await? else { return Ok(()) };
    match judged(o, resolved, status, &found) {
        Whose::Ours | Whose::Found => {
            let wanted = (resolved.wanted.min, resolved.wanted.max);
            // A desired size that the autoscaler has just written must not be overwritten with the one before it.
            let max_age = if (found.sizes.min, found.sizes.max) == wanted { o.max_age } else { Duration::ZERO };
            state.groups.push(group(o, found, max_age).await?);
        }
        Whose::Older => state.older = Some(name.clone()),
        Whose::Others if *name == resolved.name => state.taken = Some(name.clone()),
        Whose::Others => {}
    }
    Ok(())
}

/// The names that may be this group's: those on record, or without a record those that read like it.
pub(super) async fn candidates(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
) -> Observed<Vec<NodegroupName>> {
    let cluster = resolved.wanted.cluster.as_str();
    let recorded: Vec<_> = recorded(status).filter(|name| name.cluster == cluster).collect();
    if !recorded.is_empty() {
        return Ok(recorded);
    }
    let id = &resolved.wanted.id;
    let prefix = format!("{}-", names::stem(cluster, id));
    let all = o.inventory.nodegroup_names(cluster, o.max_age).await.map_err(ObserveError::Aws)?;
    let ours = all.iter().filter(|name| **name == id.name || name.starts_with(&prefix));
    Ok(ours.map(|name| NodegroupName::new(cluster, name)).collect())
}

/// The node groups that the status remembers, in the order of their making.
pub fn recorded(status: &InstanceGroupStatus) -> impl Iterator<Item = NodegroupName> + '_ {
    status.managed.iter().flat_map(|managed| &managed.nodegroups).filter_map(|text| NodegroupName::parse(text))
}

async fn nodegroup(o: &Observer<'_>, name: &NodegroupName) -> Observed<Option<Nodegroup>> {
    let found = o.inventory.nodegroup(name, o.max_age).await.map_err(ObserveError::Aws)?;
    Ok(found.map(|found| (*found).clone()))
}

/// A node group with its nodes, read through its scaling groups.
async fn group(o: &Observer<'_>, nodegroup: Nodegroup, max_age: Duration) -> Observed<Group> {
    let mut scaling = Vec::new();
    for name in &nodegroup.scaling_groups {
        scaling.extend(o.inventory.group(name, max_age).await.map_err(ObserveError::Aws)?);
    }
    let instances = scaling.iter().flat_map(|group| group.instances.clone());
    let members =
        instances.map(|instance| Member { node: o.nodes.get(&instance.id), outdated: Vec::new(), instance }).collect();
    Ok(Group { nodegroup, scaling, members })
}

/// Says of every node of the others why it has to go.
fn explain(resolved: &Resolved, state: &mut State, current: Option<&NodegroupName>) {
    for group in state.groups.iter_mut().filter(|group| Some(group.name()) != current) {
        let mut because = observed::differences(resolved, &group.nodegroup);
        if because.is_empty() {
            let to = current.unwrap_or(&resolved.name);
            because.push(Drift::new("node group", &group.name().nodegroup, &to.nodegroup));
        }
        group.members.iter_mut().for_each(|member| member.outdated.clone_from(&because));
    }
}

/// What a new node group would refer to. A right to look that is missing stops nothing: EKS looks as well.
async fn environment(o: &Observer<'_>, resolved: &Resolved) -> Observed<Environment> {
    let shape = &resolved.wanted.shape;
    let cluster = o.inventory.cluster(&resolved.wanted.cluster).await.map_err(ObserveError::Aws)?;
    let ids = shape.subnets.iter().chain(&shape.security_groups);
    let found = try_join_all(ids.map(|id| o.inventory.network_object(id))).await.map_err(ObserveError::Aws)?;
    let network = found.into_iter().flatten().collect();
    let name = desired::role_name(&shape.node_role).unwrap_or_default();
    let role_missing = match o.inventory.aws().iam.get_role(name).await {
        Ok(found) => found.is_none(),
        Err(error) if error.kind == AwsErrorKind::Denied => false,
        Err(error) => return Err(ObserveError::Aws(error)),
    };
    Ok(Environment { cluster, network, role_missing })
}

/// The policies that nodes need and that a role lacks; a role may grant the same by policies of its owner's.
async fn lacking(o: &Observer<'_>, role_arn: &str) -> AwsResult<Vec<String>> {
    let Some(role) = desired::role_name(role_arn) else { return Ok(Vec::new()) };
    let partition = role_arn.split(':').nth(1).unwrap_or("aws");
    let arn = |name: &str| format!("arn:{partition}:iam::aws:policy/{name}");
    let asked: Vec<_> = NEEDED.iter().chain(&PULL).map(|name| arn(name)).collect();
    let attached = o.inventory.attached(role, &asked, o.resync).await?;
    let has = |name: &&str| attached.contains(&arn(name));
    let mut lacking: Vec<_> = NEEDED.iter().filter(|name| !has(name)).map(|name| (*name).to_owned()).collect();
    if !PULL.iter().any(has) {
        lacking.push(PULL[0].to_owned());
    }
    Ok(lacking)
}

/// Whether EKS takes no change at this moment.
pub(super) fn busy(status: NodegroupStatus) -> bool {
    match status {
        NodegroupStatus::Creating | NodegroupStatus::Updating | NodegroupStatus::Deleting => true,
        NodegroupStatus::Active
        | NodegroupStatus::CreateFailed
        | NodegroupStatus::DeleteFailed
        | NodegroupStatus::Degraded
        | NodegroupStatus::Other => false,
    }
}
