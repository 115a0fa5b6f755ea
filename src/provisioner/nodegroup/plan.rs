//! Plans one reconcile of an `eks-managed` group from its resolved spec and observed state. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use super::input::PlanInput;
use super::names::recorded_nodegroups;
use super::observed::{ObservedNodegroup, Partition, partition, serving_of};
use super::ownership::{UnprovenNodegroup, is_named_by};
use super::record::record;
use super::{adopt, blue_green, create, health, retry, update, usage};
use crate::api::{EffectiveValues, ProvisionerKind, StrategyType};
use crate::aws::nodegroup::{Nodegroup, NodegroupStatus};
use crate::plan::{Outcome, Phase, Plan, PlanBuilder, StatusUpdate, waiting};
use crate::provisioner::rejected_fields::Part;
use crate::provisioner::{join_times, unseen_names};

/// Plans one reconcile of a group that is not being deleted.
pub fn plan(input: &PlanInput) -> Plan {
    let partitioned = partition(input.resolved, input.observed, input.status);
    let ineffective = input.ineffective_writes.clone();
    let status_update = status_update(input, &partitioned);
    let mut builder = PlanBuilder::with_status(status_update, ineffective);
    builder.ensure_finalizer(&input.resolved.desired.id);
    input.resolved.broken.report(input.status, &mut builder);
    let mut recheck_at = None;
    let creation = match (partitioned.current, partitioned.outgoing.as_slice()) {
        (None, []) => create::nodegroup(input, None, &mut builder),
        (None, outgoing) => blue_green::create_replacement(input, outgoing, &mut builder),
        (Some(current), _) => {
            if partitioned.is_adopting {
                adopt::report_adoption(input, current, &mut builder);
            }
            recheck_at = plan_active(input, current, &partitioned, &mut builder);
            None
        }
    };
    let serving = partitioned.serving();
    builder.node_usage = serving.map(|group| usage::node_usage(input, group));
    if creation.is_some() || !input.observed.nodegroups.is_empty() {
        let created = creation.as_ref().map(|_| &input.resolved.name);
        record(input, &partitioned, created, &mut builder);
    }
    builder.steps.extend(creation);
    health::report_completed_update(input, &partitioned, &mut builder);
    health::record_failed_update(input, &mut builder);
    blue_green::uncordon_nodes_in_progress(input, &mut builder);
    blue_green::uncordon_disowned_nodes(input, &mut builder);
    create::ownership_conflict(input).into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
    create::shared_nodegroup(input).into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
    let rechecks = [recheck_at, input.persistent_failure.retry_at()];
    builder.build(&input.resolved.desired.id, rechecks.into_iter().flatten().min())
}

fn plan_active(
    input: &PlanInput,
    current: &ObservedNodegroup,
    partitioned: &Partition,
    builder: &mut PlanBuilder,
) -> Option<Timestamp> {
    let outgoing = partitioned.outgoing.as_slice();
    let tags = update::plan_tags(input, current, partitioned.is_adopting, builder);
    let alone = outgoing.is_empty();
    // EKS does not create a lost scaling group again.
    let is_lost = input.observed.has_lost_scaling_group;
    let status = if is_lost { NodegroupStatus::CreateFailed } else { current.nodegroup.status };
    match status {
        NodegroupStatus::Creating => {
            let phase = if alone { Phase::Creating } else { Phase::Rotating };
            let message = format!("EKS is creating the node group {}", current.name().nodegroup);
            builder.set_outcome_once(waiting(phase, message));
        }
        NodegroupStatus::CreateFailed => {
            let retry_at = retry::creation(input, current, outgoing, partitioned.is_adopting, builder);
            serving_of(outgoing).into_iter().for_each(|serving| blue_green::update_serving(input, serving, builder));
            return retry_at;
        }
        NodegroupStatus::DeleteFailed => {
            retry::deletion(input, current, partitioned.is_adopting, builder);
            serving_of(outgoing).into_iter().for_each(|serving| blue_green::update_serving(input, serving, builder));
        }
        NodegroupStatus::Deleting => {
            let message =
                format!("the node group {} is being deleted; it is recreated after that", current.name().nodegroup);
            builder.set_outcome_once(waiting(Phase::Modifying, message));
        }
        NodegroupStatus::Updating => builder.set_outcome_once(health::update_progress(input, current)),
        NodegroupStatus::Active | NodegroupStatus::Degraded | NodegroupStatus::Other => {
            if health::is_update_in_progress(input) {
                builder.set_outcome_once(health::update_progress(input, current));
            }
        }
    }
    // An adoption replaces no nodes. Its record takes effect with the next reconcile.
    let broken = &input.resolved.broken;
    let may_replace = !partitioned.is_adopting && !broken.contains(Part::Rotation);
    if builder.outcome().is_none() {
        let replaced = (!alone).then(|| if may_replace { blue_green::nodes_to_replace(input, outgoing) } else { 0 });
        update::plan_config_update(input, current, replaced, builder);
    }
    if partitioned.is_adopting && !alone {
        builder.set_outcome_once(waiting(
            Phase::Modifying,
            format!("adopted the node group {}", current.name().nodegroup),
        ));
    }
    if builder.outcome().is_none() && may_replace {
        blue_green::drain_outgoing(input, current, outgoing, builder);
        builder.rotation_planned = true;
    }
    if builder.outcome().is_none() && may_replace {
        update::plan_version_update(input, current, builder);
    }
    if builder.outcome().is_none() {
        let blocker = update::size_change_blocker(input, current).or_else(|| update::eviction_blocker(input, current));
        blocker.into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
    }
    if builder.outcome().is_none() {
        // The spec no longer requests the change of the recorded update.
        if input.status.update_of.is_some() {
            health::forget_update(input, builder);
        }
        broken.outcome().into_iter().for_each(|outcome| builder.set_outcome_once(outcome));
        unseen_names::outcome(&input.observed.unseen_names).into_iter().for_each(|o| builder.set_outcome_once(o));
        health::check_readiness(input, current, builder);
    } else if matches!(builder.outcome(), Some(Outcome::Locked { .. })) {
        health::report_readiness(input, current, builder);
    }
    if let Some(outcome) = tags {
        builder.set_outcome_once(outcome);
    }
    let failed = input.status.update_of.as_deref().and_then(|of| input.update_retry_at(of));
    failed.filter(|_| matches!(builder.outcome(), Some(Outcome::Blocked { .. })))
}

/// What nodes get, for tenants, as EKS describes it.
fn effective_values(found: &Nodegroup) -> EffectiveValues {
    EffectiveValues {
        image: Some(format!("{} {}", found.ami_type, found.release_version).trim().to_owned()),
        instance_types: found.instance_types.clone(),
        subnets: found.subnets.clone(),
        ..EffectiveValues::default()
    }
}

/// Whether the scaling group in the status is all that shows a node group of Keiko controller: it is not recorded yet, or
/// other groups may share it.
fn keeps_scaling_group(input: &PlanInput) -> bool {
    let is_only_in_status = |group: &ObservedNodegroup| {
        is_named_by(input.status, &group.nodegroup)
            && recorded_nodegroups(input.status).all(|recorded| recorded != *group.name())
    };
    input.observed.unproven_nodegroup.as_ref().is_some_and(UnprovenNodegroup::is_shared)
        || input.observed.nodegroups.iter().any(is_only_in_status)
}

fn status_update(input: &PlanInput, partitioned: &Partition) -> StatusUpdate {
    let desired = &input.resolved.desired;
    let lifecycle = if desired.immutable.capacity_type.as_deref() == Some("SPOT") { "spot" } else { "normal" };
    let mut fields = BTreeMap::from([
        ("provisioner".to_owned(), json!(ProvisionerKind::EksManaged)),
        ("strategy".into(), json!(StrategyType::Managed)),
        ("lifecycle".into(), json!(lifecycle)),
        ("nodesInstanceRoleArn".into(), json!(desired.immutable.node_role)),
    ]);
    let members = input.observed.nodegroups.iter().flat_map(|group| &group.members);
    let joining = join_times::update(input.status, members, desired.rolling_update.join_timeout, input.now);
    fields.extend(joining.map(|joining| ("joining".to_owned(), joining)));
    let serving = partitioned.serving();
    if let Some(group) = serving {
        let names = group.scaling_group_names();
        if !names.is_empty() && !keeps_scaling_group(input) {
            fields.insert("activeScalingGroupName".into(), json!(names));
        }
        fields.insert("effective".into(), json!(effective_values(&group.nodegroup)));
        fields.insert("currentMin".into(), json!(group.nodegroup.sizes.min));
        fields.insert("currentMax".into(), json!(group.nodegroup.sizes.max));
        fields.insert("nodes".into(), health::node_counts(input, group, partitioned));
    }
    StatusUpdate { fields, nodes_ready: None }
}
