//! The role of the pods, when it is ours to make.

use super::input::Input;
use super::observed::FormerRole;
use super::plan_builder::Making;
use super::resolve::POLICY;
use crate::aws::{AccessEntry, NewRole};
use crate::ownership::owned;
use crate::plan::{Draft, Drift, IamStep, JoinStep, Outcome, Phase, Reason, Recheck, Step};

/// Makes the role with its policy; the profile waits until IAM knows it everywhere.
pub fn make(input: &Input, phase: Phase, making: &mut Making) {
    mend(input, making);
    making.draft.decide(Outcome::Progressing {
        phase,
        message: "waiting until IAM knows the role of the pods everywhere".into(),
        recheck: Recheck::After(input.timing.propagation),
    });
}

/// What the role lacks. One of its name that others made is left alone.
pub fn mend(input: &Input, making: &mut Making) {
    let r = input.resolved;
    let name = &r.names.role;
    match &input.state.role {
        None => {
            let role = NewRole { name: name.clone(), trust: r.trust.clone(), tags: r.ownership.clone() };
            making.draft.because(IamStep::CreateRole(role), vec![Drift::new("podExecutionRoleArn", "", &r.role_arn)]);
        }
        Some(role) if owned(&role.tags, &r.ownership) => {}
        Some(_) if adopts(making, name) => {}
        Some(_) => {
            let message = format!(
                "the role {name} is there and does not carry this group's three tags; remove it, or name it in spec.eks-fargate.podExecutionRoleArn"
            );
            return making.draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false });
        }
    }
    let because = vec![Drift::new("managedPolicies", "", &r.policy)];
    making.draft.because(IamStep::AttachPolicy { role: name.clone(), policy: r.policy.clone() }, because);
}

/// Whether this pass takes the role over.
fn adopts(making: &Making, name: &str) -> bool {
    making.draft.steps.iter().any(|p| matches!(&p.step, Step::Iam(IamStep::TagRole { role, .. }) if role == name))
}

/// What a role that was in use before has left behind, once no profile uses it.
pub fn retire(input: &Input, making: &mut Making) {
    for entry in &input.state.former_auth {
        making.draft.step(JoinStep::RemoveAuthEntry(entry.clone()));
    }
    for AccessEntry { principal, .. } in &input.state.former_access {
        let (cluster, principal) = (input.resolved.wanted.cluster.clone(), principal.clone());
        making.draft.step(JoinStep::RemoveAccessEntry { cluster, principal });
    }
    let Some(managed) = making.next.managed.as_mut() else { return };
    if input.state.former_auth.is_empty() {
        let kept = &input.state.kept_auth;
        managed.auth_entries.retain(|arn| *arn == input.resolved.role_arn || kept.contains(arn));
    }
    if input.state.former_access.is_empty() {
        let kept = &input.state.kept_access;
        managed.access_entries.retain(|arn| *arn == input.resolved.role_arn || kept.contains(arn));
    }
    if input.resolved.uses_derived_role() || input.state.derived_role_shared {
        return;
    }
    match &input.state.former_role {
        None => managed.policies.clear(),
        Some(former) => delete(former, &managed.policies.clone(), false, &mut making.draft),
    }
}

/// Takes a role of ours down. Policies that others put on it hold it.
pub fn delete(former: &FormerRole, ours: &[String], deleting: bool, draft: &mut Draft) {
    let FormerRole { role, attached, inline } = former;
    let standard = |policy: &String| policy.ends_with(&format!("/{POLICY}")) || ours.contains(policy);
    let foreign: Vec<_> = attached.iter().filter(|p| !standard(p)).chain(inline).cloned().collect();
    if !foreign.is_empty() {
        let message = format!(
            "the role {} carries policies that the controller did not put there: {}; remove them from the role, and it is deleted",
            role.name,
            foreign.join(", ")
        );
        return draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting });
    }
    for policy in attached {
        draft.step(IamStep::DetachPolicy { role: role.name.clone(), policy: policy.clone() });
    }
    draft.step(IamStep::DeleteRole { role: role.name.clone() });
}
