//! Making a group: role, way to join, template, then the scaling group.

use sha2::{Digest, Sha256};

use super::input::Input;
use super::join::{authorise, joining};
use super::record::record;
use super::resolve::Resolved;
use super::scaling_group::mixed_instances;
use crate::api::ScalingConfigurationKind;
use crate::auth::access_entries::Joined;
use crate::aws::{NewRole, NewScalingGroup, NewTemplate, NewVersion, TemplatePin};
use crate::ownership::foreign;
use crate::plan::{Draft, Drift, IamStep, Outcome, Phase, Reason, Recheck, Step, Told, waiting};
use crate::plan::{EksStep, Pin};

/// Everything up to the scaling group, which waits until IAM knows its profile.
pub fn group(input: &Input, draft: &mut Draft) {
    let r = input.resolved;
    // While the status still has its name.
    if let Some(leftover) = &input.state.leftover {
        draft.step(EksStep::DeleteTemplate { template: leftover.id.clone() });
    }
    let joined = joining(input).decide();
    record(input, &joined, draft);
    let fresh = r.own_role && role(input, draft);
    let conflict = joined.conflict.clone();
    authorise(Joined { conflict: None, ..joined }, draft);
    if let Some(detail) = conflict {
        let message = format!("{detail}; the scaling group is not made, because its nodes could not join");
        return draft.decide(Outcome::Blocked { reason: Reason::AuthConflict, message, deleting: false });
    }
    let steps = draft.steps.len();
    let Some(pin) = template(input, draft) else { return };
    if draft.steps[steps..].iter().any(|s| matches!(s.step, Step::Eks(EksStep::CreateTemplate(_)))) {
        draft.events.extend(refused(r));
    }
    if fresh {
        let recheck = Recheck::After(input.timing.propagation);
        return draft.decide(Outcome::Progressing {
            phase: Phase::Creating,
            message: "waiting until IAM knows the new instance profile everywhere".into(),
            recheck,
        });
    }
    let wanted = &r.wanted;
    let group = NewScalingGroup {
        name: r.names.group.clone(),
        min: wanted.min,
        max: wanted.max,
        subnets: r.subnets.clone(),
        template: TemplatePin { id: String::new(), version: String::new() },
        mixed: mixed_instances::policy(input, None, true),
        tags: r.tags.clone(),
        hooks: wanted.hooks.clone(),
    };
    mixed_instances::record(input, group.mixed.as_ref(), draft);
    let name = group.name.clone();
    draft.step(EksStep::CreateGroup { group, pin });
    if !wanted.suspend.is_empty() {
        draft.step(EksStep::SuspendProcesses {
            group: name.clone(),
            processes: wanted.suspend.iter().cloned().collect(),
        });
    }
    if !wanted.metrics.is_empty() {
        draft.step(EksStep::EnableMetrics { group: name, metrics: wanted.metrics.iter().cloned().collect() });
    }
    if let Some(sizes) = &wanted.warm_pool {
        draft.step(EksStep::PutWarmPool { group: r.names.group.clone(), sizes: sizes.clone(), state: None });
    }
    draft.decide(waiting(Phase::Creating, "waiting for the first nodes"));
}

/// The role with its policies and its profile; true when the profile is too fresh to be referred to.
pub fn role(input: &Input, draft: &mut Draft) -> bool {
    let r = input.resolved;
    let name = &r.names.role;
    let held = input.state.profile.as_ref().and_then(|p| p.role.as_ref());
    let complete = held.is_some_and(|role| role.name == *name);
    // One that is there is provably ours: the plan got here.
    if !complete && input.state.role.is_none() {
        let role = NewRole { name: name.clone(), trust: r.trust.clone(), tags: r.ownership.clone() };
        draft.because(IamStep::CreateRole(role), vec![Drift::new("role", "", name)]);
    }
    for policy in r.policies.iter().filter(|p| !input.state.attached.contains(p)) {
        draft.because(
            IamStep::AttachPolicy { role: name.clone(), policy: policy.clone() },
            vec![Drift::new("managedPolicies", "", policy)],
        );
    }
    let recorded = input.status.managed.as_ref().map(|m| m.policies.as_slice()).unwrap_or_default();
    for policy in input.state.attached.iter().filter(|p| recorded.contains(p) && !r.policies.contains(p)) {
        draft.because(
            IamStep::DetachPolicy { role: name.clone(), policy: policy.clone() },
            vec![Drift::new("managedPolicies", policy, "")],
        );
    }
    if complete {
        return input.is_young(input.state.profile.as_ref().and_then(|p| p.created));
    }
    if input.state.profile.is_none() {
        draft.step(IamStep::CreateProfile { profile: name.clone(), tags: r.ownership.clone() });
    }
    if let Some(other) = held {
        draft.because(
            IamStep::RemoveRoleFromProfile { profile: name.clone(), role: other.name.clone() },
            vec![Drift::new("instanceProfile", &other.name, name)],
        );
    }
    draft.step(IamStep::AddRoleToProfile { profile: name.clone(), role: name.clone() });
    true
}

/// The launch template with the wanted version; `None` when someone else has its name.
pub fn template(input: &Input, draft: &mut Draft) -> Option<Pin> {
    let r = input.resolved;
    let hash = r.fingerprint.hash.clone();
    let version = |stem: &str| NewVersion {
        token: token(&[stem, &r.wanted.id.uid, &hash]),
        description: r.fingerprint.line(),
        data: r.data.clone(),
    };
    draft.facts.status.insert("activeLaunchTemplateName".into(), r.names.template.clone().into());
    let Some(found) = &input.state.template else {
        let input = NewTemplate {
            name: r.names.template.clone(),
            tags: r.ownership.clone(),
            version: version(&r.names.template),
        };
        draft.step(EksStep::CreateTemplate(input));
        draft.events.extend(ignored(r));
        return Some(Pin::Made { hash });
    };
    if foreign(&found.tags, &r.ownership) {
        let message = format!("the launch template {} carries another group's tags", found.name);
        draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: false });
        return None;
    }
    let same = input.state.versions.iter().rev().find(|(_, v)| v.fingerprint.as_ref().is_some_and(|f| f.hash == hash));
    if let Some((number, _)) = same {
        return Some(Pin::Version { template: found.id.clone(), number: *number });
    }
    draft.step(EksStep::PutTemplateVersion { template: found.id.clone(), version: version(&found.id) });
    Some(Pin::Made { hash })
}

/// An idempotency token: the same inputs ask for the same thing.
pub fn token(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    digest.iter().take(24).map(|byte| format!("{byte:02x}")).collect()
}

/// Told once with each new version: what the OS family cannot carry.
pub fn ignored(resolved: &Resolved) -> Vec<Told> {
    resolved
        .ignored
        .iter()
        .map(|field| Told { warning: true, reason: "FieldIgnored".into(), message: field.to_string() })
        .collect()
}

/// Told once, with the template: what a new group asked for is not made any more.
fn refused(resolved: &Resolved) -> Option<Told> {
    (resolved.wanted.kind == ScalingConfigurationKind::LaunchConfiguration).then(|| Told {
        warning: true,
        reason: "LaunchConfigurationClosed".into(),
        message: "spec.eks.type LaunchConfiguration: AWS has closed launch configurations; the group is made with a launch template instead, which holds the same; set the type to LaunchTemplate".into(),
    })
}
