//! Events about resources that were deleted, mostly by another client, and that the controller creates again. An event
//! about the creation alone would look like a first creation, and would not point at the deletion.

use crate::api::InstanceGroupStatus;
use crate::api::names::condition;
use crate::auth::access_entries::{AccessEntryState, JoinPlan, JoinPlanner};
use crate::auth::aws_auth::AuthEntryState;
use crate::plan::{Event, EventReason, JoinStep, Plan, Step};

const REASON: EventReason = EventReason::ResourceRecreated;

/// Drops these events from the plan when the spec differs from that of the last report. A process that stopped in
/// between may have recorded names that it never created.
pub(crate) fn drop_events(plan: &mut Plan) {
    plan.events.retain(|event| !event.has_reason(REASON));
}

/// The event about a resource that was deleted; `call` is the API call that deletes it.
pub(crate) fn recreated(what: &str, call: &str, consequence: &str) -> Event {
    let message = format!(
        "{what} was deleted by another client; the controller creates it again{consequence}; CloudTrail names who called {call}"
    );
    Event::warning(REASON, message)
}

/// The event about a resource that the controller itself deleted because it was of no use.
pub(crate) fn deleted_by_controller(what: &str, why: &str, consequence: &str) -> Event {
    let message = format!("the controller deleted {what}, because {why}, and creates it again{consequence}");
    Event::warning(REASON, message)
}

/// The event about a resource whose deletion AWS has not finished.
pub(crate) fn deletion_in_progress(what: &str, call: &str) -> Event {
    let message = format!(
        "{what} is being deleted by another client; the controller creates it again after that; CloudTrail names who called {call}"
    );
    Event::warning(REASON, message)
}

/// The event about a policy that was detached from the group's role.
pub(crate) fn detached(policy: &str, role: &str) -> Event {
    let message = format!(
        "the policy {policy} was detached from the role {role} by another client; the controller attaches it again; CloudTrail names who called DetachRolePolicy"
    );
    Event::warning(REASON, message)
}

/// The event about a role that was taken out of the group's instance profile.
pub(crate) fn removed_from_profile(role: &str, profile: &str) -> Event {
    let message = format!(
        "the role {role} was removed from the instance profile {profile} by another client; the controller adds it again; until then, instances of the group get no credentials; CloudTrail names who called RemoveRoleFromInstanceProfile"
    );
    Event::warning(REASON, message)
}

/// Whether the last pass left everything as desired. What the status records was there then: it is recorded before it is
/// created, so the record alone does not prove that.
pub(crate) fn was_ready(status: &InstanceGroupStatus) -> bool {
    status.conditions.iter().any(|condition| condition.r#type == condition::READY && condition.is_true())
}

/// The events about deleted entries of the role that the controller had created. An entry of a shared role may have
/// been removed with another group.
pub(crate) fn entries(planner: &JoinPlanner, joined: &JoinPlan, status: &InstanceGroupStatus) -> Vec<Event> {
    let observed = planner.observed;
    let Some(managed) = status.managed.as_ref().filter(|_| !observed.is_shared) else {
        return Vec::new();
    };
    // No watch reports the deletion, so the nodes may have lost access earlier.
    let was_seen = status.join.as_ref().is_some_and(|join| join.access_entry.is_some());
    let role = &planner.auth_entry.role_arn;
    let puts = |is_put: fn(&Step) -> bool| joined.steps.iter().any(|planned| is_put(&planned.step));
    let had_auth_entry =
        was_ready(status) && managed.auth_entries.contains(role) && observed.auth_entry == AuthEntryState::Absent;
    let had_access_entry = (was_ready(status) || was_seen)
        && managed.access_entries.contains(role)
        && observed.access_entry == AccessEntryState::Absent;
    let mut events = Vec::new();
    if had_auth_entry && puts(|step| matches!(step, Step::Join(JoinStep::PutAwsAuthEntry(_)))) {
        let message = format!(
            "the entry of {role} in aws-auth was deleted by another client; the controller adds it again; nodes could not join until then; the audit log of the API server names who changed the ConfigMap kube-system/aws-auth"
        );
        events.push(Event::warning(REASON, message));
    }
    if had_access_entry && puts(|step| matches!(step, Step::Join(JoinStep::PutAccessEntry(_)))) {
        let what = format!("the access entry of {role}");
        events.push(recreated(
            &what,
            "DeleteAccessEntry",
            "; nodes could not join until then, and lost access to the cluster",
        ));
    }
    events
}
