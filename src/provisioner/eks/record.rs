//! Records in the status which attributes the controller sets, before it sets them.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;

use super::attribute_names::NameKind;
use super::input::PlanInput;
use super::join::role_join;
use super::launch_configuration;
use super::rotation::{in_place, outdated};
use super::scaling_group::{instance_tags, subnets};
use crate::api::{ManagedAttributes, ProvisionerKind};
use crate::auth::access_entries::JoinPlan;
use crate::aws::{InstanceState, Tag};
use crate::plan::PlanBuilder;
use crate::provisioner::role_region::tagged_region;
use crate::rotation::NodeInstance;
use crate::rotation::rolling_update::standby_entry::STANDBY_DELAY;

/// Records the attributes that this plan sets, and the names that the status does not have yet.
pub(crate) fn record(input: &PlanInput, joined: &JoinPlan, builder: &mut PlanBuilder) {
    let old = input.status.managed.clone().unwrap_or_default();
    let managed = managed_attributes(input, joined, &old);
    if managed == old && input.status.managed.is_some() {
        return;
    }
    let r = input.resolved;
    let mut status = json!({ "managed": managed.patch_from(&old) });
    if input.status.active_scaling_group_name.as_deref() != Some(&r.names.scaling_group) {
        status["activeScalingGroupName"] = json!(r.names.scaling_group);
        status["activeLaunchTemplateName"] = json!(r.names.template);
        status["nodesInstanceRoleArn"] = json!(r.role_arn);
    }
    // The next pass may be of another provisioner, and would not find what this one creates.
    let kind = ProvisionerKind::Eks;
    if input.status.provisioner.as_deref() != Some(kind.as_str()) {
        status["provisioner"] = json!(kind);
    }
    builder.record(status);
}

/// The attributes that the controller sets: the desired ones, and the recorded ones that still exist.
fn managed_attributes(input: &PlanInput, joined: &JoinPlan, old: &ManagedAttributes) -> ManagedAttributes {
    let r = input.resolved;
    let joining = role_join(input);
    // An answer of AWS may be older than the creation of what it does not show. So what was not seen stays recorded.
    let (tags, processes, metrics) = match &input.observed.scaling_group {
        Some(g) => (tag_keys(&g.tags), g.suspended_processes.clone(), g.enabled_metrics.clone()),
        None => (old.tags.clone(), old.processes.clone(), old.metrics.clone()),
    };
    let (labels, taints) = in_place::recorded_attributes(input);
    let hooks = match input.observed.scaling_group {
        Some(_) => input.observed.lifecycle_hooks.iter().flatten().map(|h| h.name.clone()).collect(),
        None => old.hooks.clone(),
    };
    let policies = match (&input.observed.scaling_group, &input.observed.role) {
        (None, None) => old.policies.clone(),
        (Some(_), _) | (_, Some(_)) => input.observed.attached_policies.clone(),
    };
    let unseen = |kind: NameKind, recorded: &[String]| -> Vec<String> {
        recorded.iter().filter(|name| input.observed.unseen_names.contains(&kind.named(name))).cloned().collect()
    };
    let (tags, hooks) =
        ([tags, unseen(NameKind::Tag, &old.tags)].concat(), [hooks, unseen(NameKind::Hook, &old.hooks)].concat());
    let processes = [processes, unseen(NameKind::Process, &old.processes)].concat();
    let metrics = [metrics, unseen(NameKind::Metric, &old.metrics)].concat();
    let policies = [policies, unseen(NameKind::Policy, &old.policies)].concat();
    let is_pool_unseen = input.observed.unseen_names.contains(&NameKind::WarmPool.named(""));
    let standby = standby(input);
    let present = |all: &[String]| all.iter().filter(|arn| **arn == r.role_arn).cloned().collect::<Vec<_>>();
    ManagedAttributes {
        tags: desired_and_recorded(tag_keys(&r.tags), &old.tags, tags),
        instance_tags: instance_tags::recorded(input, old),
        started_instance_tags: instance_tags::recorded_start(input, old),
        hooks: desired_and_recorded(
            r.desired.lifecycle_hooks.iter().map(|h| h.name.clone()).collect(),
            &old.hooks,
            hooks,
        ),
        processes: desired_and_recorded(subnets::recorded_processes(input), &old.processes, processes),
        labels,
        taints,
        metrics: desired_and_recorded(r.desired.metrics.iter().cloned().collect(), &old.metrics, metrics),
        auth_entries: [
            joining.owned_auth_entries(joined, &r.role_arn, &present(&old.auth_entries)),
            input.observed.previous_roles.recorded_auth_entries.clone(),
        ]
        .concat(),
        access_entries: [
            joining.owned_access_entries(joined, &present(&old.access_entries)),
            input.observed.previous_roles.recorded_access_entries.clone(),
        ]
        .concat(),
        // While the spec names another role, the record has what the controller attached to its own.
        policies: match r.own_role {
            true => desired_and_recorded(r.managed_policies.clone(), &old.policies, policies),
            false => [old.policies.clone(), input.observed.unrecorded_policies.clone()].concat(),
        },
        configurations: launch_configuration::recorded_configurations(input),
        warm_pool: r.desired.warm_pool.is_some()
            || (old.warm_pool
                && (is_pool_unseen || input.observed.scaling_group.as_ref().is_some_and(|g| g.warm_pool.is_some()))),
        role_region: role_region(input, old),
        role_exchanged_at: input.observed.previous_roles.exchanged_at.map(|at| at.to_string()),
        adopted: old.adopted.clone(),
        tagging_denied: old.tagging_denied,
        leaving_subnets: subnets::in_use(r, input.observed, input.status),
        standby_at: old.standby_at.clone().filter(|_| !standby.is_empty()),
        standby: standby.into_iter().collect(),
        pool: if r.type_pool.is_some() { old.pool.clone() } else { Vec::new() },
        ..ManagedAttributes::default()
    }
}

/// The instances that the controller put into standby, by the surge records on their Nodes and in the status. One that was
/// about to enter it stays recorded until AWS must show the standby.
fn standby(input: &PlanInput) -> BTreeSet<String> {
    let uid = &input.resolved.desired.id.uid;
    let is_recent = recorded_standby_at(input).is_some_and(|at| input.now.duration_since(at).abs() < STANDBY_DELAY);
    let may_enter = |m: &NodeInstance| {
        let is_expected = is_recent || m.has_surge_record(uid);
        m.is_recorded_standby && m.instance.state == InstanceState::InService && is_expected
    };
    let members = outdated::members(input.resolved, input.observed, input.status);
    members.into_iter().filter(|m| m.is_in_standby(uid) || may_enter(m)).map(|m| m.instance.id).collect()
}

/// When an instance was last about to enter standby, as recorded.
fn recorded_standby_at(input: &PlanInput) -> Option<Timestamp> {
    input.status.managed.as_ref()?.standby_at.as_ref()?.parse().ok()
}

/// Records the instances that this plan puts into standby (`entering`), before it does. A user or a kubelet may remove
/// the surge record on a Node, or the Node, before AWS shows the standby. The instance would then stay there like one
/// that a person put there.
pub(crate) fn record_entering_standby(input: &PlanInput, entering: BTreeSet<String>, builder: &mut PlanBuilder) {
    let managed = input.status.managed.as_ref();
    let is_recorded = |id: &String| managed.is_some_and(|managed| managed.standby.contains(id));
    // A pass whose call does not take, or whose answer is old, repeats no write. The record is renewed in time.
    let renewal = STANDBY_DELAY / 2;
    let is_new = recorded_standby_at(input).is_some_and(|at| input.now.duration_since(at).abs() < renewal);
    if entering.iter().all(|id| is_recorded(id) && is_new) {
        return;
    }
    let all: BTreeSet<_> = standby(input).into_iter().chain(entering).collect();
    builder.record_managed("standby", json!(all));
    builder.record_managed("standbyAt", json!(input.now.to_string()));
}

/// The region in the tags of the group's own role: that of a role which this plan creates or found tagged.
fn role_region(input: &PlanInput, old: &ManagedAttributes) -> Option<String> {
    let (r, state) = (input.resolved, input.observed);
    let is_tagged = |tags: &[Tag]| tagged_region(tags) == Some(&r.region);
    let role = state.role.as_ref().is_none_or(|role| is_tagged(&role.tags));
    let profile = state.instance_profile.as_ref().is_none_or(|profile| is_tagged(&profile.tags));
    let has_tag = r.own_role && state.scaling_group.is_none() && role && profile;
    if has_tag { Some(r.region.clone()) } else { old.role_region.clone() }
}

fn tag_keys(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|t| t.key.clone()).collect()
}

/// The desired values, and the recorded values that still exist.
fn desired_and_recorded(desired: Vec<String>, recorded: &[String], present: Vec<String>) -> Vec<String> {
    let present: BTreeSet<_> = present.into_iter().collect();
    let mut all: BTreeSet<_> = desired.into_iter().collect();
    all.extend(recorded.iter().filter(|r| present.contains(*r)).cloned());
    all.into_iter().collect()
}
