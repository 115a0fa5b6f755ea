//! Reports the health of a node group: EKS's issues, the reason, and how to fix them.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::drift::{is_unchanged_since_adoption, version_drift};
use super::input::PlanInput;
use super::issues::{issue_reason, issue_remedy};
use super::observed::{ObservedNodegroup, Partition};
use crate::api::rfc3339;
use crate::api::status::MAX_LISTED_INSTANCES;
use crate::aws::nodegroup::{Nodegroup, NodegroupIssue, NodegroupStatus, NodegroupUpdate, UpdateStatus};
use crate::aws::{InstanceState, TemplatePin};
use crate::plan::{Event, EventReason, Outcome, Phase, PlanBuilder, StalledReason, waiting};
use crate::rotation::NodeInstance;
use crate::rotation::node_health::{ReadyLimits, unready_nodes};
use crate::settings::Timing;
use crate::util::counted::counted;
use crate::util::recorded_time;

/// How many pods that EKS could not evict a message names.
const MAX_NAMED_PODS: usize = 3;

/// How long after its failure an update is retried: an hour by default. EKS itself retries a node for 15 minutes, and an
/// update of many nodes runs for hours.
fn update_retry_delay(timing: &Timing) -> SignedDuration {
    timing.retry_delay * 12
}

impl PlanInput<'_> {
    /// When a failed update with this change hash is retried. `None` if there is no such update, the delay is over, or
    /// a user requested a retry.
    pub(crate) fn update_retry_at(&self, change_hash: &str) -> Option<Timestamp> {
        self.observed.update.as_ref().filter(|u| is_failed(u) && !self.is_requested)?;
        let at = self.update_failed_at() + update_retry_delay(self.timing);
        (self.status.update_of.as_deref() == Some(change_hash) && at > self.now).then_some(at)
    }

    /// When the recorded update was first seen to have failed; now, if that is not recorded, or lies in the future.
    fn update_failed_at(&self) -> Timestamp {
        let recorded = self.status.update_failed_at.as_deref().and_then(|at| recorded_time::past(at, self.now));
        recorded.unwrap_or(self.now)
    }
}

fn blocked_outcome(reason: StalledReason, message: String) -> Outcome {
    Outcome::Blocked { reason, message, is_deleting: false }
}

/// The node counts for status, over the serving node group and the outgoing ones.
pub(crate) fn node_counts(input: &PlanInput, serving: &ObservedNodegroup, partitioned: &Partition) -> Value {
    let outgoing = partitioned.outgoing.iter().filter(|group| group.name() != serving.name());
    let outgoing: Vec<_> = outgoing.flat_map(|group| group.members.iter().filter(is_live)).collect();
    // What is adopted counts as up to date.
    let outdated = if partitioned.is_adopting { Vec::new() } else { outdated_nodes(input, serving) };
    let uid = &input.resolved.desired.id.uid;
    let all = || input.observed.nodegroups.iter().flat_map(|group| &group.members);
    let mut counts = json!({
        "desired": serving.desired_size(),
        "ready": serving.members.iter().filter(|m| m.is_ready()).count(),
        "updated": serving.members.iter().filter(is_live).count() - outdated.len(),
        "outdated": outdated.len() + outgoing.len(),
        "draining": all().filter(|m| m.disruption_of(uid).is_some()).count(),
    });
    let ids = outgoing.iter().chain(&outdated).map(|m| m.instance.id.as_str());
    let ids: Vec<_> = ids.take(MAX_LISTED_INSTANCES).collect();
    if !ids.is_empty() {
        counts["outdatedInstances"] = json!(ids);
    }
    counts
}

/// The nodes that run, or are about to, and do not have the version and the release of the spec.
pub(crate) fn outdated_nodes<'a>(input: &PlanInput, serving: &'a ObservedNodegroup) -> Vec<&'a NodeInstance> {
    let waits = !is_unchanged_since_adoption(input.resolved, input.status, &serving.nodegroup)
        && !version_drift(input.resolved, &serving.nodegroup).is_empty();
    // EKS also makes a new template version for labels and taints, which nodes get in place.
    let replacing = input.observed.update.as_ref().filter(|update| is_version_update(update));
    let is_outdated = |member: &&NodeInstance| match replacing {
        _ if !member.reasons.is_empty() => true,
        // The node group has its old version until the update is complete. A failed one leaves some nodes behind.
        Some(_) if waits => !runs_newer_template(serving, member),
        Some(update) => update.status == UpdateStatus::InProgress && runs_old_template(serving, member),
        None => waits,
    };
    serving.members.iter().filter(is_live).filter(is_outdated).collect()
}

fn is_live(member: &&NodeInstance) -> bool {
    matches!(member.instance.state, InstanceState::InService | InstanceState::Pending)
}

/// Whether an instance runs an older template version than its scaling group.
pub(crate) fn runs_old_template(group: &ObservedNodegroup, member: &NodeInstance) -> bool {
    let pinned = group.scaling_groups.iter().find_map(|scaling| scaling.template.as_ref());
    matches!((pinned, &member.instance.template), (Some(pinned), Some(own)) if pinned.version_number().is_some() && pinned != own)
}

/// Whether an instance runs the newest of several template versions: of those of the instances and of the scaling group, to
/// which EKS gives the new one before it replaces a node.
fn runs_newer_template(group: &ObservedNodegroup, member: &NodeInstance) -> bool {
    let pinned = group.scaling_groups.iter().filter_map(|scaling| scaling.template.as_ref());
    let own = group.members.iter().filter_map(|member| member.instance.template.as_ref());
    let versions: BTreeSet<_> = pinned.chain(own).filter_map(TemplatePin::version_number).collect();
    let version = member.instance.template.as_ref().and_then(TemplatePin::version_number);
    versions.len() > 1 && version.as_ref() == versions.last()
}

/// Whether EKS replaces nodes for an update.
pub(crate) fn is_version_update(update: &NodegroupUpdate) -> bool {
    update.kind == "VersionUpdate"
}

/// Whether an update failed or was canceled.
pub(crate) fn is_failed(update: &NodegroupUpdate) -> bool {
    matches!(update.status, UpdateStatus::Failed | UpdateStatus::Cancelled)
}

/// Whether the update recorded in status is in progress.
pub(crate) fn is_update_in_progress(input: &PlanInput) -> bool {
    input.observed.update.as_ref().is_some_and(|update| update.status == UpdateStatus::InProgress)
}

/// The outcome while EKS works on a node group. Updates started by others are waited for as well.
pub(crate) fn update_progress(input: &PlanInput, group: &ObservedNodegroup) -> Outcome {
    let name = &group.name().nodegroup;
    let Some(update) = input.observed.update.as_ref().filter(|_| is_update_in_progress(input)) else {
        return waiting(Phase::Modifying, format!("EKS is working on the node group {name}"));
    };
    let phase = if is_version_update(update) { Phase::Rotating } else { Phase::Modifying };
    let (old, total) = (outdated_nodes(input, group).len(), group.members.iter().filter(is_live).count());
    let progress = match phase {
        Phase::Rotating => format!(": {} of {total} nodes run the new version", total - old),
        Phase::Creating | Phase::Modifying | Phase::Deleting => String::new(),
    };
    let since = update.created.map(|at| format!(" since {}", rfc3339(at))).unwrap_or_default();
    waiting(phase, format!("EKS is working on the node group {name}{since} (update {}){progress}", update.id))
}

/// The outcome while the update recorded in status has failed and is not retried yet.
pub(crate) fn update_failed(input: &PlanInput) -> Outcome {
    let update = input.observed.update.as_ref();
    let errors = update.map(|u| u.errors.as_slice()).unwrap_or_default();
    let id = update.map(|u| u.id.clone()).unwrap_or_default();
    let why = match (errors, update.map(|u| u.status)) {
        (_, Some(UpdateStatus::Cancelled)) => "it was canceled".to_owned(),
        ([], _) => "EKS gives no reason".to_owned(),
        (errors, _) => join_issues(errors),
    };
    let reason = errors.first().and_then(issue_reason).unwrap_or(StalledReason::UpdateFailed);
    let remedy = match blocked_pods(&input.observed.eviction_blockers) {
        Some(pods) => pods,
        None => errors.first().map_or("", |error| issue_remedy(&error.code)).to_owned(),
    };
    let at = input.status.update_of.as_deref().and_then(|of| input.update_retry_at(of)).map(rfc3339);
    let at = at.map_or_else(|| "one hour after it failed".to_owned(), |at| format!("at {at}"));
    let retry = format!("it is retried {at}, immediately after a spec change, or by instance-manager reconcile");
    blocked_outcome(reason, format!("the update {id} failed: {why}; {remedy}{retry}"))
}

/// The pods that EKS could not evict, with what blocks them and the remedy. Ends with `; `. `None` when none is blocked now.
fn blocked_pods(blockers: &[String]) -> Option<String> {
    let others = match blockers.len().saturating_sub(MAX_NAMED_PODS) {
        0 => String::new(),
        others => format!("{} as well; ", counted(others, "other pod")),
    };
    let named = blockers.iter().take(MAX_NAMED_PODS).map(|blocker| format!("{blocker}; "));
    (!blockers.is_empty()).then(|| named.chain([others]).collect())
}

/// The outcome for a node group that EKS failed to create, or that lost its scaling group. `next` says what follows.
pub(crate) fn unusable(input: &PlanInput, group: &ObservedNodegroup, next: &str) -> Outcome {
    let (name, issues) = (&group.name().nodegroup, issue_summary(input, &group.nodegroup.issues));
    let message = match input.observed.has_lost_scaling_group {
        true => format!("the node group {name} has lost its scaling group and its nodes: {issues}; {next}"),
        false => format!("EKS failed to create the node group {name}: {issues}; {next}"),
    };
    blocked_outcome(reason_of(&group.nodegroup.issues), message)
}

/// The outcome for a node group that EKS failed to delete. `condition` follows the promise that the deletion is retried.
pub(crate) fn delete_failed(input: &PlanInput, group: &ObservedNodegroup, condition: &str) -> Outcome {
    blocked_deletion(input, group, condition)
}

/// The outcome for a node group that EKS failed to delete after another replaced it. That one keeps the minimum size that it
/// was created with, so that an autoscaler cannot lower its capacity further than that.
pub(crate) fn outgoing_delete_failed(input: &PlanInput, group: &ObservedNodegroup, current: &Nodegroup) -> Outcome {
    let (created_with, desired) = (current.sizes.min, input.resolved.desired.min_size);
    let kept = match created_with > desired {
        true => format!("; until then minSize of {} stays {created_with} instead of {desired}", current.name.nodegroup),
        false => String::new(),
    };
    blocked_deletion(input, group, &kept)
}

fn blocked_deletion(input: &PlanInput, group: &ObservedNodegroup, consequence: &str) -> Outcome {
    let failure = deletion_failure(input, &group.nodegroup);
    let message = format!("{failure}; fix the cause; the deletion is retried{consequence}");
    blocked_outcome(reason_of(&group.nodegroup.issues), message)
}

/// The condition reason for the issues of a node group.
fn reason_of(issues: &[NodegroupIssue]) -> StalledReason {
    issues.first().and_then(issue_reason).unwrap_or(StalledReason::Degraded)
}

/// Why EKS could not delete a node group, without what follows from it.
pub(crate) fn deletion_failure(input: &PlanInput, found: &Nodegroup) -> String {
    format!("EKS failed to delete the node group {}: {}", found.name.nodegroup, issue_summary(input, &found.issues))
}

/// Sets the outcome of a group without pending changes: whether all nodes are Ready, and if not, why.
pub(crate) fn check_readiness(input: &PlanInput, group: &ObservedNodegroup, builder: &mut PlanBuilder) {
    if input.status.update_of.is_some() && !input.observed.update.as_ref().is_some_and(is_failed) {
        forget_update(input, builder);
    }
    report_readiness(input, group, builder);
}

/// Records when the recorded update was first seen to have failed, unless the plan starts another one.
pub(crate) fn record_failed_update(input: &PlanInput, builder: &mut PlanBuilder) {
    let has_failed = input.observed.update.as_ref().is_some_and(is_failed);
    let is_over = builder.status_update.fields.contains_key("updateOf") || builder.starts_update;
    let failed_at = rfc3339(input.update_failed_at());
    if has_failed && input.status.update_failed_at.as_ref() != Some(&failed_at) && !is_over {
        builder.set_status("updateFailedAt", failed_at);
    }
}

/// Forgets the recorded update, which nothing requests any more.
pub(crate) fn forget_update(input: &PlanInput, builder: &mut PlanBuilder) {
    builder.set_status("updateOf", Value::Null);
    if input.status.update_failed_at.is_some() {
        builder.set_status("updateFailedAt", Value::Null);
    }
}

/// Publishes the end of the recorded update once, and forgets it, unless the plan starts another one.
pub(crate) fn report_completed_update(input: &PlanInput, partitioned: &Partition, builder: &mut PlanBuilder) {
    let recorded = input.observed.update.as_ref().filter(|_| input.status.update_of.is_some());
    let Some(update) = recorded.filter(|update| update.status == UpdateStatus::Successful) else { return };
    let name = partitioned.updated().map(|group| format!(" {}", group.name().nodegroup)).unwrap_or_default();
    let since = update.created.map(|at| format!(", which began at {}", rfc3339(at))).unwrap_or_default();
    let message =
        format!("EKS has completed the update {} ({}) of the node group{name}{since}", update.id, update.kind);
    builder.events.push(Event::normal(EventReason::NodegroupUpdated, message));
    if !builder.starts_update {
        forget_update(input, builder);
    }
}

/// Reports whether all nodes are Ready, and if not, why; also beside a lock.
pub(crate) fn report_readiness(input: &PlanInput, group: &ObservedNodegroup, builder: &mut PlanBuilder) {
    let all = group.ready_nodes() >= group.desired_size();
    builder.status_update.nodes_ready = Some(all);
    let issues = &group.nodegroup.issues;
    // EKS keeps the issue of a launch that failed until another launch succeeds, also when nothing is missing any more.
    let is_complete = all && !issues.is_empty() && issues.iter().all(is_about_launches);
    let is_degraded = group.nodegroup.status == NodegroupStatus::Degraded && !is_complete;
    if is_degraded || (!issues.is_empty() && !all) {
        let message =
            format!("the node group {} is degraded: {}", group.name().nodegroup, issue_summary(input, issues));
        return builder.set_outcome_once(blocked_outcome(reason_of(issues), message));
    }
    if all {
        return;
    }
    let limits =
        ReadyLimits { join: input.resolved.desired.rolling_update.join_timeout, recover: input.timing.kubelet_timeout };
    let entry = "the node role, the routes from the subnets to the API server";
    let unready = unready_nodes(&group.members, limits, entry, input.now);
    if let Some(message) = unready.overdue {
        return builder.set_outcome_once(blocked_outcome(StalledReason::NodesNotReady, message));
    }
    let creating = input.status.current_state.as_deref() == Some(crate::api::CurrentState::InitCreate.as_str());
    let phase = match (creating, input.status.is_rotating()) {
        (true, _) => Phase::Creating,
        (_, true) => Phase::Rotating,
        (false, false) => Phase::Modifying,
    };
    let message = match unready.waiting.as_slice() {
        [] => format!(
            "waiting for Auto Scaling to launch instances: {} missing",
            group.desired_size() - group.ready_nodes()
        ),
        waits => waits.join("; "),
    };
    builder.set_outcome_once(waiting(phase, message));
}

/// Whether an issue is about nodes that were not launched, and not about those that run.
fn is_about_launches(issue: &NodegroupIssue) -> bool {
    ["AsgInstanceLaunchFailures", "InstanceLimitExceeded", "InsufficientFreeAddresses"].contains(&issue.code.as_str())
}

/// The outcome while too many nodes of the cluster are not Ready. No node is replaced during that time.
pub(crate) fn cluster_unhealthy(input: &PlanInput) -> Option<Outcome> {
    let health = input.observed.cluster_health;
    health.is_unhealthy().then(|| {
        let message = format!(
            "{} of {} nodes of the cluster are not ready (limit: 30 %); check the API server, the network and the kubelets; no node is replaced until more nodes are ready",
            health.unready, health.total
        );
        blocked_outcome(StalledReason::ClusterUnhealthy, message)
    })
}

fn join_issues(issues: &[NodegroupIssue]) -> String {
    issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The issues that EKS reports, with a remedy and with the policies that the node role lacks if they explain an issue.
pub(crate) fn issue_summary(input: &PlanInput, issues: &[NodegroupIssue]) -> String {
    let Some(first) = issues.first() else {
        return "EKS gives no reason; check the node group in the EKS console".into();
    };
    let mut text = join_issues(issues);
    let remedy = issue_remedy(&first.code).trim_end_matches("; ");
    if !remedy.is_empty() {
        text += &format!("; {remedy}");
    }
    let about_the_role = ["NodeCreationFailure", "AccessDenied", "IamNodeRoleNotFound"].contains(&first.code.as_str());
    if about_the_role && !input.observed.missing_policies.is_empty() {
        text += &format!(
            "; spec.eks-managed.configuration.nodeRole lacks {}: attach it, or grant the same permissions by another policy",
            input.observed.missing_policies.join(" and ")
        );
    }
    text
}
