//! What the status has to remember of a group before it is done.

use super::input::PlanInput;
use super::join::joining;
use super::observed::ObservedProfiles;
use super::plan_builder::FargatePlanBuilder;
use crate::api::{ProvisionerKind, StrategyType};
use crate::auth::access_entries::JoinPlan;

/// What we set is recorded before it is set; what is not there any more leaves the record.
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
    // What a role that was in use before has is dropped from the record once it is gone.
    let split =
        |all: &[String]| -> (Vec<String>, Vec<String>) { all.iter().cloned().partition(|arn| *arn == r.role_arn) };
    let ((auth, former_auth), (access, former_access)) = (split(&managed.auth_entries), split(&managed.access_entries));
    let joining = joining(input);
    managed.auth_entries = joining.owned_auth_entries(joined, &r.role_arn, &auth);
    managed.auth_entries.extend(former_auth);
    managed.access_entries = joining.owned_access_entries(joined, &access);
    managed.access_entries.extend(former_access);
    if r.is_own_role {
        managed.policies = vec![r.managed_policy.clone()];
    }
    making.slot.status.cluster = Some(r.desired.cluster.clone());
    making.slot.status.profiles = found.own.iter().map(|p| p.name.clone()).collect();
}
