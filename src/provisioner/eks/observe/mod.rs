//! Reads the observed state of a group from AWS and Kubernetes. It makes no decisions.

mod crd_strategy;
mod previous_roles;
pub(crate) mod references;
pub mod remaining_resources;
mod replacements;
pub(crate) mod template_users;
#[cfg(test)]
mod tests;
pub(crate) mod unrecorded;
mod unused_role;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::attribute_names;
use super::launch_configuration;
use super::launch_template::drift;
use super::launch_template::fingerprint::Fingerprint;
use super::launch_template::pin_state::{PinState, pin_state};
use super::launch_template::tags;
use super::names;
use super::observed::{ObservedState, ObservedVersion, version_number};
use super::ownership;
use super::resolve::ResolvedGroup;
use super::role::region::claim_of;
use super::rotation::outdated;
use super::scaling_group::lost_instances::{self, LostInstance, explained};
use super::scaling_group::{hooks, subnets};
use crate::api::InstanceGroupStatus;
use crate::api::names::condition;
use crate::aws::{
    AwsError, Instance, InstanceProfile, InstanceState, LaunchTemplate, LifecycleHook, ScalingActivity, ScalingGroup,
    TemplateData, TemplatePin,
};
use crate::ownership::{has_ownership_tags, is_tagging_denied};
use crate::provisioner::observe::{ObserveError, ObserveResult, Observer, drain_views};
use crate::provisioner::rejected_fields::Part;
use crate::provisioner::role_region::RegionClaim;
use crate::provisioner::{join, join_times};
use crate::rotation::Drains;

/// Reads the observed state of one group.
///
/// # Errors
/// A read from AWS or from the API server failed.
pub(crate) async fn observe(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<ObservedState> {
    let aws = ObserveError::Aws;
    let names = &resolved.names;
    let (mut scaling_group, template) = tokio::try_join!(
        o.inventory.group(&names.scaling_group, o.max_cache_age),
        o.inventory.template(&names.template, o.shared_max_cache_age)
    )
    .map_err(aws)?;
    join_times::restore(status, scaling_group.iter_mut().flat_map(|group| &mut group.instances));
    let template = template_in_use(o, resolved, scaling_group.as_ref(), template, status).await?;
    let orphaned_template = if scaling_group.is_none() { orphaned_template(o, resolved, status).await? } else { None };
    // Attributes that other controllers or users set are read and reported only at the adoption.
    let is_first_observation = scaling_group.is_some() && status.managed.is_none();
    let (instance_profile, attached_policies) =
        own_profile_and_policies(o, resolved, status, is_first_observation).await?;
    let lifecycle_hooks = match &scaling_group {
        Some(scaling_group) => lifecycle_hooks(o, resolved, status, scaling_group).await?,
        None => None,
    };
    let versions = versions(o, resolved, status, scaling_group.as_ref(), template.as_ref()).await?;
    let configuration = launch_configuration(o, resolved, status, scaling_group.as_ref()).await?;
    let own_role = instance_profile.as_ref().and_then(|profile| profile.role.as_ref());
    let role_id = match &instance_profile {
        Some(_) => own_role.map(|role| role.id.as_str()),
        None => resolved.role_id.as_deref(),
    };
    let query = join::JoinQuery {
        group_key: &resolved.desired.id.key(),
        join_method: resolved.join_method,
        aws_auth_entry: &resolved.aws_auth_entry,
        access_entry: &resolved.access_entry,
        own_role: resolved.own_role,
        role_id: role_id.filter(|id| !id.is_empty()),
        role_created_at: own_role.and_then(|role| role.created),
    };
    let join = join::observe(o, query, status).await?;
    let mut state = ObservedState {
        versions,
        rejected_pin: o.inventory.rejected_pin(&resolved.desired.id.key()),
        launch_configuration: configuration,
        template,
        orphaned_template,
        template_users: BTreeMap::new(),
        instance_profile,
        role: None,
        attached_policies,
        lifecycle_hooks,
        unrecorded_policies: Vec::new(),
        unseen_names: BTreeSet::new(),
        warm_instances: None,
        instance_refresh_active: false,
        activities: Vec::new(),
        failed_launch: None,
        failed_replacements: Vec::new(),
        lost_instances: Vec::new(),
        is_cause_of_loss_expected: false,
        shortage_duration: Default::default(),
        warm_pool_wait: Default::default(),
        tag_retry_pending: o.process_state.is_tagging_in_backoff(
            &resolved.desired.id.key(),
            o.shared_max_cache_age,
            o.now,
        ),
        launch_times: BTreeMap::new(),
        instance_subnets: BTreeMap::new(),
        join,
        previous_roles: Default::default(),
        unused_role: None,
        nodes: by_instance(scaling_group.as_ref(), |id| o.node_index.get(id)),
        lost_nodes: by_instance(scaling_group.as_ref(), |id| o.node_index.lost_node(id)),
        cluster_health: o.node_index.cluster_health(),
        drains: Drains::new(),
        strategy_state: None,
        scaling_group,
    };
    state.nodes.iter_mut().for_each(|(instance, node)| o.complete_node(node, instance, &resolved.desired.id.uid));
    verify_role_ownership(o, resolved, status, &mut state).await?;
    observe_outdated(o, resolved, status, &mut state).await?;
    if o.is_forecast {
        return Ok(state);
    }
    observe_progress(o, resolved, status, &mut state).await?;
    if is_first_observation && !resolved.own_role {
        state.unrecorded_policies = unused_role::unrecorded_policies(o, resolved).await?;
    }
    state.unseen_names = unseen_names(o, resolved, status, &state);
    // Also without a scaling group: otherwise the record of previous roles would be lost when the group is created again.
    state.previous_roles = previous_roles::observe(o, resolved, &state, status).await?;
    state.unused_role = unused_role::observe(o, resolved, &state, status).await?;
    Ok(state)
}

/// Reads role and profile of the derived name with their tags, which the list of all profiles does not contain. They
/// are read when one of them exists and nothing else proves its owner, or when the profile does not hold the role. They
/// are also read until the status records the region in their tags. They are read as well when the template lacks its
/// tags, or a version is about to be created: their tags may have been removed, too.
async fn verify_role_ownership(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let name = &resolved.names.role;
    let key = resolved.desired.id.key();
    let has_name_conflict = || o.process_state.has_name_conflict(&key, &resolved.names.all());
    let found = state.instance_profile.is_some() || !state.attached_policies.is_empty() || has_name_conflict();
    if !resolved.own_role || !found {
        return Ok(());
    }
    let has_role = |profile: &InstanceProfile| profile.role.as_ref().is_some_and(|role| role.name == *name);
    let recorded_region = status.managed.as_ref().and_then(|managed| managed.role_region.as_ref());
    let is_region_known = recorded_region == Some(&resolved.region) || o.process_state.is_role_region_checked(&key);
    let may_lack_tags = state.scaling_group.as_ref().is_some_and(|group| lacks_tags(group, resolved, state, status));
    if state.instance_profile.as_ref().is_some_and(has_role)
        && ownership::foreign_resource(resolved, state, status).is_none()
        && (o.is_forecast || is_region_known && !may_lack_tags || state.scaling_group.is_none())
    {
        return Ok(());
    }
    let iam = &o.inventory.aws().iam;
    state.role = iam.get_role(name).await.map_err(ObserveError::Aws)?;
    if state.instance_profile.is_none() {
        return Ok(());
    }
    state.instance_profile = iam.get_profile(name).await.map_err(ObserveError::Aws)?;
    let Some(profile) = &mut state.instance_profile else { return Ok(()) };
    if has_role(profile) {
        // IAM does not delete a role that a profile holds. The response is stale, and the role's owner is not known yet.
        let role = state.role.clone().ok_or_else(|| role_not_propagated(name))?;
        profile.role = Some(role);
    }
    o.inventory.upsert_profile(profile.clone());
    // Neither is read again for the tag in the steady state.
    let is_claimed = matches!(claim_of(resolved, state), Some(RegionClaim::Tagged | RegionClaim::Claimable));
    if !is_claimed || is_tagging_denied(status) || state.tag_retry_pending {
        o.process_state.set_role_region_checked(&key);
    }
    Ok(())
}

/// Whether the launch template lacks its ownership tags, or a version is about to be created.
fn lacks_tags(
    group: &ScalingGroup,
    resolved: &ResolvedGroup,
    state: &ObservedState,
    status: &InstanceGroupStatus,
) -> bool {
    let recorded = status.template.as_ref();
    // The pass that created the version has read them. The status records the version in the next one.
    let is_pinned = |pin: &TemplatePin| matches!(pin_state(resolved, state, status, pin), PinState::Current { .. });
    let creates_version = !resolved.broken.contains(Part::Launch)
        && recorded.is_some_and(|t| t.hash.as_ref().is_some_and(|h| *h != resolved.fingerprint.hash))
        && !group.template.as_ref().is_some_and(is_pinned);
    creates_version || tags::are_removed(resolved, state, status, group)
}

fn role_not_propagated(role: &str) -> ObserveError {
    let message = format!("the instance profile {role} holds a role that IAM does not return yet");
    ObserveError::Aws(AwsError::no_response("IAM", "GetRole", "NoSuchEntity", &message))
}

/// The instance profile of the group's own role, and its attached policies: the desired and recorded ones, or with `all`
/// every policy.
async fn own_profile_and_policies(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    all: bool,
) -> ObserveResult<(Option<InstanceProfile>, Vec<String>)> {
    if !resolved.own_role {
        return Ok((None, Vec::new()));
    }
    let role = &resolved.names.role;
    let mut policies = resolved.managed_policies.clone();
    policies.extend(status.managed.iter().flat_map(|m| m.policies.clone()));
    policies.sort();
    policies.dedup();
    // What is to be detached may have been attached a moment ago.
    let has_more = policies.len() > resolved.managed_policies.len();
    let max_age = if has_more { Duration::ZERO } else { o.shared_max_cache_age };
    let (profile, attached) = tokio::try_join!(
        o.inventory.profile(role, o.shared_max_cache_age),
        o.inventory.attached_policies(role, &policies, max_age)
    )
    .map_err(ObserveError::Aws)?;
    let attached = if all && profile.is_some() { all_attached_policies(o, role, attached).await } else { attached };
    Ok((profile, attached))
}

/// The lifecycle hooks of a scaling group; `None` when neither the spec nor the status has any. One that the spec
/// dropped is searched for in a recent answer: an older one may lack it, and it would leave the record and stay in AWS.
async fn lifecycle_hooks(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    group: &ScalingGroup,
) -> ObserveResult<Option<Vec<LifecycleHook>>> {
    let desired = &resolved.desired.lifecycle_hooks;
    let recorded = || status.managed.iter().flat_map(|managed| &managed.hooks);
    if status.managed.is_some() && recorded().next().is_none() && desired.is_empty() {
        return Ok(None);
    }
    let is_dropped = |name: &String| desired.iter().all(|hook| hook.name != *name);
    let max_age =
        if recorded().any(is_dropped) { o.max_cache_age.min(o.shared_max_cache_age) } else { o.shared_max_cache_age };
    Ok(Some(o.inventory.hooks(&group.name, max_age).await.map_err(ObserveError::Aws)?.to_vec()))
}

/// The recorded names that the spec dropped and that AWS does not show, although it may soon.
fn unseen_names(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &ObservedState,
) -> BTreeSet<String> {
    let (Some(_), Some(managed)) = (&state.scaling_group, &status.managed) else { return BTreeSet::new() };
    let (shown, desired) = (attribute_names::shown(state), attribute_names::desired(resolved));
    let dropped = attribute_names::recorded(managed, resolved.own_role).difference(&desired).cloned().collect();
    o.process_state.observe_names(&resolved.desired.id.key(), shown, dropped, o.consistency_delay, o.now)
}

/// Every policy on the role. The additional ones are only reported, so an error is ignored.
async fn all_attached_policies(o: &Observer<'_>, role: &str, policies: Vec<String>) -> Vec<String> {
    match o.inventory.aws().iam.attached_policies(role).await {
        Ok(all) => {
            policies.iter().cloned().chain(all.into_iter().filter(|policy| !policies.contains(policy))).collect()
        }
        Err(_) => policies,
    }
}

/// The launch template that the scaling group refers to, which may have another name than the derived one.
async fn template_in_use(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    group: Option<&ScalingGroup>,
    derived: Option<LaunchTemplate>,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<LaunchTemplate>> {
    let Some(pin) = group.and_then(|g| g.template.as_ref()) else { return Ok(derived) };
    if derived.as_ref().is_some_and(|t| t.id == pin.id) {
        return Ok(derived);
    }
    // keikoproj/instance-manager ends the name with the time of its first reconcile; the status has that name.
    let named = match status.active_launch_template_name.as_ref().filter(|name| !name.is_empty()) {
        Some(name) => o.inventory.template(name, o.shared_max_cache_age).await.map_err(ObserveError::Aws)?,
        None => None,
    };
    if let Some(named) = named.filter(|t| t.id == pin.id) {
        return Ok(Some(named));
    }
    // Without a status, for example after a restore, only the scaling group's pin identifies the template.
    let found = o.inventory.aws().ec2.template_by_id(&pin.id).await.map_err(ObserveError::Aws)?;
    Ok(found.filter(|t| names::differs_only_in_timestamp(&t.name, &resolved.names.template)).or(derived))
}

/// A template from an attempt with names that belong to another group; the status still has its name.
async fn orphaned_template(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
) -> ObserveResult<Option<LaunchTemplate>> {
    let old = status.active_launch_template_name.as_ref().filter(|n| !n.is_empty() && **n != resolved.names.template);
    let Some(old) = old else { return Ok(None) };
    // A scaling group that an old answer does not show may launch from it.
    let group = o.inventory.group(&resolved.names.scaling_group, Duration::ZERO).await.map_err(ObserveError::Aws)?;
    if group.is_some() {
        return Ok(None);
    }
    let found = o.inventory.template(old, o.shared_max_cache_age).await.map_err(ObserveError::Aws)?;
    Ok(found.filter(|t| has_ownership_tags(&t.tags, &resolved.ownership_tags)))
}

/// Reads what the detection of outdated instances needs in some situations only, for example when they were launched.
async fn observe_outdated(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let aws = ObserveError::Aws;
    let Some(group) = state.scaling_group.clone() else { return Ok(()) };
    let warmed = status.template.as_ref().and_then(|t| t.warm_pool.clone());
    let may_be_outdated = resolved.desired.warm_pool.is_some()
        && super::warm_pool::current_version_key(resolved, &group, status, o.now) != warmed;
    if group.warm_pool.is_some() && (may_be_outdated || hooks::ends_hook(resolved, state, status)) {
        state.warm_instances = Some(o.inventory.warm_pool(&group.name, o.max_cache_age).await.map_err(aws)?.to_vec());
    }
    let rotate_at_passed = resolved.desired.rolling_update.rotate_at.is_some_and(|at| at <= o.now);
    let are_subnets_removed =
        !subnets::removed_subnets(resolved, state, status).is_empty() || subnets::has_suspension_tag(&group);
    if rotate_at_passed || are_subnets_removed {
        let warm = state.warm_instances.iter().flatten().map(|w| &w.instance);
        let ids: Vec<_> = group.instances.iter().chain(warm).map(|i| i.id.clone()).collect();
        let launches = o.inventory.launches(&ids).await.map_err(aws)?;
        if rotate_at_passed {
            state.launch_times = launches.iter().map(|(id, launch)| (id.clone(), launch.time)).collect();
        }
        if are_subnets_removed {
            state.instance_subnets = launches.into_iter().map(|(id, launch)| (id, launch.subnet)).collect();
        }
    }
    Ok(())
}

/// Reads what the report of launches and replacements needs in some situations only, for example scaling activities
/// while instances are missing.
async fn observe_progress(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    state: &mut ObservedState,
) -> ObserveResult<()> {
    let aws = ObserveError::Aws;
    let key = resolved.desired.id.key();
    let Some(group) = state.scaling_group.clone() else { return Ok(()) };
    let runs = |i: &&Instance| matches!(i.state, InstanceState::InService | InstanceState::Pending);
    let running: u32 = group.instances.iter().filter(runs).map(|i| i.weight).sum();
    let short = i64::from(running) < i64::from(group.desired);
    state.shortage_duration = o.process_state.track_shortage(&key, short, o.now);
    // A process that has just started has no record of the shortage, but the status shows that nodes were missing.
    let was_short = status.conditions.iter().any(|c| c.r#type == condition::NODES_READY && !c.is_true());
    if short && (state.shortage_duration.as_secs() > 0 || was_short) {
        state.activities = o.inventory.activities(&group.name).await.map_err(aws)?.to_vec();
    }
    record_failed_launch(o, &key, &group, &state.activities).await?;
    state.lost_instances = read_lost_instances(o, &key, &group).await;
    state.is_cause_of_loss_expected = o.process_state.lost_instances(&key, |known| known.is_cause_expected(o.now));
    let is_waiting = super::warm_pool::is_blocked_by_transitions(resolved, state, status);
    state.warm_pool_wait = o.process_state.track_warm_pool_wait(&key, is_waiting, o.now);
    let members = outdated::members(resolved, state, status);
    if members.iter().any(|m| !m.reasons.is_empty()) {
        state.instance_refresh_active = o.inventory.has_active_refresh(&group.name).await.map_err(aws)?;
        state.failed_replacements = replacements::failed(o, resolved, status, &members);
    }
    if members.iter().any(|m| !m.reasons.is_empty() && m.is_available()) {
        state.failed_launch = replacements::failed_launch(o, resolved, status, &group).await?;
    }
    state.drains = drain_views(o, &members, &resolved.desired.id.uid).await?;
    state.strategy_state = crd_strategy::observe(o, resolved, status, state, &members).await?;
    Ok(())
}

/// Records the last launch that failed: the version of the launch template may be gone. While no node is missing, only a
/// warm pool that stays short shows it: an instance of the pool replaced the lost node, and AWS cannot fill the pool again.
async fn record_failed_launch(
    o: &Observer<'_>,
    key: &str,
    group: &ScalingGroup,
    read: &[ScalingActivity],
) -> ObserveResult<()> {
    let is_short = group.warm_pool.as_ref().is_some_and(|pool| {
        !pool.deleting && pool.size.is_some_and(|size| size < pool.target(group.desired, group.max))
    });
    let lasts = o.process_state.track_short_warm_pool(key, is_short, o.now).as_secs() > 0;
    let of_pool = match read {
        [] if lasts => o.inventory.activities(&group.name).await.map_err(ObserveError::Aws)?,
        _ => Arc::default(),
    };
    let failed = read.iter().chain(&*of_pool).find(|activity| activity.has_failed() && activity.is_launch());
    o.process_state.record_failed_launch(key, failed.and_then(|activity| activity.started));
    Ok(())
}

/// The instances that left without the controller. The scaling activities are read only when there are some, and not
/// from before the last poll: they would not explain what left since. Without an answer the next pass reads again,
/// because nothing depends on it.
async fn read_lost_instances(o: &Observer<'_>, key: &str, group: &ScalingGroup) -> Vec<LostInstance> {
    let stays = |instance: &&Instance| instance.state != InstanceState::Terminating;
    let present = group.instances.iter().filter(stays).map(|instance| instance.id.clone()).collect();
    let left = o.process_state.lost_instances(key, |known| known.observe(present, o.now));
    if left.is_empty() {
        return Vec::new();
    }
    let activities = o.inventory.recent_activities(&group.name, o.max_cache_age).await.unwrap_or_default();
    let mut found = explained(left, &activities);
    // Auto Scaling does not distinguish a reclaimed Spot Instance from one that a user terminated in EC2.
    let explained: Vec<_> = found.iter().take(lost_instances::MAX_EVENTS).map(|lost| lost.instance.clone()).collect();
    let reasons = o.inventory.aws().ec2.state_reasons(&explained).await.unwrap_or_default();
    lost_instances::add_state_reasons(&mut found, reasons.into_iter().collect());
    o.process_state
        .lost_instances(key, |known| found.iter().for_each(|one| known.record_reported(&one.instance, o.now)));
    found
}

/// The launch template versions. The hash in the status is enough until something differs from it, or `rotate-at`
/// requests what the hash does not cover.
///
/// The recorded hash holds however old the status is: a launch template cannot be modified, and its versions are numbered
/// in the order of their creation, which can be neither specified nor replaced (Amazon EC2 API Reference,
/// CreateLaunchTemplateVersion). AWS does not document whether an ID is ever used again.
async fn versions(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    group: Option<&ScalingGroup>,
    template: Option<&LaunchTemplate>,
) -> ObserveResult<BTreeMap<i64, ObservedVersion>> {
    let Some(template) = template else { return Ok(BTreeMap::new()) };
    let recorded = status.template.as_ref().filter(|t| t.id.as_deref() == Some(&template.id));
    let pins: Vec<&TemplatePin> = group
        .iter()
        .flat_map(|g| g.template.iter().chain(g.instances.iter().filter_map(|i| i.template.as_ref())))
        .collect();
    let mut numbers: Vec<i64> =
        pins.iter().filter(|p| p.id == template.id).filter_map(|p| version_number(p, Some(template))).collect();
    numbers.sort_unstable();
    numbers.dedup();
    // EC2 deletes no default version, and only a launch shows that another one is gone.
    let has_failed_launch = !o.is_forecast && o.process_state.take_unreported_failed_launch(&resolved.desired.id.key());
    let may_be_gone = o.inventory.has_new_default(template) || has_failed_launch;
    if may_be_gone {
        o.inventory.remove_versions(&template.id, &numbers);
    }
    if let Some(t) = recorded
        && !may_be_gone
        && let (Some(version), Some(hash)) = (t.version.as_ref().and_then(|v| v.parse().ok()), &t.hash)
        && *hash == resolved.fingerprint.hash
        && numbers.iter().all(|n| *n == version)
        && group.is_some()
        && t.adopted_version != t.version
        && resolved.desired.rolling_update.rotate_at.is_none_or(|at| at > o.now)
    {
        let fingerprint = Some(Fingerprint { hash: hash.clone(), parts: resolved.fingerprint.parts.clone() });
        return Ok([(version, ObservedVersion::new(fingerprint, None))].into());
    }
    let in_use = numbers.clone();
    // A version that is created but not pinned yet is the latest one. Versions are immutable, so each is read once.
    numbers.push(template.latest_version);
    numbers.dedup();
    let read = o.inventory.versions(&template.id, &numbers).await.map_err(ObserveError::Aws)?;
    if in_use.iter().all(|number| read.iter().any(|version| version.number == *number)) {
        o.inventory.confirm_versions(template);
    }
    let fingerprint = |v: &crate::aws::TemplateVersion| {
        let own = Fingerprint::parse(v.description.as_deref())?;
        // Some inputs can be written in several ways, such as the name of a `userData` entry or the order of volumes. Nodes
        // are the same, so none is replaced.
        let is_same =
            !resolved.broken.contains(Part::Launch) && drift::is_same_content(&v.data, &resolved.template_data);
        Some(if is_same { resolved.fingerprint.clone() } else { own })
    };
    let has_desired_content = |v: &Arc<crate::aws::TemplateVersion>| {
        fingerprint(v).is_some_and(|found| found.hash == resolved.fingerprint.hash)
    };
    let is_adopted = recorded
        .is_some_and(|t| t.adopted_version == t.version && t.adopted_hash.as_ref() == Some(&resolved.fingerprint.hash));
    // No version can be searched for while its content is not known.
    let keeps_version = group.is_some() && resolved.broken.contains(Part::Launch);
    // A forecast creates none.
    let is_known =
        keeps_version || o.is_forecast || read.iter().any(has_desired_content) || (group.is_some() && is_adopted);
    let all = if is_known { read } else { o.inventory.all_versions(&template.id).await.map_err(ObserveError::Aws)? };
    let version =
        |v: Arc<crate::aws::TemplateVersion>| (v.number, ObservedVersion::new(fingerprint(&v), Some(v.data.clone())));
    Ok(all.into_iter().map(version).collect())
}

/// The content of the launch configuration of the group or of its last instances. It is read at the adoption, while tags
/// of the adoption are missing, and when the spec differs from what was adopted.
async fn launch_configuration(
    o: &Observer<'_>,
    resolved: &ResolvedGroup,
    status: &InstanceGroupStatus,
    group: Option<&ScalingGroup>,
) -> ObserveResult<Option<TemplateData>> {
    let Some(group) = group else { return Ok(None) };
    let old = || group.instances.iter().find_map(|i| i.launch_configuration.as_deref());
    let Some(name) = launch_configuration::current_name(group).or_else(old) else { return Ok(None) };
    let keeps_version = resolved.broken.contains(Part::Launch) && status.managed.is_some();
    if (keeps_version || launch_configuration::matches_adoption(resolved, status, name))
        && !is_tagging_denied(status)
        && resolved.desired.rolling_update.rotate_at.is_none_or(|at| at > o.now)
    {
        return Ok(None);
    }
    let found = o.inventory.launch_configuration(name).await.map_err(ObserveError::Aws)?;
    Ok(found.map(|c| c.data.clone()))
}

/// What `find` returns about the instances of the group, by id.
fn by_instance<T>(group: Option<&ScalingGroup>, find: impl Fn(&str) -> Option<T>) -> BTreeMap<String, T> {
    let instances = group.iter().flat_map(|g| &g.instances);
    instances.filter_map(|i| Some((i.id.clone(), find(&i.id)?))).collect()
}
