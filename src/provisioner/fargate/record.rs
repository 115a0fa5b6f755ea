//! Records owned attributes in status before they are set in AWS.

use super::input::PlanInput;
use super::join::join_planner;
use super::observed::ObservedProfiles;
use super::plan_builder::FargatePlanBuilder;
use crate::api::{ProvisionerKind, StrategyType};
use crate::auth::access_entries::JoinPlan;

/// Adds the attributes that this plan sets to the record and drops those that no longer exist in AWS.
pub fn record(input: &PlanInput, found: &ObservedProfiles, joined: &JoinPlan, making: &mut FargatePlanBuilder) {
    let r = input.resolved;
    let next = &mut making.next_status;
    next.provisioner = Some(ProvisionerKind::EksFargate.as_str().into());
    next.strategy = Some(StrategyType::Managed.as_str().into());
    next.nodes_instance_role_arn = Some(r.role_arn.clone());
    if next.active_scaling_group_name.is_none() {
        next.active_scaling_group_name = Some(r.names.first_profile.clone());
    }
    let managed = next.managed.get_or_insert_default();
    let there = |key: &String| found.own.iter().any(|p| p.tags.iter().any(|t| t.key == *key));
    managed.tags.retain(there);
    managed.tags.extend(r.tags.iter().map(|t| t.key.clone()));
    managed.tags.sort();
    managed.tags.dedup();
    // Entries of previous roles stay recorded until they are removed.
    let split =
        |all: &[String]| -> (Vec<String>, Vec<String>) { all.iter().cloned().partition(|arn| *arn == r.role_arn) };
    let ((auth, previous_auth), (access, previous_access)) =
        (split(&managed.auth_entries), split(&managed.access_entries));
    let planner = join_planner(input);
    managed.auth_entries = planner.owned_auth_entries(joined, &r.role_arn, &auth);
    managed.auth_entries.extend(previous_auth);
    managed.access_entries = planner.owned_access_entries(joined, &access);
    managed.access_entries.extend(previous_access);
    if r.is_own_role {
        managed.policies = vec![r.managed_policy.clone()];
    }
    making.slot.status.cluster = Some(r.desired.cluster.clone());
    making.slot.status.profiles = found.own.iter().map(|p| p.name.clone()).collect();
}
