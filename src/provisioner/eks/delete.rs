//! Taking a group down: drain, then remove what we made and nothing else.
//!
//! It needs no valid spec: names come from the status, which had them before
//! anything was made.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::launch_configuration;
use crate::api::AdoptedResources;
use crate::api::names::FINALIZER;
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessEntry, InstanceProfile, InstanceState, LaunchTemplate, Role, ScalingGroup, ScalingGroupChange, Tag,
};
use crate::ownership;
use crate::ownership::{Claim, claim, owned, proven};
use crate::plan::EksStep;
use crate::plan::{
    Draft, Drift, IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, Planned, Reason, Recheck, Told, waiting,
};
use crate::provisioner::GroupId;
use crate::provisioner::join::goes_after;
use crate::rotation::drain::{AtTimeout, DrainPolicy};
use crate::rotation::rolling_update;
use crate::rotation::rolling_update::report::{contested, named};
use crate::rotation::rolling_update::{Victims, decide};
use crate::rotation::{Drains, Fleet, Member};
use crate::settings::Timing;

/// Everything that the plan of a deletion depends on.
pub struct Input<'a> {
    /// Which group.
    pub id: &'a GroupId,
    /// The tags that prove that something is ours.
    pub ownership: &'a [Tag],
    /// The scaling group.
    pub group: Option<&'a ScalingGroup>,
    /// Its instances with their nodes.
    pub members: &'a [Member],
    /// What is on the nodes that carry our record.
    pub drains: &'a Drains,
    /// The launch template, tags included.
    pub template: Option<&'a LaunchTemplate>,
    /// The launch configurations that are recorded as this group's.
    pub configurations: &'a [String],
    /// The role of the derived name, tags included; asked for once the scaling group is gone.
    pub role: Option<&'a Role>,
    /// What is attached to it.
    pub attached: &'a [String],
    /// The policies on it that we may take off.
    pub our_policies: &'a [String],
    /// Its inline policies.
    pub inline: &'a [String],
    /// The profile of the derived name, tags included.
    pub profile: Option<&'a InstanceProfile>,
    /// What was taken over, and may lack tags.
    pub adopted: &'a AdoptedResources,
    /// Our entries in aws-auth that nothing else uses.
    pub auth: &'a [AuthEntry],
    /// Our access entries that nothing else uses.
    pub access: &'a [AccessEntry],
    /// A group that has to be gone before an entry that both need may go.
    pub after: Option<&'a str>,
    /// How many nodes may go at once is everyone; how long things take.
    pub timing: &'a Timing,
    /// The moment of the decision.
    pub now: Timestamp,
}

/// Whether a policy is one that every node's role gets.
pub fn standard(arn: &str) -> bool {
    ["/AmazonEKSWorkerNodePolicy", "/AmazonEC2ContainerRegistryReadOnly", "/AmazonEKS_CNI_Policy"]
        .iter()
        .any(|name| arn.ends_with(name))
}

/// Plans one pass of a deletion.
pub fn plan(input: &Input) -> Plan {
    let mut draft = Draft::default();
    match input.group {
        Some(group) if group.deleting => {
            draft.decide(waiting(Phase::Deleting, format!("AWS deletes the scaling group {}", group.name)))
        }
        Some(group) => match claim(&group.name, &group.tags, input.ownership) {
            Claim::Ours => empty(input, group, &mut draft),
            Claim::Damaged(_) => unproven(input, group, &mut draft),
            // Whoever took its tags off, its nodes run by what would go.
            Claim::Nobodys if launches_ours(input, group) => unproven(input, group, &mut draft),
            Claim::Nobodys | Claim::Theirs => rest(input, &mut draft),
        },
        None => rest(input, &mut draft),
    }
    draft.decide(Outcome::Deleted);
    draft.finish(input.id, None)
}

/// Nothing goes from under the nodes of a scaling group that may be this group's.
fn unproven(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let what = ownership::unproven(&group.name, &group.tags, input.ownership).unwrap_or_default();
    let remedy = if launches_ours(input, group) {
        format!(
            "it launches from what is this group's: to delete it, put its tags back, and the deletion goes on; to keep it, take the finalizer {FINALIZER} off the InstanceGroup"
        )
    } else {
        "if it is this group's, put its tags back, and the deletion goes on, else take those tags off that it has"
            .into()
    };
    let message = format!("{what}; {remedy}");
    draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: true });
}

/// Whether a scaling group without its tags launches from what is this group's.
fn launches_ours(input: &Input, group: &ScalingGroup) -> bool {
    let recorded = input.adopted.template.as_ref();
    let template = input.template.filter(|t| proven(&t.id, &t.tags, recorded, input.ownership));
    let pin = group.template.as_ref();
    pin.is_some_and(|pin| template.is_some_and(|t| t.id == pin.id))
        || launch_configuration::of(group).is_some_and(|name| input.configurations.iter().any(|known| known == name))
}

fn empty(input: &Input, group: &ScalingGroup, draft: &mut Draft) {
    let because = || vec![Drift::new("InstanceGroup", "present", "deleted")];
    if let Some(name) = launch_configuration::of(group).filter(|name| launch_configuration::derived(&group.name, name))
        && !input.configurations.iter().any(|known| known == name)
    {
        let all: Vec<_> = input.configurations.iter().map(String::as_str).chain([name]).collect();
        draft.step(ObjectStep::Record { status: json!({ "managed": { "configurations": all } }) });
    }
    if !group.suspended.iter().any(|p| p == "Launch") {
        draft.because(
            EksStep::SuspendProcesses { group: group.name.clone(), processes: vec!["Launch".into()] },
            because(),
        );
    }
    if group.min != 0 {
        let change = ScalingGroupChange { min: Some(0), ..ScalingGroupChange::default() };
        draft.because(EksStep::UpdateGroup { group: group.name.clone(), change, pin: None }, because());
    }
    if let Some(pool) = &group.warm_pool {
        if !pool.deleting {
            draft.because(EksStep::DeleteWarmPool { group: group.name.clone() }, because());
        }
    } else if input.members.is_empty() {
        draft.because(EksStep::DeleteGroup { group: group.name.clone() }, because());
        return draft.decide(waiting(Phase::Deleting, "the scaling group is empty and is being deleted"));
    }
    let decision = drain(input, group);
    draft.notes.extend(contested(&decision));
    if !decision.abandoned.is_empty() {
        let message = format!(
            "the drain took longer than 15 minutes and goes on without waiting for {}",
            named(&decision.abandoned)
        );
        draft.events.push(Told { warning: true, reason: "DrainTimeout".into(), message });
    }
    let acts = !decision.steps.is_empty();
    draft.steps.extend(decision.steps.into_iter().map(Planned::from));
    let live = input.members.iter().filter(|m| m.instance.state != InstanceState::Terminating).count();
    draft.facts.status = BTreeMap::from([(
        "nodes".into(),
        json!({"desired": group.desired, "ready": input.members.iter().filter(|m| m.ready()).count(), "updated": 0, "outdated": live,
               "draining": input.members.iter().filter(|m| m.mark(&input.id.uid).is_some()).count()}),
    )]);
    let pool = if group.warm_pool.is_some() { " and the warm pool" } else { "" };
    let mut message = format!("{} instances{pool} are still there", input.members.len());
    if !decision.waiting.is_empty() {
        message += &format!("; waiting for {}", decision.waiting.join("; "));
    }
    let recheck = if acts { Recheck::Soon } else { Recheck::Poll };
    draft.decide(Outcome::Progressing { phase: Phase::Deleting, message, recheck });
}

fn drain(input: &Input, group: &ScalingGroup) -> rolling_update::Decision {
    decide(&rolling_update::Input {
        group: &group.name,
        uid: &input.id.uid,
        version: "",
        members: input.members,
        desired: input.members.len(),
        max_surge: 0,
        max_unavailable: input.members.len(),
        in_units: false,
        victims: Victims::All,
        lock: None,
        obstacle: None,
        was_halted: false,
        join_timeout: input.timing.deletion_drain,
        settle: SignedDuration::ZERO,
        drain: DrainPolicy {
            timeout: Some(input.timing.deletion_drain),
            at_timeout: AtTimeout::GoOn,
            decrement: true,
            dead_after: input.timing.dead_kubelet,
            volumes_for: input.timing.volumes,
        },
        drains: input.drains,
        fleet: Fleet::default(),
        now: input.now,
    })
}

/// With the scaling group gone: the way to join, the template, the profile, the role, the finalizer.
fn rest(input: &Input, draft: &mut Draft) {
    if let Some(other) = input.after {
        return draft.decide(goes_after(other));
    }
    for entry in input.auth {
        draft.step(JoinStep::RemoveAuthEntry(entry.clone()));
    }
    for entry in input.access {
        let cluster = input.ownership[0].value.clone();
        draft.step(JoinStep::RemoveAccessEntry { cluster, principal: entry.principal.clone() });
    }
    let adopted = input.adopted;
    let tags = || input.ownership.to_vec();
    let ours = |id: &str, held: &[Tag], recorded: &Option<String>| proven(id, held, recorded.as_ref(), input.ownership);
    // With the tags the rights that are shipped are enough to delete.
    let untagged = |held: &[Tag]| !owned(held, input.ownership);
    if let Some(template) = input.template.filter(|t| ours(&t.id, &t.tags, &adopted.template)) {
        if untagged(&template.tags) {
            draft.step(EksStep::TagTemplate { template: template.id.clone(), tags: tags() });
        }
        draft.step(EksStep::DeleteTemplate { template: template.id.clone() });
    }
    for configuration in input.configurations {
        draft.step(EksStep::DeleteConfiguration { configuration: configuration.clone() });
    }
    if let Some(profile) = input.profile.filter(|p| ours(&p.id, &p.tags, &adopted.profile)) {
        if untagged(&profile.tags) {
            draft.step(IamStep::TagProfile { profile: profile.name.clone(), tags: tags() });
        }
        if let Some(held) = &profile.role {
            draft.step(IamStep::RemoveRoleFromProfile { profile: profile.name.clone(), role: held.name.clone() });
        }
        draft.step(IamStep::DeleteProfile { profile: profile.name.clone() });
    }
    if let Some(role) = input.role.filter(|r| ours(&r.id, &r.tags, &adopted.role)) {
        if untagged(&role.tags) {
            draft.step(IamStep::TagRole { role: role.name.clone(), tags: tags() });
        }
        delete_role(input, role, draft);
    }
    if draft.outcome.is_none() && input.id.finalizer {
        draft.step(ObjectStep::RemoveFinalizer);
    }
}

fn delete_role(input: &Input, role: &Role, draft: &mut Draft) {
    let foreign: Vec<_> =
        input.attached.iter().filter(|p| !input.our_policies.contains(p)).chain(input.inline).cloned().collect();
    if !foreign.is_empty() {
        let message = format!(
            "the role {} carries policies that the controller did not put there: {}; remove them from the role, and the deletion goes on",
            role.name,
            foreign.join(", ")
        );
        return draft.decide(Outcome::Blocked { reason: Reason::NotOurs, message, deleting: true });
    }
    for policy in input.attached {
        draft.step(IamStep::DetachPolicy { role: role.name.clone(), policy: policy.clone() });
    }
    draft.step(IamStep::DeleteRole { role: role.name.clone() });
}
