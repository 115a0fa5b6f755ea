//! Making a group: role, way to join, template, then the scaling group.

use sha2::{Digest, Sha256};

use super::input::PlanInput;
use super::join::{authorize, role_join};
use super::record::record_managed;
use super::resolve::ResolvedGroup;
use super::scaling_group::mixed_instances;
use crate::api::ScalingConfigurationKind;
use crate::auth::access_entries::JoinPlan;
use crate::aws::{NewRole, NewScalingGroup, NewTemplate, NewVersion, TemplatePin};
use crate::ownership::has_foreign_tags;
use crate::plan::{Drift, Event, IamStep, Outcome, Phase, PlanBuilder, Reason, Recheck, Step, waiting};
use crate::plan::{EksStep, Pin};

/// Everything up to the scaling group, which waits until IAM knows its profile.
pub fn create_group(input: &PlanInput, draft: &mut PlanBuilder) {
    let r = input.resolved;
    // While the status still has its name.
    if let Some(leftover) = &input.observed.orphaned_template {
        draft.push(EksStep::DeleteTemplate { template: leftover.id.clone() });
    }
    let joined = role_join(input).plan();
    record_managed(input, &joined, draft);
    let fresh = r.own_role && ensure_role(input, draft);
    let conflict = joined.conflict.clone();
    authorize(JoinPlan { conflict: None, ..joined }, draft);
    if let Some(detail) = conflict {
        let message = format!("{detail}; the scaling group is not created, because its nodes could not join");
        return draft.set_outcome_once(Outcome::Blocked { reason: Reason::AuthConflict, message, is_deleting: false });
    }
    let steps = draft.steps.len();
    let Some(pin) = ensure_template(input, draft) else { return };
    if draft.steps[steps..].iter().any(|s| matches!(s.step, Step::Eks(EksStep::CreateTemplate(_)))) {
        draft.events.extend(launch_configuration_unsupported(r));
    }
    if fresh {
        let recheck = Recheck::After(input.timing.iam_propagation);
        return draft.set_outcome_once(Outcome::Progressing {
            phase: Phase::Creating,
            message: "waiting for the new instance profile to propagate in IAM".into(),
            recheck,
        });
    }
    let wanted = &r.desired;
    let group = NewScalingGroup {
        name: r.names.scaling_group.clone(),
        min: wanted.min_size,
        max: wanted.max_size,
        subnets: r.subnets.clone(),
        template: TemplatePin { id: String::new(), version: String::new() },
        mixed: mixed_instances::desired_policy(input, None, true),
        tags: r.tags.clone(),
        hooks: wanted.lifecycle_hooks.clone(),
    };
    mixed_instances::record_pool(input, group.mixed.as_ref(), draft);
    let name = group.name.clone();
    draft.push(EksStep::CreateGroup { group, pin });
    if !wanted.suspended_processes.is_empty() {
        draft.push(EksStep::SuspendProcesses {
            group: name.clone(),
            processes: wanted.suspended_processes.iter().cloned().collect(),
        });
    }
    if !wanted.metrics.is_empty() {
        draft.push(EksStep::EnableMetrics { group: name, metrics: wanted.metrics.iter().cloned().collect() });
    }
    if let Some(sizes) = &wanted.warm_pool {
        draft.push(EksStep::PutWarmPool { group: r.names.scaling_group.clone(), sizes: sizes.clone(), state: None });
    }
    draft.set_outcome_once(waiting(Phase::Creating, "waiting for the first nodes"));
}

/// The role with its policies and its profile; true when the profile is too fresh to be referred to.
pub fn ensure_role(input: &PlanInput, draft: &mut PlanBuilder) -> bool {
    let r = input.resolved;
    let name = &r.names.role;
    let held = input.observed.instance_profile.as_ref().and_then(|p| p.role.as_ref());
    let complete = held.is_some_and(|role| role.name == *name);
    // One that is there is provably ours: the plan got here.
    if !complete && input.observed.role.is_none() {
        let role = NewRole { name: name.clone(), trust_policy: r.trust_policy.clone(), tags: r.ownership_tags.clone() };
        draft.push_with_reasons(IamStep::CreateRole(role), vec![Drift::new("role", "", name)]);
    }
    for policy in r.managed_policies.iter().filter(|p| !input.observed.attached_policies.contains(p)) {
        draft.push_with_reasons(
            IamStep::AttachPolicy { role: name.clone(), policy: policy.clone() },
            vec![Drift::new("managedPolicies", "", policy)],
        );
    }
    let recorded = input.status.managed.as_ref().map(|m| m.policies.as_slice()).unwrap_or_default();
    for policy in
        input.observed.attached_policies.iter().filter(|p| recorded.contains(p) && !r.managed_policies.contains(p))
    {
        draft.push_with_reasons(
            IamStep::DetachPolicy { role: name.clone(), policy: policy.clone() },
            vec![Drift::new("managedPolicies", policy, "")],
        );
    }
    if complete {
        return input.is_propagating(input.observed.instance_profile.as_ref().and_then(|p| p.created));
    }
    if input.observed.instance_profile.is_none() {
        draft.push(IamStep::CreateProfile { profile: name.clone(), tags: r.ownership_tags.clone() });
    }
    if let Some(other) = held {
        draft.push_with_reasons(
            IamStep::RemoveRoleFromProfile { profile: name.clone(), role: other.name.clone() },
            vec![Drift::new("instanceProfile", &other.name, name)],
        );
    }
    draft.push(IamStep::AddRoleToProfile { profile: name.clone(), role: name.clone() });
    true
}

/// The launch template with the wanted version; `None` when someone else has its name.
pub fn ensure_template(input: &PlanInput, draft: &mut PlanBuilder) -> Option<Pin> {
    let r = input.resolved;
    let hash = r.fingerprint.hash.clone();
    let version = |stem: &str| NewVersion {
        token: idempotency_token(&[stem, &r.desired.id.uid, &hash]),
        description: r.fingerprint.to_description(),
        data: r.template_data.clone(),
    };
    draft.status_update.fields.insert("activeLaunchTemplateName".into(), r.names.template.clone().into());
    let Some(found) = &input.observed.template else {
        let input = NewTemplate {
            name: r.names.template.clone(),
            tags: r.ownership_tags.clone(),
            version: version(&r.names.template),
        };
        draft.push(EksStep::CreateTemplate(input));
        draft.events.extend(ignored_field_events(r));
        return Some(Pin::Made { hash });
    };
    if has_foreign_tags(&found.tags, &r.ownership_tags) {
        let message = format!("the launch template {} is tagged for another group", found.name);
        draft.set_outcome_once(Outcome::Blocked { reason: Reason::OwnershipConflict, message, is_deleting: false });
        return None;
    }
    let same =
        input.observed.versions.iter().rev().find(|(_, v)| v.fingerprint.as_ref().is_some_and(|f| f.hash == hash));
    if let Some((number, _)) = same {
        return Some(Pin::Version { template: found.id.clone(), number: *number });
    }
    draft.push(EksStep::PutTemplateVersion { template: found.id.clone(), version: version(&found.id) });
    Some(Pin::Made { hash })
}

/// An idempotency token: the same inputs ask for the same thing.
pub fn idempotency_token(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    digest.iter().take(24).map(|byte| format!("{byte:02x}")).collect()
}

/// Told once with each new version: what the OS family cannot carry.
pub fn ignored_field_events(resolved: &ResolvedGroup) -> Vec<Event> {
    resolved
        .ignored_fields
        .iter()
        .map(|field| Event { warning: true, reason: "FieldIgnored".into(), message: field.to_string() })
        .collect()
}

/// Told once, with the template: what a new group asked for is not made any more.
fn launch_configuration_unsupported(resolved: &ResolvedGroup) -> Option<Event> {
    (resolved.desired.scaling_configuration == ScalingConfigurationKind::LaunchConfiguration).then(|| Event {
        warning: true,
        reason: "LaunchConfigurationUnsupported".into(),
        message: "spec.eks.type LaunchConfiguration is not supported: AWS allows no new launch configurations; the group uses an equivalent launch template instead; set the type to LaunchTemplate".into(),
    })
}
