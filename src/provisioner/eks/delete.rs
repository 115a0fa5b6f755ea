//! Plans the deletion of a group: drains its nodes, then deletes the resources that the controller created or adopted.
//!
//! It needs no valid spec: the names come from the status, which records them before a resource is created.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::launch_configuration;
use crate::api::names::{FINALIZER, tag};
use crate::api::{AdoptedResources, InstanceGroupStatus};
use crate::auth::aws_auth::AuthEntry;
use crate::aws::{
    AccessEntry, InstanceProfile, InstanceState, LaunchTemplate, Role, ScalingGroup, ScalingGroupChange, Tag,
};
use crate::ownership;
use crate::ownership::{Ownership, classify_ownership, has_foreign_tags, has_ownership_tags, is_owned};
use crate::plan::{
    Drift, Event, EventReason, IamStep, JoinStep, ObjectStep, Outcome, Phase, Plan, PlanBuilder, PlannedStep, Recheck,
    StalledReason, UncordonReason, waiting,
};
use crate::plan::{EksStep, NodeStep};
use crate::provisioner::GroupId;
use crate::provisioner::join::{wait_for_aws_auth, wait_for_group};
use crate::provisioner::retained::{Retained, report_retained};
use crate::provisioner::role_region::{OtherRegion, iam_tags, other_region};
use crate::provisioner::role_users::KeptEntry;
use crate::rotation::drain::{AtTimeout, DrainPolicy};
use crate::rotation::rolling_update;
use crate::rotation::rolling_update::report::{duplicate_provider_id, overdue_pods, pod_names};
use crate::rotation::rolling_update::{Candidates, WarmPoolRotation, decide};
use crate::rotation::{ClusterHealth, Drains, NodeInstance};
use crate::settings::Timing;
use crate::util::counted::counted;

/// Everything that the plan of a deletion depends on.
pub struct DeleteInput<'a> {
    /// Identity of the group that is being deleted.
    pub id: &'a GroupId,
    /// The tags that prove that a resource belongs to this group.
    pub ownership_tags: &'a [Tag],
    /// The scaling group; `None` once it is deleted.
    pub scaling_group: Option<&'a ScalingGroup>,
    /// Its instances with their nodes.
    pub members: &'a [NodeInstance],
    /// The pods on the nodes with a disruption record of the controller.
    pub drains: &'a Drains,
    /// The launch template with its tags.
    pub template: Option<&'a LaunchTemplate>,
    /// Whether the template's name is one that the controller derives. Otherwise only its tags prove that it is the
    /// group's.
    pub has_derived_template_name: bool,
    /// The launch configurations that the status records for this group, with names that derive from it.
    pub launch_configurations: &'a [String],
    /// The role of the derived name with its tags; read once the scaling group is deleted.
    pub role: Option<&'a Role>,
    /// The managed policies that are attached to the role.
    pub attached_policies: &'a [String],
    /// The attached policies that the controller may detach.
    pub removable_policies: &'a [String],
    /// Names of the role's inline policies.
    pub inline_policies: &'a [String],
    /// The instance profile of the derived name with its tags.
    pub instance_profile: Option<&'a InstanceProfile>,
    /// The region of the group's cluster.
    pub region: &'a str,
    /// The group's status.
    pub status: &'a InstanceGroupStatus,
    /// The adopted resources, which may lack tags.
    pub adopted: &'a AdoptedResources,
    /// The controller's entries in aws-auth that no other group uses.
    pub aws_auth_entries: &'a [AuthEntry],
    /// The controller's access entries that no other group uses.
    pub access_entries: &'a [AccessEntry],
    /// The controller's entries that stay because others use the role.
    pub kept_entries: &'a [KeptEntry],
    /// ARNs of the roles whose entry in aws-auth stays because a person changed it.
    pub modified_auth_entries: &'a [String],
    /// Another group that has to be deleted first, because it removes a shared entry.
    pub wait_for: Option<&'a str>,
    /// Why the group's entries in aws-auth cannot be searched for, if they may exist.
    pub unreadable_aws_auth: Option<&'a str>,
    /// Who uses the group's own role besides the group, so that the role and its profile stay.
    pub role_in_use: Option<&'a str>,
    /// Another scaling group that has instances from the group's launch template, so that the template stays.
    pub template_in_use: Option<&'a str>,
    /// How long after the request evictions are waited for.
    pub drain_timeout: SignedDuration,
    /// Timeouts and delays; all nodes are drained at once.
    pub timing: &'a Timing,
    /// Reference time for this reconcile.
    pub now: Timestamp,
}

/// The most tags that a scaling group takes (Amazon EC2 Auto Scaling User Guide, "Tag Auto Scaling groups and instances").
pub(crate) const MAX_TAGS: usize = 50;

/// Whether a policy is one that every node's role gets.
pub(crate) fn is_standard_policy(arn: &str) -> bool {
    ["/AmazonEKSWorkerNodePolicy", "/AmazonEC2ContainerRegistryReadOnly", "/AmazonEKS_CNI_Policy"]
        .iter()
        .any(|name| arn.ends_with(name))
}

/// Plans one reconcile of a group that is being deleted.
pub fn plan_deletion(input: &DeleteInput) -> Plan {
    let mut builder = PlanBuilder::default();
    match input.scaling_group {
        Some(group) if group.deleting => builder
            .set_outcome_once(waiting(Phase::Deleting, format!("AWS is deleting the scaling group {}", group.name))),
        Some(group) => match classify_ownership(&group.name, &group.tags, input.ownership_tags) {
            Ownership::Ours if group.is_deletion_protected => block_on_protection(group, &mut builder),
            Ownership::Ours => drain_scaling_group(input, group, &mut builder),
            Ownership::TagsModified(_) => block_on_ownership(input, group, &mut builder),
            // Its tags were removed, but its nodes still use the resources that would be deleted.
            Ownership::Untagged if uses_our_template(input, group) => block_on_ownership(input, group, &mut builder),
            Ownership::Untagged | Ownership::OtherGroup => delete_supporting_resources(input, &mut builder),
        },
        None if may_be_unseen(input) => {
            let message = "AWS does not show the scaling group, which may just have been created; looking for it again";
            builder.set_outcome_once(waiting(Phase::Deleting, message));
        }
        None => delete_supporting_resources(input, &mut builder),
    }
    builder.set_outcome_once(Outcome::Deleted);
    builder.build(input.id, None)
}

/// Whether something that AWS does not show may have been created right before the deletion: the scaling group, also
/// one that was created again, or the role from which a creation begins. An answer of AWS may be older than that, and
/// nothing would delete it once the finalizer is gone. A clock that was set back must not delay the deletion.
fn may_be_unseen(input: &DeleteInput) -> bool {
    let since = input.id.deletion_requested_at.map(|at| input.now.duration_since(at).abs());
    since.is_some_and(|since| since < input.timing.poll_interval)
}

/// Blocks the deletion of a scaling group that AWS protects. AWS would refuse it in the end, after all its nodes were drained
/// and terminated (Amazon EC2 Auto Scaling User Guide, "Protect your Auto Scaling group from deletion").
fn block_on_protection(group: &ScalingGroup, builder: &mut PlanBuilder) {
    let message = format!(
        "the scaling group {name} has the deletion protection prevent-all-deletion in AWS; to delete it, run: aws autoscaling update-auto-scaling-group --auto-scaling-group-name {name} --deletion-protection none",
        name = group.name
    );
    builder.set_outcome_once(Outcome::Blocked { reason: StalledReason::DeletionProtected, message, is_deleting: true });
}

/// Blocks the deletion while nodes of a scaling group that may be this group's use its resources.
fn block_on_ownership(input: &DeleteInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let what = ownership::ownership_conflict(&group.name, &group.tags, input.ownership_tags).unwrap_or_default();
    let remedy = if uses_our_template(input, group) {
        format!(
            "it launches from this group's template or launch configuration: to delete it, restore its tags and the deletion continues; to keep it, remove the finalizer {FINALIZER} from the InstanceGroup"
        )
    } else {
        "if it belongs to this group, restore its tags and the deletion continues; otherwise remove the ownership tags that it still has"
            .into()
    };
    let message = format!("{what}; {remedy}");
    builder.set_outcome_once(Outcome::Blocked { reason: StalledReason::OwnershipConflict, message, is_deleting: true });
}

/// Whether a scaling group without tags launches from this group's template or launch configuration.
fn uses_our_template(input: &DeleteInput, group: &ScalingGroup) -> bool {
    let recorded = input.adopted.template.as_ref().filter(|_| input.has_derived_template_name);
    let id = match input.template {
        Some(found) => Some(found.id.clone()).filter(|id| is_owned(id, &found.tags, recorded, input.ownership_tags)),
        // A user deleted it as well. The scaling group still refers to it.
        None => recorded_template(input),
    };
    group.template.as_ref().is_some_and(|pin| id.as_ref() == Some(&pin.id))
        || launch_configuration::current_name(group)
            .is_some_and(|name| input.launch_configurations.iter().any(|known| known == name))
}

fn drain_scaling_group(input: &DeleteInput, group: &ScalingGroup, builder: &mut PlanBuilder) {
    let reasons = || vec![Drift::new("InstanceGroup", "present", "deleted")];
    if let Some(name) = launch_configuration::current_name(group)
        .filter(|name| launch_configuration::has_derived_name(&group.name, name))
        && !input.launch_configurations.iter().any(|known| known == name)
    {
        let all: Vec<_> = input.launch_configurations.iter().map(String::as_str).chain([name]).collect();
        builder.record_managed("configurations", json!(all));
    }
    if !group.suspended_processes.iter().any(|p| p == "Launch") {
        // Without its finalizer, the InstanceGroup may go before the scaling group and be created again.
        let suspension_tag = Tag { key: tag::SUSPENDED_BY_DELETION.into(), value: "Launch".into() };
        if group.tags.len() < MAX_TAGS && !group.tags.contains(&suspension_tag) {
            builder.push_with_reasons(
                EksStep::PutTags { group: group.name.clone(), tags: vec![suspension_tag] },
                reasons(),
            );
        }
        builder.push_with_reasons(
            EksStep::SuspendProcesses { group: group.name.clone(), processes: vec!["Launch".into()] },
            reasons(),
        );
    }
    if group.min != 0 {
        let change = ScalingGroupChange { min: Some(0), ..ScalingGroupChange::default() };
        builder.push_with_reasons(EksStep::UpdateGroup { group: group.name.clone(), change, pin: None }, reasons());
    }
    if let Some(pool) = &group.warm_pool {
        if !pool.deleting {
            builder.push_with_reasons(EksStep::DeleteWarmPool { group: group.name.clone() }, reasons());
        }
    } else if input.members.is_empty() {
        // Once the group is deleted, only this record proves the owner of resources without tags.
        if *input.adopted != recorded_adopted(input.status) {
            builder.record_after_steps(json!({ "managed": { "adopted": input.adopted } }));
        }
        builder.push_with_reasons(EksStep::DeleteGroup { group: group.name.clone() }, reasons());
        return builder.set_outcome_once(waiting(Phase::Deleting, "the scaling group is empty and is being deleted"));
    }
    builder.evictions_end = input.id.deletion_requested_at.and_then(|at| at.checked_add(input.drain_timeout).ok());
    let decision = drain_decision(input, group);
    builder.condition_updates.extend(duplicate_provider_id(&decision));
    builder.condition_updates.extend(overdue_pods(&decision));
    if !decision.abandoned_pods.is_empty() {
        let message = format!(
            "the deletion was requested more than {} ago; the controller terminates nodes on which these pods still run: {}",
            crate::util::duration::format(input.drain_timeout),
            pod_names(&decision.abandoned_pods)
        );
        builder.events.push(Event::warning(EventReason::TerminatedWithPods, message));
    }
    let has_steps = !decision.steps.is_empty();
    // Its node may join while AWS answers the calls before: the next pass reads it again, and drains it then.
    let has_changes = builder.has_changes();
    let may_join = |step: &NodeStep| has_changes && matches!(step, NodeStep::Terminate { node: None, .. });
    let steps = decision.steps.into_iter().filter(|step| !may_join(step));
    builder.steps.extend(steps.map(|step| PlannedStep::new(step, reasons())));
    builder.status_update.fields = BTreeMap::from([("nodes".into(), count_nodes(input, group))]);
    let pool = if group.warm_pool.is_some() { " and the warm pool" } else { "" };
    let mut message = format!("{}{pool} still to be terminated", counted(input.members.len(), "instance"));
    if !decision.waiting_for.is_empty() {
        message += &format!("; waiting for {}", decision.waiting_for.join("; "));
    }
    let recheck = if has_steps { Recheck::Immediately } else { Recheck::Poll };
    builder.set_outcome_once(Outcome::Progressing { phase: Phase::Deleting, message, recheck });
}

/// Counts the nodes for the status, in units of desired capacity as the group is measured.
fn count_nodes(input: &DeleteInput, group: &ScalingGroup) -> Value {
    let count = |test: &dyn Fn(&NodeInstance) -> bool| {
        input.members.iter().filter(|m| test(m)).map(NodeInstance::weight).sum::<usize>()
    };
    let mut counts = json!({
        "desired": group.desired,
        "ready": count(&|m| m.is_ready()),
        "updated": 0,
        "outdated": count(&|m| m.instance.state != InstanceState::Terminating),
        "draining": count(&|m| m.disruption_of(&input.id.uid).is_some()),
    });
    if input.members.iter().any(|m| m.weight() > 1) {
        counts["weighted"] = json!(true);
    }
    counts
}

fn drain_decision(input: &DeleteInput, group: &ScalingGroup) -> rolling_update::RollingUpdateDecision {
    decide(&rolling_update::RollingUpdateInput {
        scaling_group: &group.name,
        group_uid: &input.id.uid,
        template_version: "",
        members: input.members,
        desired: input.members.len(),
        max_surge: 0,
        max_unavailable: input.members.len(),
        max_unavailable_in_weight: false,
        candidates: Candidates::All,
        uncordon_reason: UncordonReason::NoLongerReplaced,
        lock: None,
        rollout_block: None,
        allowance: None,
        warm_pool: WarmPoolRotation::Done,
        precondition: None,
        failed_replacements: None,
        failed_launch: None,
        unhealthy_stay: None,
        was_halted: false,
        join_timeout: input.drain_timeout,
        min_ready_time: SignedDuration::ZERO,
        drain_policy: DrainPolicy {
            timeout: Some(input.drain_timeout),
            // A rotation may have begun the drain long before.
            timeout_since: input.id.deletion_requested_at,
            at_timeout: AtTimeout::Terminate,
            // Launch is suspended, so nothing is launched for it. AWS may decrement once more when the call is repeated, because
            // its answers may be older than the first one. It would then remove another node, which is not drained.
            decrement_desired: false,
            dead_kubelet_after: input.timing.kubelet_timeout,
            volume_detach_timeout: input.timing.volume_detach_timeout,
            decrement_interval: input.timing.decrement_interval,
        },
        drains: input.drains,
        cluster_health: ClusterHealth::default(),
        now: input.now,
    })
}

/// Deletes what remains after the scaling group: join entries, template, configurations, profile, role, finalizer.
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
    for entry in input.access_entries {
        let cluster = input.ownership_tags[0].value.clone();
        builder.push(JoinStep::RemoveAccessEntry { cluster, principal: entry.principal.clone() });
    }
    let adopted = input.adopted;
    let template_id = recorded_template(input);
    let tags = || input.ownership_tags.to_vec();
    let iam_tags = || iam_tags(input.ownership_tags, input.region);
    let is_own =
        |id: &str, tags: &[Tag], recorded: &Option<String>| is_owned(id, tags, recorded.as_ref(), input.ownership_tags);
    let profile = input.instance_profile.filter(|p| is_own(&p.id, &p.tags, &adopted.profile));
    let role = input.role.filter(|r| is_own(&r.id, &r.tags, &adopted.role));
    let other_region = region_that_uses_role(input, role, profile);
    // The shipped IAM policy allows deletions of tagged resources only, so an untagged one is tagged first.
    let untagged = |tags: &[Tag]| !has_ownership_tags(tags, input.ownership_tags);
    let template = input.template.filter(|t| is_own(&t.id, &t.tags, &template_id));
    if let Some(template) = template.filter(|_| input.template_in_use.is_none()) {
        if untagged(&template.tags) {
            builder.push(EksStep::TagTemplate { template: template.id.clone(), tags: tags() });
        }
        builder.push(EksStep::DeleteTemplate { template: template.id.clone() });
    }
    for configuration in input.launch_configurations {
        builder.push(EksStep::DeleteConfiguration { configuration: configuration.clone() });
    }
    let is_kept = other_region.is_some() || input.role_in_use.is_some();
    if let Some(profile) = profile.filter(|_| !is_kept) {
        if untagged(&profile.tags) {
            builder.push(IamStep::TagProfile { profile: profile.name.clone(), tags: iam_tags() });
        }
        if let Some(profile_role) = &profile.role {
            builder.push(IamStep::RemoveRoleFromProfile {
                profile: profile.name.clone(),
                role: profile_role.name.clone(),
            });
        }
        builder.push(IamStep::DeleteProfile { profile: profile.name.clone() });
    }
    if let Some(role) = role.filter(|_| !is_kept) {
        if untagged(&role.tags) {
            builder.push(IamStep::TagRole { role: role.name.clone(), tags: iam_tags() });
        }
        delete_role(input, role, builder);
    }
    let mut kept: Vec<_> = unproven_resources(input, template_id.as_ref()).into_iter().collect();
    kept.extend(input.kept_entries.iter().map(Retained::from));
    kept.extend(input.modified_auth_entries.iter().map(|arn| Retained::modified_entry(arn)));
    kept.extend(template.zip(input.template_in_use).map(|(t, user)| Retained::template_in_use(&t.name, user)));
    let name = role.map(|r| &r.name).or(profile.map(|p| &p.name));
    let what = || format!("the IAM role {} and its instance profile", name.map_or("", String::as_str));
    match (&other_region, input.role_in_use) {
        (Some(other), _) => kept.push(Retained::role(what(), other)),
        (None, Some(user)) => kept.push(Retained::role_in_use(&what(), user)),
        (None, None) => {}
    }
    report_retained(input.status, &kept, builder);
    if builder.outcome().is_none() && input.id.has_finalizer {
        builder.push(ObjectStep::RemoveFinalizer);
    }
}

fn recorded_adopted(status: &InstanceGroupStatus) -> AdoptedResources {
    status.managed.as_ref().and_then(|managed| managed.adopted.clone()).unwrap_or_default()
}

/// The recorded ID of the launch template, if it may prove the owner of one without tags.
fn recorded_template(input: &DeleteInput) -> Option<String> {
    let recorded = || input.status.template.as_ref().and_then(|template| template.id.clone());
    input.adopted.template.clone().or_else(recorded).filter(|_| input.has_derived_template_name)
}

/// Resources under the group's recorded names that stay, because they have no tags and no record proves their owner.
fn unproven_resources(input: &DeleteInput, template_id: Option<&String>) -> Option<Retained> {
    // With a recorded ID, a resource with another ID is known to belong to another owner.
    let unproven = |tags: &[Tag], recorded: Option<&String>| {
        recorded.is_none()
            && !has_ownership_tags(tags, input.ownership_tags)
            && !has_foreign_tags(tags, input.ownership_tags)
    };
    // Otherwise the spec named the role.
    let had_own_role = input.status.managed.as_ref().is_some_and(|managed| !managed.policies.is_empty());
    let template = input.template.filter(|t| {
        input.status.active_launch_template_name.as_ref() == Some(&t.name) && unproven(&t.tags, template_id)
    });
    let profile = input.instance_profile.filter(|p| had_own_role && unproven(&p.tags, input.adopted.profile.as_ref()));
    let role = input.role.filter(|r| had_own_role && unproven(&r.tags, input.adopted.role.as_ref()));
    let named = [
        template.map(|t| format!("the launch template {}", t.name)),
        profile.map(|p| format!("the instance profile {}", p.name)),
        role.map(|r| format!("the IAM role {}", r.name)),
    ];
    let named: Vec<_> = named.into_iter().flatten().collect();
    (!named.is_empty()).then(|| Retained::unproven(&named.join(", ")))
}

/// Evidence of another region's use of the group's own role, so that neither it nor its profile is deleted.
fn region_that_uses_role(
    input: &DeleteInput,
    role: Option<&Role>,
    profile: Option<&InstanceProfile>,
) -> Option<OtherRegion> {
    let is_tag_added = role.is_some_and(|role| input.adopted.role.as_ref() == Some(&role.id));
    other_region(role, profile.map_or(&[][..], |profile| &profile.tags), is_tag_added, input.region)
}

fn delete_role(input: &DeleteInput, role: &Role, builder: &mut PlanBuilder) {
    let foreign: Vec<_> = input
        .attached_policies
        .iter()
        .filter(|p| !input.removable_policies.contains(p))
        .chain(input.inline_policies)
        .cloned()
        .collect();
    if !foreign.is_empty() {
        let message = format!(
            "the role {} has policies that the controller did not attach: {}; remove them from the role and the deletion continues",
            role.name,
            foreign.join(", ")
        );
        return builder.set_outcome_once(Outcome::Blocked {
            reason: StalledReason::OwnershipConflict,
            message,
            is_deleting: true,
        });
    }
    for policy in input.attached_policies {
        builder.push(IamStep::DetachPolicy { role: role.name.clone(), policy: policy.clone() });
    }
    builder.push(IamStep::DeleteRole { role: role.name.clone() });
}
