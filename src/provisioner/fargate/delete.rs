//! Taking a group down: its profiles one after the other, then the way to join, then the role, and nothing that is not
//! ours. Pure.

use jiff::Timestamp;
use serde_json::json;

use super::observed::PreviousRole;
use super::ownership;
use super::ownership::RemainingProfiles;
use super::plan::profile_failed;
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
use crate::plan::{Drift, Event, IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, PlanBuilder, waiting};
use crate::provisioner::join::wait_for_group;
use crate::provisioner::{GroupId, plan_rejected_spec};
use crate::settings::Timing;

/// Everything that the plan of a deletion depends on.
pub struct DeleteInput<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// The EKS cluster's name.
    pub cluster: &'a str,
    /// The tags that prove that something is ours.
    pub ownership_tags: &'a [Tag],
    /// What the admin's policy forbids of the spec.
    pub forbidden: &'a [SpecError],
    /// The profiles.
    pub profiles: &'a RemainingProfiles,
    /// The role of the one that another controller made, when it was derived for this group and carries nobody's tags.
    pub untagged_role: Option<&'a str>,
    /// Our own role; looked at once the profiles are gone.
    pub previous_role: Option<&'a PreviousRole>,
    /// Our own role's name, when another group uses it: it stays.
    pub role_in_use: Option<&'a str>,
    /// Our entries in aws-auth that nothing else uses.
    pub aws_auth_entries: &'a [AuthEntry],
    /// Our access entries that nothing else uses.
    pub access_entries: &'a [AccessEntry],
    /// A group that has to be gone before an entry that both need may go.
    pub wait_for: Option<&'a str>,
    /// AWS refused to tag the profile that another controller made, less than a resync period ago.
    pub tag_retry_pending: bool,
    /// Where it stands among the groups of the cluster that wait for EKS.
    pub queue_position: QueuePosition,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// How long things take.
    pub timing: &'a Timing,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Plans one pass of a deletion.
pub fn plan(input: &DeleteInput) -> Plan {
    let mut draft = PlanBuilder::default();
    let mut turn = ProfileSlot::new(input.status.fargate.as_ref(), input.queue_position, input.timing, input.now);
    let mut wake = None;
    let RemainingProfiles { own, untagged, unverified } = input.profiles;
    match (untagged, unverified, own.as_slice()) {
        (Some(profile), ..) => tag_before_delete(input, profile, &mut draft),
        (None, Some(profile), _) => {
            draft.set_outcome_once(unverified_profile(profile, input.forbidden));
            return draft.build(input.id, None);
        }
        _ if !ownership::has_created_resources(input.status) && !input.forbidden.is_empty() => {
            return plan_rejected_spec(input.id, input.forbidden);
        }
        (None, None, []) => delete_supporting_resources(input, &mut draft),
        (None, None, own) => wake = delete_next_profile(input, own, &mut turn, &mut draft),
    }
    turn.status.cluster = Some(input.cluster.to_owned());
    draft.status_update.fields.insert("fargate".into(), json!(turn.status));
    draft.build(input.id, wake)
}

/// A spec that is refused may name anybody's role: what it says proves nothing, and may be true.
fn unverified_profile(profile: &FargateProfile, forbidden: &[SpecError]) -> Outcome {
    let message = format!(
        "the Fargate profile {} has the name that is derived for this group and the role that its spec names, and nothing else says whose it is while that spec is refused: {}. Mend that, or delete the profile, and the deletion goes on",
        profile.name,
        join_messages(forbidden)
    );
    Outcome::Blocked { reason: spec_error::first_reason(forbidden), message, is_deleting: true }
}

/// What another controller made is tagged before it is deleted, so that it stays provable whose it and its role were.
fn tag_before_delete(input: &DeleteInput, profile: &FargateProfile, draft: &mut PlanBuilder) {
    if input.tag_retry_pending {
        return draft.set_outcome_once(tagging_blocked(true, false, true));
    }
    // A spec that is refused finds what is tagged by the record alone.
    if ownership::recorded_cluster(input.status).is_none() {
        draft.push(ObjectStep::Record { status: json!({ "fargate": { "cluster": input.cluster } }) });
    }
    draft.push(FargateStep::TagFargateProfile {
        cluster: input.cluster.to_owned(),
        profile: profile.name.clone(),
        arn: profile.arn.clone(),
        tags: input.ownership_tags.to_vec(),
    });
    if let Some(role) = input.untagged_role {
        draft.push(IamStep::TagRole { role: role.to_owned(), tags: input.ownership_tags.to_vec() });
    }
    let message = format!(
        "the Fargate profile {} is deleted once it is tagged as this group's; for that the controller needs eks:TagResource",
        profile.name
    );
    draft.set_outcome_once(waiting(Phase::Deleting, message));
}

/// The next profile; a moment to wake at when EKS failed with it.
fn delete_next_profile(
    input: &DeleteInput,
    profiles: &[FargateProfile],
    turn: &mut ProfileSlot,
    draft: &mut PlanBuilder,
) -> Option<Timestamp> {
    let in_status = |status| profiles.iter().find(|p| p.status == status);
    for (status, does) in [(ProfileStatus::Creating, "makes"), (ProfileStatus::Deleting, "deletes")] {
        if let Some(profile) = in_status(status) {
            turn.keep();
            draft
                .set_outcome_once(waiting(Phase::Deleting, format!("EKS {does} the Fargate profile {}", profile.name)));
            return None;
        }
    }
    let stuck = in_status(ProfileStatus::DeleteFailed);
    if let Some(profile) = stuck
        && let Retry::At(at) = turn.record_failure()
    {
        draft.set_outcome_once(profile_failed(profile, at, true));
        return Some(at);
    }
    if stuck.is_none() {
        turn.clear_retry();
    }
    let profile = stuck.or(profiles.first())?;
    if let Err(outcome) = turn.acquire(Phase::Deleting) {
        draft.set_outcome_once(outcome);
        return None;
    }
    let step = FargateStep::DeleteFargateProfile {
        cluster: input.cluster.to_owned(),
        profile: profile.name.clone(),
        may_run_pods: profile.status != ProfileStatus::CreateFailed,
    };
    draft.push_with_reasons(step, vec![Drift::new("InstanceGroup", "present", "deleted")]);
    draft.set_outcome_once(waiting(Phase::Deleting, format!("EKS deletes the Fargate profile {}", profile.name)));
    None
}

/// The plan of a group for which nothing was made.
pub fn plan_nothing_to_delete(id: &GroupId) -> Plan {
    let mut draft = PlanBuilder::default();
    if id.has_finalizer {
        draft.push(ObjectStep::RemoveFinalizer);
    }
    draft.set_outcome_once(Outcome::Deleted);
    draft.build(id, None)
}

/// With the profiles gone: the way to join, the role, the finalizer.
fn delete_supporting_resources(input: &DeleteInput, draft: &mut PlanBuilder) {
    if let Some(other) = input.wait_for {
        return draft.set_outcome_once(wait_for_group(other));
    }
    for entry in input.aws_auth_entries {
        draft.push(JoinStep::RemoveAwsAuthEntry(entry.clone()));
    }
    for AccessEntry { principal, .. } in input.access_entries {
        draft.push(JoinStep::RemoveAccessEntry { cluster: input.cluster.to_owned(), principal: principal.clone() });
    }
    if let Some(former) = input.previous_role {
        let ours = input.status.managed.clone().unwrap_or_default().policies;
        role::delete(former, &ours, true, draft);
    }
    if draft.outcome.is_some() {
        return;
    }
    if let Some(role) = input.role_in_use {
        let message = format!(
            "the role {role} stays, because another group names it in spec.eks-fargate.podExecutionRoleArn; remove it by hand once that has another"
        );
        draft.events.push(Event::warning("RoleRetained", message));
    }
    if input.id.has_finalizer {
        draft.push(ObjectStep::RemoveFinalizer);
    }
    draft.set_outcome_once(Outcome::Deleted);
}
