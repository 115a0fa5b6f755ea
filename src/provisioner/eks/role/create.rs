//! Creates the node role with its managed policies and its instance profile, and keeps them as desired.

use crate::aws::NewRole;
use crate::plan::{Drift, IamStep, PlanBuilder, PlannedStep};
use crate::provisioner::eks::input::PlanInput;

/// Adds the steps for the role, its policies and its instance profile. Returns true while the profile is too new for
/// other AWS services to refer to it.
pub(crate) fn ensure_role(input: &PlanInput, builder: &mut PlanBuilder) -> bool {
    let r = input.resolved;
    let name = &r.names.role;
    let held = input.observed.instance_profile.as_ref().and_then(|p| p.role.as_ref());
    let complete = held.is_some_and(|role| role.name == *name);
    // An existing role is owned by this group: the plan checks ownership before it gets here.
    if !complete && input.observed.role.is_none() {
        let role = NewRole { name: name.clone(), trust_policy: r.trust_policy.clone(), tags: r.iam_tags() };
        builder.push_with_reasons(IamStep::CreateRole(role), vec![Drift::new("role", "", name)]);
    }
    policies(input, builder);
    if complete {
        return input.is_propagating(input.observed.instance_profile.as_ref().and_then(|p| p.created));
    }
    if input.observed.instance_profile.is_none() {
        builder.push(IamStep::CreateProfile { profile: name.clone(), tags: r.iam_tags() });
    }
    if let Some(other) = held {
        builder.push_with_reasons(
            IamStep::RemoveRoleFromProfile { profile: name.clone(), role: other.name.clone() },
            vec![Drift::new("instanceProfile", &other.name, name)],
        );
    }
    builder.push(IamStep::AddRoleToProfile { profile: name.clone(), role: name.clone() });
    true
}

/// The managed policies that a role may have by default (AWS IAM User Guide, "IAM and AWS STS quotas").
const MAX_POLICIES: usize = 10;

/// Attaches desired policies and detaches those that only the controller had attached. The nodes keep their rights in
/// between, unless the role can only hold the new policies once the old ones are gone.
fn policies(input: &PlanInput, builder: &mut PlanBuilder) {
    let (r, attached) = (input.resolved, &input.observed.attached_policies);
    let role = &r.names.role;
    let recorded = input.status.managed.as_ref().map(|m| m.policies.as_slice()).unwrap_or_default();
    let attach: Vec<PlannedStep> = (r.managed_policies.iter().filter(|p| !attached.contains(p)))
        .map(|policy| {
            let step = IamStep::AttachPolicy { role: role.clone(), policy: policy.clone() };
            PlannedStep::new(step, vec![Drift::new("managedPolicies", "", policy)])
        })
        .collect();
    let detach: Vec<PlannedStep> =
        (attached.iter().filter(|p| recorded.contains(p) && !r.managed_policies.contains(p)))
            .map(|policy| {
                let step = IamStep::DetachPolicy { role: role.clone(), policy: policy.clone() };
                PlannedStep::new(step, vec![Drift::new("managedPolicies", policy, "")])
            })
            .collect();
    let ordered = match attached.len() + attach.len() > MAX_POLICIES {
        true => [detach, attach],
        false => [attach, detach],
    };
    builder.steps.extend(ordered.into_iter().flatten());
}
