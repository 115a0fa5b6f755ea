//! Taking a group down: its profiles one after the other, then the way to join, then the role, and nothing that is not
//! ours. Pure.

use jiff::Timestamp;
use serde_json::json;

use super::observed::FormerRole;
use super::ownership;
use super::ownership::Left;
use super::plan::failed;
use super::profile_slot::{Again, Turn};
use super::role;
use crate::api::InstanceGroupStatus;
use crate::api::spec_error;
use crate::api::spec_error::{Problem, sentence};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::fargate::{FargateProfile, ProfileStatus};
use crate::aws::{AccessEntry, Tag};
use crate::index::groups::Queue;
use crate::ownership::untaggable;
use crate::plan::FargateStep;
use crate::plan::{Draft, Drift, IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, Told, waiting};
use crate::provisioner::join::goes_after;
use crate::provisioner::{GroupId, never_accepted};
use crate::settings::Timing;

/// Everything that the plan of a deletion depends on.
pub struct Input<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// The EKS cluster's name.
    pub cluster: &'a str,
    /// The tags that prove that something is ours.
    pub ownership: &'a [Tag],
    /// What the admin's policy forbids of the spec.
    pub forbidden: &'a [Problem],
    /// The profiles.
    pub profiles: &'a Left,
    /// The role of the one that another controller made, when it was derived for this group and carries nobody's tags.
    pub untagged_role: Option<&'a str>,
    /// Our own role; looked at once the profiles are gone.
    pub role: Option<&'a FormerRole>,
    /// Our own role's name, when another group uses it: it stays.
    pub role_in_use: Option<&'a str>,
    /// Our entries in aws-auth that nothing else uses.
    pub auth: &'a [AuthEntry],
    /// Our access entries that nothing else uses.
    pub access: &'a [AccessEntry],
    /// A group that has to be gone before an entry that both need may go.
    pub after: Option<&'a str>,
    /// AWS refused to tag the profile that another controller made, less than a resync period ago.
    pub tagging_rests: bool,
    /// Where it stands among the groups of the cluster that wait for EKS.
    pub queue: Queue,
    /// What the status remembers.
    pub status: &'a InstanceGroupStatus,
    /// How long things take.
    pub timing: &'a Timing,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Plans one pass of a deletion.
pub fn plan(input: &Input) -> Plan {
    let mut draft = Draft::default();
    let mut turn = Turn::new(input.status.fargate.as_ref(), input.queue, input.timing, input.now);
    let mut wake = None;
    let Left { own, untagged, unproven } = input.profiles;
    match (untagged, unproven, own.as_slice()) {
        (Some(profile), ..) => claim(input, profile, &mut draft),
        (None, Some(profile), _) => {
            draft.decide(unbelieved(profile, input.forbidden));
            return draft.finish(input.id, None);
        }
        _ if !ownership::made(input.status) && !input.forbidden.is_empty() => {
            return never_accepted(input.id, input.forbidden);
        }
        (None, None, []) => rest(input, &mut draft),
        (None, None, own) => wake = next(input, own, &mut turn, &mut draft),
    }
    turn.status.cluster = Some(input.cluster.to_owned());
    draft.facts.status.insert("fargate".into(), json!(turn.status));
    draft.finish(input.id, wake)
}

/// A spec that is refused may name anybody's role: what it says proves nothing, and may be true.
fn unbelieved(profile: &FargateProfile, forbidden: &[Problem]) -> Outcome {
    let message = format!(
        "the Fargate profile {} has the name that is derived for this group and the role that its spec names, and nothing else says whose it is while that spec is refused: {}. Mend that, or delete the profile, and the deletion goes on",
        profile.name,
        sentence(forbidden)
    );
    Outcome::Blocked { reason: spec_error::reason(forbidden), message, deleting: true }
}

/// What another controller made is tagged before it is deleted, so that it stays provable whose it and its role were.
fn claim(input: &Input, profile: &FargateProfile, draft: &mut Draft) {
    if input.tagging_rests {
        return draft.decide(untaggable(true, false, true));
    }
    // A spec that is refused finds what is tagged by the record alone.
    if ownership::recorded(input.status).is_none() {
        draft.step(ObjectStep::Record { status: json!({ "fargate": { "cluster": input.cluster } }) });
    }
    draft.step(FargateStep::TagFargateProfile {
        cluster: input.cluster.to_owned(),
        profile: profile.name.clone(),
        arn: profile.arn.clone(),
        tags: input.ownership.to_vec(),
    });
    if let Some(role) = input.untagged_role {
        draft.step(IamStep::TagRole { role: role.to_owned(), tags: input.ownership.to_vec() });
    }
    let message = format!(
        "the Fargate profile {} is deleted once it is tagged as this group's; for that the controller needs eks:TagResource",
        profile.name
    );
    draft.decide(waiting(Phase::Deleting, message));
}

/// The next profile; a moment to wake at when EKS failed with it.
fn next(input: &Input, profiles: &[FargateProfile], turn: &mut Turn, draft: &mut Draft) -> Option<Timestamp> {
    let in_status = |status| profiles.iter().find(|p| p.status == status);
    for (status, does) in [(ProfileStatus::Creating, "makes"), (ProfileStatus::Deleting, "deletes")] {
        if let Some(profile) = in_status(status) {
            turn.hold();
            draft.decide(waiting(Phase::Deleting, format!("EKS {does} the Fargate profile {}", profile.name)));
            return None;
        }
    }
    let stuck = in_status(ProfileStatus::DeleteFailed);
    if let Some(profile) = stuck
        && let Again::At(at) = turn.failed()
    {
        draft.decide(failed(profile, at, true));
        return Some(at);
    }
    if stuck.is_none() {
        turn.goes_on();
    }
    let profile = stuck.or(profiles.first())?;
    if let Err(outcome) = turn.ask(Phase::Deleting) {
        draft.decide(outcome);
        return None;
    }
    let step = FargateStep::DeleteFargateProfile {
        cluster: input.cluster.to_owned(),
        profile: profile.name.clone(),
        serves: profile.status != ProfileStatus::CreateFailed,
    };
    draft.because(step, vec![Drift::new("InstanceGroup", "present", "deleted")]);
    draft.decide(waiting(Phase::Deleting, format!("EKS deletes the Fargate profile {}", profile.name)));
    None
}

/// The plan of a group for which nothing was made.
pub fn nothing(id: &GroupId) -> Plan {
    let mut draft = Draft::default();
    if id.finalizer {
        draft.step(ObjectStep::RemoveFinalizer);
    }
    draft.decide(Outcome::Deleted);
    draft.finish(id, None)
}

/// With the profiles gone: the way to join, the role, the finalizer.
fn rest(input: &Input, draft: &mut Draft) {
    if let Some(other) = input.after {
        return draft.decide(goes_after(other));
    }
    for entry in input.auth {
        draft.step(JoinStep::RemoveAuthEntry(entry.clone()));
    }
    for AccessEntry { principal, .. } in input.access {
        draft.step(JoinStep::RemoveAccessEntry { cluster: input.cluster.to_owned(), principal: principal.clone() });
    }
    if let Some(former) = input.role {
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
        draft.events.push(Told { warning: true, reason: "RoleKept".into(), message });
    }
    if input.id.finalizer {
        draft.step(ObjectStep::RemoveFinalizer);
    }
    draft.decide(Outcome::Deleted);
}
