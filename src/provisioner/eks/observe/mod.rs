//! Looks: first what names mean, then what there is. No decision is made here.

mod crd_strategy;
mod previous_roles;
pub mod references;
pub mod remaining_resources;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::launch_configuration;
use super::launch_template::fingerprint::Fingerprint;
use super::names;
use super::observed::{State, Version, number};
use super::ownership;
use super::resolve::Resolved;
use super::rotation::outdated;
use crate::api::InstanceGroupStatus;
use crate::aws::{
    AwsError, Instance, InstanceProfile, InstanceState, LaunchTemplate, ScalingGroup, TemplateData, TemplatePin,
};
use crate::ownership::{not_tagged, owned};
use crate::provisioner::join;
use crate::provisioner::observe::{ObserveError, Observed, Observer, drains};
use crate::rotation::{Drains, NodeView};

/// What there is of one group.
pub async fn state(o: &Observer<'_>, resolved: &Resolved, status: &InstanceGroupStatus) -> Observed<State> {
    let aws = ObserveError::Aws;
    let names = &resolved.names;
    let (group, template) =
        tokio::try_join!(o.inventory.group(&names.group, o.max_age), o.inventory.template(&names.template, o.resync))
            .map_err(aws)?;
    let template = referred(o, resolved, group.as_ref(), template, status).await?;
    let leftover = if group.is_none() { leftover(o, resolved, status).await? } else { None };
    // What others put on a group is told when it is taken over, and only then.
    let unseen = group.is_some() && status.managed.is_none();
    let (profile, attached) = own_role(o, resolved, status, unseen).await?;
    let recorded = status.managed.as_ref().is_some_and(|m| !m.hooks.is_empty());
    let hooked = unseen || recorded || !resolved.wanted.hooks.is_empty();
    let hooks = match &group {
        Some(group) if hooked => Some(o.inventory.hooks(&group.name, o.resync).await.map_err(aws)?.to_vec()),
        _ => None,
    };
    let versions = versions(o, resolved, status, group.as_ref(), template.as_ref()).await?;
    let configuration = configuration(o, resolved, status, group.as_ref()).await?;
    let role_id = match &profile {
        Some(profile) => profile.role.as_ref().map(|role| role.id.as_str()),
        None => resolved.role_id.as_deref(),
    };
    let asked = join::Asked {
        key: &resolved.wanted.id.key(),
        way: resolved.way,
        entry: &resolved.auth,
        wanted: &resolved.access,
        own_role: resolved.own_role,
        role_id: role_id.filter(|id| !id.is_empty()),
    };
    let join = join::look(o, asked, status).await?;
    let mut state = State {
        versions,
        configuration,
        template,
        leftover,
        profile,
        role: None,
        attached,
        hooks,
        warm: None,
        refreshing: false,
        activities: Vec::new(),
        short_for: Default::default(),
        pool_waits: Default::default(),
        tagging_rests: o.memory.tagging_rests(&resolved.wanted.id.key(), o.resync, o.now),
        launched: BTreeMap::new(),
        join,
        former: Default::default(),
        nodes: nodes(o, group.as_ref()),
        fleet: o.nodes.fleet(),
        drains: Drains::new(),
        strategy: None,
        group,
    };
    proof(o, resolved, status, &mut state).await?;
    closer(o, resolved, status, &mut state).await?;
    // Without a scaling group as well, or what is on record of former roles would be forgotten when it is made again.
    state.former = previous_roles::look(o, resolved, &state, status).await?;
    Ok(state)
}

/// The role and the profile of the derived name with their tags, which the list of all profiles does not tell. They are
/// asked for where something of that name is there and neither the scaling group nor our own write proves whose it is, or
/// where the profile lacks the role.
async fn proof(o: &Observer<'_>, resolved: &Resolved, status: &InstanceGroupStatus, state: &mut State) -> Observed<()> {
    let name = &resolved.names.role;
    let refused = || o.memory.collided(&resolved.wanted.id.key());
    let found = state.profile.is_some() || !state.attached.is_empty() || refused();
    if !resolved.own_role || !found {
        return Ok(());
    }
    let holds = |profile: &InstanceProfile| profile.role.as_ref().is_some_and(|role| role.name == *name);
    if state.profile.as_ref().is_some_and(holds) && ownership::stranger(resolved, state, status).is_none() {
        return Ok(());
    }
    let iam = &o.inventory.aws().iam;
    state.role = iam.get_role(name).await.map_err(ObserveError::Aws)?;
    if state.profile.is_none() {
        return Ok(());
    }
    state.profile = iam.get_profile(name).await.map_err(ObserveError::Aws)?;
    let Some(profile) = &mut state.profile else { return Ok(()) };
    if holds(profile) {
        // IAM deletes no role that a profile holds: this answer lags, and whose the role is nobody knows yet.
        let role = state.role.clone().ok_or_else(|| lagging(name))?;
        profile.role = Some(role);
    }
    o.inventory.made_profile(profile.clone());
    Ok(())
}

fn lagging(role: &str) -> ObserveError {
    let message = format!("the instance profile {role} holds a role that IAM does not tell of yet");
    ObserveError::Aws(AwsError::unanswered("IAM", "GetRole", "NoSuchEntity", &message))
}

/// The profile of the group's own role, and which policies are attached to that: of those that are wanted or recorded, or
/// of all of them.
async fn own_role(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    all: bool,
) -> Observed<(Option<InstanceProfile>, Vec<String>)> {
    if !resolved.own_role {
        return Ok((None, Vec::new()));
    }
    let role = &resolved.names.role;
    let mut asked = resolved.policies.clone();
    asked.extend(status.managed.iter().flat_map(|m| m.policies.clone()));
    asked.sort();
    asked.dedup();
    let (profile, attached) =
        tokio::try_join!(o.inventory.profile(role, o.resync), o.inventory.attached(role, &asked, o.resync))
            .map_err(ObserveError::Aws)?;
    let attached = if all && profile.is_some() { all_policies(o, role, attached).await } else { attached };
    Ok((profile, attached))
}

/// Every policy on the role. Nothing depends on the others but what a person is told, so no answer is good enough.
async fn all_policies(o: &Observer<'_>, role: &str, asked: Vec<String>) -> Vec<String> {
    match o.inventory.aws().iam.attached_policies(role).await {
        Ok(all) => asked.iter().cloned().chain(all.into_iter().filter(|policy| !asked.contains(policy))).collect(),
        Err(_) => asked,
    }
}

/// The template that the group refers to when it is not the one of the derived name.
async fn referred(
    o: &Observer<'_>,
    resolved: &Resolved,
    group: Option<&ScalingGroup>,
    derived: Option<LaunchTemplate>,
    status: &InstanceGroupStatus,
) -> Observed<Option<LaunchTemplate>> {
    let Some(pin) = group.and_then(|g| g.template.as_ref()) else { return Ok(derived) };
    if derived.as_ref().is_some_and(|t| t.id == pin.id) {
        return Ok(derived);
    }
    // The original stamps the template with the time of its own first pass; the status has its name.
    let named = match status.active_launch_template_name.as_ref().filter(|name| !name.is_empty()) {
        Some(name) => o.inventory.template(name, o.resync).await.map_err(ObserveError::Aws)?,
        None => None,
    };
    if let Some(named) = named.filter(|t| t.id == pin.id) {
        return Ok(Some(named));
    }
    // Without a status, as after a restore, nothing has its name; the group refers to it.
    let found = o.inventory.aws().ec2.template_of_id(&pin.id).await.map_err(ObserveError::Aws)?;
    Ok(found.filter(|t| names::is_derived(&t.name, &resolved.names.template)).or(derived))
}

/// What an attempt under names that another group took first has left behind; the status still has its name.
async fn leftover(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
) -> Observed<Option<LaunchTemplate>> {
    let old = status.active_launch_template_name.as_ref().filter(|n| !n.is_empty() && **n != resolved.names.template);
    let Some(old) = old else { return Ok(None) };
    let found = o.inventory.template(old, o.resync).await.map_err(ObserveError::Aws)?;
    Ok(found.filter(|t| owned(&t.tags, &resolved.ownership)))
}

/// Only what something changed for is looked at closer.
async fn closer(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    state: &mut State,
) -> Observed<()> {
    let aws = ObserveError::Aws;
    let Some(group) = state.group.clone() else { return Ok(()) };
    let runs = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    let running: u32 = group.instances.iter().filter(runs).map(|i| i.weight).sum();
    let short = i64::from(running) < i64::from(group.desired);
    state.short_for = o.memory.short_for(&resolved.wanted.id.key(), short, o.now);
    if short && state.short_for.as_secs() > 0 {
        state.activities = o.inventory.activities(&group.name).await.map_err(aws)?.to_vec();
    }
    let warmed = status.template.as_ref().and_then(|t| t.warm_pool.clone());
    let ours = resolved.wanted.warm_pool.is_some() && group.warm_pool.is_some();
    if ours && super::warm_pool::marker(resolved, &group, o.now) != warmed {
        state.warm = Some(o.inventory.warm_pool(&group.name, o.max_age).await.map_err(aws)?.to_vec());
    }
    if resolved.wanted.strategy.rotate_at.is_some_and(|at| at <= o.now) {
        let warm = state.warm.iter().flatten().map(|w| &w.instance);
        let ids: Vec<_> = group.instances.iter().chain(warm).map(|i| i.id.clone()).collect();
        state.launched = o.inventory.launch_times(&ids).await.map_err(aws)?.into_iter().collect();
    }
    let waits = super::warm_pool::waits(resolved, state, status);
    state.pool_waits = o.memory.pool_waits(&resolved.wanted.id.key(), waits, o.now);
    let members = outdated::members(resolved, state, status);
    if members.iter().any(|m| !m.outdated.is_empty()) {
        state.refreshing = o.inventory.refresh_active(&group.name).await.map_err(aws)?;
    }
    state.drains = drains(o, &members, &resolved.wanted.id.uid).await?;
    state.strategy = crd_strategy::look(o, resolved, status, state, &members).await?;
    Ok(())
}

/// Versions: what the status remembers is enough until something differs.
async fn versions(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    group: Option<&ScalingGroup>,
    template: Option<&LaunchTemplate>,
) -> Observed<BTreeMap<i64, Version>> {
    let Some(template) = template else { return Ok(BTreeMap::new()) };
    let remembered = status.template.as_ref().filter(|t| t.id.as_deref() == Some(&template.id));
    let pins: Vec<&TemplatePin> = group
        .iter()
        .flat_map(|g| g.template.iter().chain(g.instances.iter().filter_map(|i| i.template.as_ref())))
        .collect();
    let mut numbers: Vec<i64> =
        pins.iter().filter(|p| p.id == template.id).filter_map(|p| number(p, Some(template))).collect();
    numbers.sort_unstable();
    numbers.dedup();
    if let Some(t) = remembered
        && let (Some(version), Some(hash)) = (t.version.as_ref().and_then(|v| v.parse().ok()), &t.hash)
        && *hash == resolved.fingerprint.hash
        && numbers.iter().all(|n| *n == version)
        && group.is_some()
        && t.adopted_version != t.version
    {
        let fingerprint = Some(Fingerprint { hash: hash.clone(), parts: resolved.fingerprint.parts.clone() });
        return Ok([(version, Version { fingerprint, data: None })].into());
    }
    // What is made and not pinned yet is the newest one; versions are read once.
    numbers.push(template.latest_version);
    numbers.dedup();
    let read = o.inventory.versions(&template.id, &numbers).await.map_err(ObserveError::Aws)?;
    let wanted = |v: &Arc<crate::aws::TemplateVersion>| {
        Fingerprint::read(v.description.as_deref()).is_some_and(|f| f.hash == resolved.fingerprint.hash)
    };
    let adopted = remembered
        .is_some_and(|t| t.adopted_version == t.version && t.adopted_hash.as_ref() == Some(&resolved.fingerprint.hash));
    let settled = read.iter().any(wanted) || (group.is_some() && adopted);
    let all = if settled { read } else { o.inventory.all_versions(&template.id).await.map_err(ObserveError::Aws)? };
    let version = |v: Arc<crate::aws::TemplateVersion>| {
        (v.number, Version { fingerprint: Fingerprint::read(v.description.as_deref()), data: Some(v.data.clone()) })
    };
    Ok(all.into_iter().map(version).collect())
}

/// What the group's launch configuration holds, or its last instances': asked when the group is taken over, while that
/// lacks tags, and when something else is wanted.
async fn configuration(
    o: &Observer<'_>,
    resolved: &Resolved,
    status: &InstanceGroupStatus,
    group: Option<&ScalingGroup>,
) -> Observed<Option<TemplateData>> {
    let Some(group) = group else { return Ok(None) };
    let old = || group.instances.iter().find_map(|i| i.configuration.as_deref());
    let Some(name) = launch_configuration::of(group).or_else(old) else { return Ok(None) };
    if launch_configuration::as_taken_over(resolved, status, name)
        && not_tagged(status).is_none()
        && resolved.wanted.strategy.rotate_at.is_none_or(|at| at > o.now)
    {
        return Ok(None);
    }
    let found = o.inventory.configuration(name).await.map_err(ObserveError::Aws)?;
    Ok(found.map(|c| c.data.clone()))
}

fn nodes(o: &Observer<'_>, group: Option<&ScalingGroup>) -> BTreeMap<String, NodeView> {
    let instances = group.iter().flat_map(|g| &g.instances);
    instances.filter_map(|i| Some((i.id.clone(), o.nodes.get(&i.id)?))).collect()
}
