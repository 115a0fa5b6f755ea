//! The role of the pods, when it is ours to make.

use super::input::PlanInput;
use super::observed::PreviousRole;
use super::plan_builder::FargatePlanBuilder;
use super::resolve::POD_EXECUTION_POLICY;
use crate::aws::{AccessEntry, NewRole};
use crate::ownership::has_ownership_tags;
use crate::plan::{Drift, IamStep, JoinStep, Outcome, Phase, PlanBuilder, Reason, Recheck, Step};

/// Makes the role with its policy; the profile waits until IAM knows it everywhere.
pub fn create(input: &PlanInput, phase: Phase, making: &mut FargatePlanBuilder) {
    repair(input, making);
    making.draft.set_outcome_once(Outcome::Progressing {
        phase,
        message: "waiting until IAM knows the role of the pods everywhere".into(),
        recheck: Recheck::After(input.timing.iam_propagation),
    });
}

/// What the role lacks. One of its name that others made is left alone.
pub fn repair(input: &PlanInput, making: &mut FargatePlanBuilder) {
    let r = input.resolved;
    let name = &r.names.role;
    match &input.observed.role {
        None => {
            let role =
                NewRole { name: name.clone(), trust_policy: r.trust_policy.clone(), tags: r.ownership_tags.clone() };
            making
                .draft
                .push_with_reasons(IamStep::CreateRole(role), vec![Drift::new("podExecutionRoleArn", "", &r.role_arn)]);
        }
        Some(role) if has_ownership_tags(&role.tags, &r.ownership_tags) => {}
        Some(_) if is_adopting(making, name) => {}
        Some(_) => {
            let message = format!(
                "the role {name} is there and does not carry this group's three tags; remove it, or name it in spec.eks-fargate.podExecutionRoleArn"
            );
            return making.draft.set_outcome_once(Outcome::Blocked {
                reason: Reason::OwnershipConflict,
                message,
                is_deleting: false,
            });
        }
    }
    let because = vec![Drift::new("managedPolicies", "", &r.managed_policy)];
    making
        .draft
        .push_with_reasons(IamStep::AttachPolicy { role: name.clone(), policy: r.managed_policy.clone() }, because);
}

/// Whether this pass takes the role over.
fn is_adopting(making: &FargatePlanBuilder, name: &str) -> bool {
    making.draft.steps.iter().any(|p| matches!(&p.step, Step::Iam(IamStep::TagRole { role, .. }) if role == name))
}

/// What a role that was in use before has left behind, once no profile uses it.
pub fn remove_unused(input: &PlanInput, making: &mut FargatePlanBuilder) {
    for entry in &input.observed.unused_auth_entries {
        making.draft.push(JoinStep::RemoveAwsAuthEntry(entry.clone()));
    }
    for AccessEntry { principal, .. } in &input.observed.unused_access_entries {
        let (cluster, principal) = (input.resolved.desired.cluster.clone(), principal.clone());
        making.draft.push(JoinStep::RemoveAccessEntry { cluster, principal });
    }
    let Some(managed) = making.next_status.managed.as_mut() else { return };
    if input.observed.unused_auth_entries.is_empty() {
        let kept = &input.observed.kept_auth_entries;
        managed.auth_entries.retain(|arn| *arn == input.resolved.role_arn || kept.contains(arn));
    }
    if input.observed.unused_access_entries.is_empty() {
        let kept = &input.observed.kept_access_entries;
        managed.access_entries.retain(|arn| *arn == input.resolved.role_arn || kept.contains(arn));
    }
    if input.resolved.uses_derived_role() || input.observed.is_derived_role_shared {
        return;
    }
    match &input.observed.previous_role {
        None => managed.policies.clear(),
        Some(former) => delete(former, &managed.policies.clone(), false, &mut making.draft),
    }
}

/// Takes a role of ours down. Policies that others put on it hold it.
pub fn delete(former: &PreviousRole, ours: &[String], is_deleting: bool, draft: &mut PlanBuilder) {
    let PreviousRole { role, attached_policies, inline_policies } = former;
    let standard = |policy: &String| policy.ends_with(&format!("/{POD_EXECUTION_POLICY}")) || ours.contains(policy);
    let foreign: Vec<_> = attached_policies.iter().filter(|p| !standard(p)).chain(inline_policies).cloned().collect();
    if !foreign.is_empty() {
        let message = format!(
            "the role {} carries policies that the controller did not put there: {}; remove them from the role, and it is deleted",
            role.name,
            foreign.join(", ")
        );
        return draft.set_outcome_once(Outcome::Blocked { reason: Reason::OwnershipConflict, message, is_deleting });
    }
    for policy in attached_policies {
        draft.push(IamStep::DetachPolicy { role: role.name.clone(), policy: policy.clone() });
    }
    draft.push(IamStep::DeleteRole { role: role.name.clone() });
}
