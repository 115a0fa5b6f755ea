//! Plans the deletion of a group: its profiles one at a time, then its join entries, then its role. Resources that the
//! group does not own are kept. Pure.

use jiff::Timestamp;
use serde_json::json;

use super::health::profile_failed;
use super::observed::PreviousRole;
use super::ownership;
use super::ownership::RemainingProfiles;
use super::profile_slot::{ProfileSlot, Retry};
use super::role;
use crate::api::InstanceGroupStatus;
use crate::api::spec_error;
use crate::api::spec_error::{SpecError, join_messages};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{AccessEntry, Tag};
use crate::index::groups::QueuePosition;
use crate::ownership::tagging_blocked;
use crate::plan::FargateStep;
use crate::plan::{
    Drift, Event, EventReason, IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, PlanBuilder, waiting,
};
use crate::provisioner::join::{wait_for_aws_auth, wait_for_group};
use crate::provisioner::retained::{Retained, report_retained};
use crate::provisioner::role_users::KeptEntry;
use crate::provisioner::{GroupId, plan_rejected_spec};
use crate::settings::Timing;

/// Everything that the plan of a deletion depends on.
pub struct DeleteInput<'a> {
    /// The group to delete.
    pub id: &'a GroupId,
    /// The EKS cluster's name.
    pub cluster: &'a str,
    /// The tags that prove that this group owns a resource.
    pub ownership_tags: &'a [Tag],
    /// Violations of the admin's policy in the spec.
    pub forbidden: &'a [SpecError],
    /// The group's remaining profiles.
    pub profiles: &'a RemainingProfiles,
    /// A recorded profile that EKS does not show; it may have been created right before the deletion.
    pub unseen: Option<&'a str>,
    /// The role of an adopted profile, if it has the name derived for this group and no ownership tags.
    pub untagged_role: Option<&'a str>,
    /// The controller-created role; read once the profiles are deleted.
    pub previous_role: Option<&'a PreviousRole>,
    /// The name of the recorded role, if its tags do not show anymore that it is the group's. The role is then kept.
    pub unproven_role: Option<&'a str>,
    /// The controller-created role if others use it, by name, and who does. The role is then kept.
    pub role_in_use: Option<(&'a str, &'a str)>,
    /// The group's aws-auth entries that no other group uses.
    pub aws_auth_entries: &'a [AuthEntry],
    /// The group's access entries that no other group uses.
    pub access_entries: &'a [AccessEntry],
    /// The group's entries that stay because another profile uses the role.
    pub kept_entries: &'a [KeptEntry],
    /// ARNs of the roles whose entry in aws-auth stays because a person changed it.
    pub modified_auth_entries: &'a [String],
    /// Another group that must be deleted before a shared entry can be removed.
    pub wait_for: Option<&'a str>,
    /// Why the group's entries in aws-auth cannot be searched for, if they may exist.
    pub unreadable_aws_auth: Option<&'a str>,
    /// AWS denied tagging the adopted profile less than one resync period ago.
    pub tag_retry_pending: bool,
    /// The group's position in the cluster's queue for Fargate profile operations.
    pub queue_position: QueuePosition,
    /// The group's status.
    pub status: &'a InstanceGroupStatus,
    /// Configured delays and timeouts.
    pub timing: &'a Timing,
    /// Reference time of this reconcile.
    pub now: Timestamp,
}

/// Plans one reconcile of a deletion.
pub fn plan(input: &DeleteInput) -> Plan {
    let mut builder = PlanBuilder::default();
    let mut slot = ProfileSlot::new(input.status.fargate.as_ref(), input.queue_position, input.timing, input.now);
    let (mut recheck_at, mut may_have_profile) = (None, true);
    let RemainingProfiles { own, untagged, unverified, disowned, contested, rivals } = input.profiles;
    let contested = || {
        let profile = contested.as_ref()?;
        Some(ownership::contested_profile(profile, rivals, input.ownership_tags, true))
    };
    match (untagged, unverified, own.as_slice()) {
        (Some(profile), ..) => tag_before_delete(input, profile, &mut builder),
        (None, Some(profile), _) => {
            builder.set_outcome_once(unverified_profile(profile, input.forbidden));
            return builder.build(input.id, None);
        }
        _ if !ownership::has_created_resources(input.status) && !input.forbidden.is_empty() => {
            return plan_rejected_spec(input.id, input.forbidden);
        }
        (None, None, []) => {
            match ownership::ownership_conflict(disowned, input.ownership_tags, true).or_else(contested) {
                Some(conflict) => {
                    // A recorded cluster makes this group a rival of the group that created the profile.
                    may_have_profile = ownership::has_created_resources(input.status);
                    builder.set_outcome_once(conflict);
                }
                None => match input.unseen {
                    Some(unseen) => builder.set_outcome_once(wait_for_unlisted_profile(unseen)),
                    None => delete_supporting_resources(input, &mut builder),
                },
            }
        }
        (None, None, own) => recheck_at = delete_next_profile(input, own, &mut slot, &mut builder),
    }
    if may_have_profile {
        slot.status.cluster = Some(input.cluster.to_owned());
    }
    builder.set_status("fargate", slot.status);
    builder.build(input.id, recheck_at)
}

/// Nothing would delete the profile once the finalizer is gone.
fn wait_for_unlisted_profile(profile: &str) -> Outcome {
    let message = format!(
        "EKS does not show the Fargate profile {profile}, which may just have been created; looking for it again"
    );
    waiting(Phase::Deleting, message)
}

/// Blocks the deletion of a profile whose only link to this group is a role named in a rejected spec. Such a spec may name
/// any role, so it does not prove ownership.
fn unverified_profile(profile: &FargateProfile, forbidden: &[SpecError]) -> Outcome {
    let message = format!(
        "cannot verify the owner of the Fargate profile {}: only its derived name and the role in the spec link it to this group, and the spec is rejected: {}. Fix the spec or delete the profile, then the deletion continues",
        profile.name,
        join_messages(forbidden)
    );
    Outcome::Blocked { reason: spec_error::first_reason(forbidden), message, is_deleting: true }
}

/// Tags an adopted profile before it is deleted, so that ownership of the profile and its role stays provable.
fn tag_before_delete(input: &DeleteInput, profile: &FargateProfile, builder: &mut PlanBuilder) {
    if input.tag_retry_pending {
        return builder.set_outcome_once(tagging_blocked(true, false, true));
    }
    // If the spec is rejected later, this record is the only way to find the tagged resources.
    if ownership::recorded_cluster(input.status).is_none() {
        builder.record(json!({ "fargate": { "cluster": input.cluster } }));
    }
    builder.push(FargateStep::TagFargateProfile {
        cluster: input.cluster.to_owned(),
        profile: profile.name.clone(),
        arn: profile.arn.clone(),
        tags: input.ownership_tags.to_vec(),
    });
    if let Some(role) = input.untagged_role {
        builder.push(IamStep::TagRole { role: role.to_owned(), tags: input.ownership_tags.to_vec() });
    }
    let message = format!(
        "the controller tags the Fargate profile {} as this group's before it deletes it, which needs eks:TagResource",
        profile.name
    );
    builder.set_outcome_once(waiting(Phase::Deleting, message));
}

/// Deletes the next profile. Returns the time of the next attempt if EKS failed to delete it.
fn delete_next_profile(
    input: &DeleteInput,
    profiles: &[FargateProfile],
    slot: &mut ProfileSlot,
    builder: &mut PlanBuilder,
) -> Option<Timestamp> {
    let in_status = |status| profiles.iter().find(|p| p.status == status);
    for (status, verb) in [(ProfileStatus::Creating, "creating"), (ProfileStatus::Deleting, "deleting")] {
        if let Some(profile) = in_status(status) {
            slot.keep();
            // The attempt is made; should EKS fail again, that is another failure.
            if in_status(ProfileStatus::DeleteFailed).is_none() {
                slot.clear_retry();
            }
            let message = format!("EKS is {verb} the Fargate profile {}", profile.name);
            builder.set_outcome_once(waiting(Phase::Deleting, message));
            return None;
        }
    }
    let stuck = in_status(ProfileStatus::DeleteFailed);
    if let Some(profile) = stuck
        && let Retry::At(at) = slot.record_failure()
    {
        builder.set_outcome_once(profile_failed(profile, at, true));
        return Some(at);
    }
    if stuck.is_none() {
        slot.clear_retry();
    }
    let profile = stuck.or(profiles.first())?;
    if let Err(outcome) = slot.acquire(Phase::Deleting) {
        builder.set_outcome_once(outcome);
        return None;
    }
    let step = FargateStep::DeleteFargateProfile {
        cluster: input.cluster.to_owned(),
        profile: profile.name.clone(),
        may_run_pods: profile.status != ProfileStatus::CreateFailed,
    };
    builder.push_with_reasons(step, vec![Drift::new("InstanceGroup", "present", "deleted")]);
    builder.set_outcome_once(waiting(Phase::Deleting, format!("EKS is deleting the Fargate profile {}", profile.name)));
    None
}

/// Once the profiles are deleted: removes the join entries, the role, and the finalizer.
fn delete_supporting_resources(input: &DeleteInput, builder: &mut PlanBuilder) {
    if let Some(other) = input.wait_for {
        return builder.set_outcome_once(wait_for_group(other));
    }
    if let Some(problem) = input.unreadable_aws_auth {
        return builder.set_outcome_once(wait_for_aws_auth(problem));
    }
    for entry in input.aws_auth_entries {
        builder.push(JoinStep::RemoveAwsAuthEntry(entry.clone()));
    }
    for AccessEntry { principal, .. } in input.access_entries {
        builder.push(JoinStep::RemoveAccessEntry { cluster: input.cluster.to_owned(), principal: principal.clone() });
    }
    let mut kept: Vec<_> = input.kept_entries.iter().map(Retained::from).collect();
    kept.extend(input.modified_auth_entries.iter().map(|arn| Retained::modified_entry(arn)));
    if let Some(PreviousRole { role, other_region: Some(other), .. }) = input.previous_role {
        kept.push(Retained::role(format!("the IAM role {}", role.name), other));
    } else if let Some(previous) = input.previous_role {
        let recorded = input.status.managed.clone().unwrap_or_default().policies;
        role::delete(previous, &recorded, builder);
    }
    report_retained(input.status, &kept, builder);
    if builder.outcome().is_some() {
        return;
    }
    if let Some((role, user)) = input.role_in_use {
        let message = format!("keeping the role {role}: {user} uses it; delete it manually once nothing uses it");
        builder.events.push(Event::warning(EventReason::RoleRetained, message));
    }
    if let Some(role) = input.unproven_role {
        let message =
            format!("keeping the role {role}: its tags do not show that it is this group's; delete it manually");
        builder.events.push(Event::warning(EventReason::RoleRetained, message));
    }
    if input.id.has_finalizer {
        builder.push(ObjectStep::RemoveFinalizer);
    }
    builder.set_outcome_once(Outcome::Deleted);
}
