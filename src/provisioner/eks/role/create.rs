//! Creates the node role with its managed policies and its instance profile, and keeps them as desired.

use crate::api::names::annotation;
use crate::aws::NewRole;
use crate::plan::{Drift, IamStep, PlanBuilder, PlannedStep};
use crate::provisioner::eks::input::PlanInput;
use crate::provisioner::eks::rotation::template_origin::pinned_version;
use crate::provisioner::recreated::{detached, recreated, removed_from_profile, was_ready};

/// What keeps other AWS services from referring to the instance profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileWait {
    /// It was just created.
    New,
    /// It, or its role, was deleted outside of the controller, which creates it again.
    Deleted,
}

/// Adds the steps for the role, its policies and its instance profile. Returns why the profile cannot be referred to yet;
/// `None` when it can.
pub(crate) fn ensure_role(input: &PlanInput, builder: &mut PlanBuilder) -> Option<ProfileWait> {
    let r = input.resolved;
    let name = &r.names.role;
    let profile_role = input.observed.instance_profile.as_ref().and_then(|p| p.role.as_ref());
    let complete = profile_role.is_some_and(|role| role.name == *name);
    let had_profile = !complete && had_profile(input);
    // An existing role is owned by this group: the plan checks ownership before it gets here.
    if !complete && input.observed.role.is_none() {
        if had_profile {
            let consequence = "; nodes that run with the deleted one have lost its permissions";
            builder.events.push(recreated(&format!("the role {name}"), "DeleteRole", consequence));
        }
        let role = NewRole { name: name.clone(), trust_policy: r.trust_policy.clone(), tags: r.iam_tags() };
        builder.push_with_reasons(IamStep::CreateRole(role), vec![Drift::new("role", "", name)]);
    }
    policies(input, builder);
    if complete {
        let created = input.observed.instance_profile.as_ref().and_then(|p| p.created);
        return input.is_propagating(created).then_some(ProfileWait::New);
    }
    if input.observed.instance_profile.is_none() {
        if had_profile {
            let consequence = format!(
                ", and until it has propagated in IAM no instance can launch; nodes that were launched with the deleted one have lost its permissions, and the annotation {} replaces them",
                annotation::ROTATE_AT
            );
            builder.events.push(recreated(
                &format!("the instance profile {name}"),
                "DeleteInstanceProfile",
                &consequence,
            ));
        }
        builder.push(IamStep::CreateProfile { profile: name.clone(), tags: r.iam_tags() });
    }
    if let Some(other) = profile_role {
        builder.push_with_reasons(
            IamStep::RemoveRoleFromProfile { profile: name.clone(), role: other.name.clone() },
            vec![Drift::new("instanceProfile", &other.name, name)],
        );
    }
    if had_profile && input.observed.role.is_some() && input.observed.instance_profile.is_some() {
        builder.events.push(removed_from_profile(name, name));
    }
    builder.push(IamStep::AddRoleToProfile { profile: name.clone(), role: name.clone() });
    Some(if had_profile { ProfileWait::Deleted } else { ProfileWait::New })
}

/// Whether the group had its own role in an instance profile before: its scaling group launches with it, or nodes were
/// counted that did.
fn had_profile(input: &PlanInput) -> bool {
    let (r, state) = (input.resolved, input.observed);
    let is_recorded = input.status.nodes_instance_role_arn.as_ref() == Some(&r.role_arn);
    if state.scaling_group.is_none() {
        return is_recorded && input.status.nodes.is_some();
    }
    let pinned = pinned_version(state).and_then(|number| state.versions.get(&number)?.data.as_ref());
    pinned.is_some_and(|data| data.profile_arn == r.template_data.profile_arn) || is_recorded && was_ready(input.status)
}

/// The managed policies that a role may have by default (AWS IAM User Guide, "IAM and AWS STS quotas").
const MAX_POLICIES: usize = 10;

/// Attaches desired policies and detaches those that only the controller had attached. The nodes keep their permissions in
/// between, unless the role can only hold the new policies once the old ones are gone.
fn policies(input: &PlanInput, builder: &mut PlanBuilder) {
    let (r, attached) = (input.resolved, &input.observed.attached_policies);
    let role = &r.names.role;
    let recorded = input.status.managed.as_ref().map(|m| m.policies.as_slice()).unwrap_or_default();
    // A new role has no policies yet, and the event about the deleted one is enough.
    if was_ready(input.status) && input.observed.instance_profile.as_ref().is_some_and(|profile| profile.role.is_some())
    {
        for policy in r.managed_policies.iter().filter(|p| recorded.contains(p) && !attached.contains(p)) {
            builder.events.push(detached(policy, role));
        }
    }
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
