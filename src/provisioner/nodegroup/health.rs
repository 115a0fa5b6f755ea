//! How a node group stands, in EKS's words, with what a person can do.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::input::PlanInput;
use super::observed::ObservedNodegroup;
use crate::aws::InstanceState;
use crate::aws::nodegroup::{Issue, NodegroupStatus, NodegroupUpdate, UpdateStatus};
use crate::plan::{Outcome, Phase, PlanBuilder, Reason, waiting};
use crate::rotation::NodeInstance;

/// An update that failed is begun again so long after it began: EKS itself tries a node for a quarter of an hour.
const UPDATE_RETRY_DELAY: SignedDuration = SignedDuration::from_hours(1);

impl PlanInput<'_> {
    /// When an update that failed, and was to reach the same, is begun again.
    pub fn again(&self, of: &str) -> Option<Timestamp> {
        let update = self.observed.update.as_ref().filter(|u| is_failed(u))?;
        let at = update.created? + UPDATE_RETRY_DELAY;
        (self.status.update_of.as_deref() == Some(of) && at > self.now).then_some(at)
    }
}

fn blocked_outcome(reason: Reason, message: String) -> Outcome {
    Outcome::Blocked { reason, message, is_deleting: false }
}

/// How many nodes are Ready, in words.
pub fn ready_summary(group: &ObservedNodegroup) -> String {
    format!("{} of {} nodes are ready", group.ready_nodes(), group.desired_size())
}

/// Nodes by state: of the group that serves, and of those that leave.
pub fn node_counts(input: &PlanInput, serving: &ObservedNodegroup, others: &[&ObservedNodegroup]) -> Value {
    let leaving = others.iter().filter(|group| group.name() != serving.name());
    let live = |m: &&NodeInstance| matches!(m.instance.state, InstanceState::InService | InstanceState::Pending);
    let rest: usize = leaving.clone().map(|group| group.members.iter().filter(live).count()).sum();
    let old =
        serving.members.iter().filter(live).filter(|m| !m.reasons.is_empty() || runs_old_template(serving, m)).count();
    let uid = &input.resolved.desired.id.uid;
    let all = || input.observed.nodegroups.iter().flat_map(|group| &group.members);
    json!({
        "desired": serving.desired_size(),
        "ready": all().filter(|m| m.is_ready()).count(),
        "updated": serving.members.iter().filter(live).count() - old,
        "outdated": old + rest,
        "draining": all().filter(|m| m.disruption_of(uid).is_some()).count(),
    })
}

/// Whether an instance was launched before EKS gave its scaling group another version of the template.
fn runs_old_template(group: &ObservedNodegroup, member: &NodeInstance) -> bool {
    let pinned = group.scaling_groups.iter().find_map(|scaling| scaling.template.as_ref());
    matches!((pinned, &member.instance.template), (Some(pinned), Some(own)) if pinned.version_number().is_some() && pinned != own)
}

/// Whether an update ended without its end reached.
pub fn is_failed(update: &NodegroupUpdate) -> bool {
    matches!(update.status, UpdateStatus::Failed | UpdateStatus::Cancelled)
}

/// The update that the status names has not ended.
pub fn is_update_in_progress(input: &PlanInput) -> bool {
    input.observed.update.as_ref().is_some_and(|update| update.status == UpdateStatus::InProgress)
}

/// What is waited for while EKS works on a node group. An update that somebody else began is waited for as well.
pub fn update_progress(input: &PlanInput, group: &ObservedNodegroup) -> Outcome {
    let name = &group.name().nodegroup;
    let Some(update) = input.observed.update.as_ref().filter(|_| is_update_in_progress(input)) else {
        return waiting(Phase::Modifying, format!("EKS works on the node group {name}; {}", ready_summary(group)));
    };
    let phase = if update.kind == "VersionUpdate" { Phase::Rotating } else { Phase::Modifying };
    let old = group.members.iter().filter(|member| runs_old_template(group, member)).count();
    let total = group.members.len();
    let progress = match phase {
        Phase::Rotating => format!("{} of {total} nodes run the new version", total - old),
        Phase::Creating | Phase::Modifying | Phase::Deleting => ready_summary(group),
    };
    waiting(phase, format!("EKS works on the node group {name} (update {}): {progress}", update.id))
}

/// The update that the status names has failed, and the same is not begun again yet.
pub fn update_failed(input: &PlanInput) -> Outcome {
    let update = input.observed.update.as_ref();
    let errors = update.map(|u| u.errors.as_slice()).unwrap_or_default();
    let id = update.map(|u| u.id.clone()).unwrap_or_default();
    let why = match (errors, update.map(|u| u.status)) {
        (_, Some(UpdateStatus::Cancelled)) => "it was cancelled".to_owned(),
        ([], _) => "EKS gives no reason".to_owned(),
        (errors, _) => join_issues(errors),
    };
    let reason =
        errors.first().map_or(Reason::UpdateFailed, |error| issue_reason(&error.code).unwrap_or(Reason::UpdateFailed));
    let remedy = errors.first().map_or("", |error| issue_remedy(&error.code));
    let again = "it is begun again an hour after it began, and at once when something else is wanted";
    blocked_outcome(reason, format!("the update {id} failed: {why}; {remedy}{again}"))
}

/// A node group that could not be made or deleted.
pub fn create_or_delete_failed(input: &PlanInput, group: &ObservedNodegroup) -> Outcome {
    let name = &group.name().nodegroup;
    let issues = &group.nodegroup.issues;
    let (what, then) = match group.nodegroup.status {
        NodegroupStatus::DeleteFailed => ("could not be deleted", "mend it, and the deletion is tried again"),
        _ => ("could not be made", "mend it, then delete the node group, and it is made again"),
    };
    let reason = issues.first().and_then(|issue| issue_reason(&issue.code)).unwrap_or(Reason::Degraded);
    blocked_outcome(reason, format!("the node group {name} {what}: {}; {then}", issue_summary(input, issues)))
}

/// When nothing is to be done: whether every node is there, and if not, why.
pub fn check_readiness(input: &PlanInput, group: &ObservedNodegroup, draft: &mut PlanBuilder) {
    let all = group.ready_nodes() >= group.desired_size();
    draft.status_update.nodes_ready = Some(all);
    if input.status.update_of.is_some() && !input.observed.update.as_ref().is_some_and(is_failed) {
        draft.status_update.fields.insert("updateOf".into(), Value::Null);
    }
    let issues = &group.nodegroup.issues;
    if group.nodegroup.status == NodegroupStatus::Degraded || (!issues.is_empty() && !all) {
        let reason = issues.first().and_then(|issue| issue_reason(&issue.code)).unwrap_or(Reason::Degraded);
        let message =
            format!("the node group {} is degraded: {}", group.name().nodegroup, issue_summary(input, issues));
        return draft.set_outcome_once(blocked_outcome(reason, message));
    }
    if all {
        return;
    }
    if let Some(message) = unready_instances(input, group) {
        return draft.set_outcome_once(blocked_outcome(Reason::NodesNotReady, message));
    }
    let rotating = input.status.current_state.as_deref() == Some(crate::api::CurrentState::InitUpgrade.as_str());
    let creating = input.status.current_state.as_deref() == Some(crate::api::CurrentState::InitCreate.as_str());
    let phase = match (rotating, creating) {
        (true, _) => Phase::Rotating,
        (_, true) => Phase::Creating,
        (false, false) => Phase::Modifying,
    };
    draft.set_outcome_once(waiting(phase, ready_summary(group)));
}

/// Instances that have had their time to join and are not Ready.
fn unready_instances(input: &PlanInput, group: &ObservedNodegroup) -> Option<String> {
    let timeout = input.resolved.desired.rolling_update.join_timeout;
    let late = |m: &&NodeInstance| {
        let since = m.instance.in_service_since.unwrap_or(input.now);
        m.instance.state == InstanceState::InService && !m.is_ready() && input.now.duration_since(since) >= timeout
    };
    let named = |m: &NodeInstance| match &m.node {
        Some(node) => format!("{} ({} is not ready)", m.instance.id, node.name),
        None => format!("{} (never joined)", m.instance.id),
    };
    let names: Vec<_> = group.members.iter().filter(late).map(named).collect();
    let timeout = crate::util::duration::format(timeout);
    (!names.is_empty()).then(|| {
        format!(
            "{} did not become Ready within {timeout}; check the node role and the subnets' way to the cluster",
            names.join(", ")
        )
    })
}

/// Too many nodes are not ready at once: no node is given up then.
pub fn cluster_unhealthy(input: &PlanInput) -> Option<Outcome> {
    let fleet = input.observed.cluster_health;
    fleet.is_unhealthy().then(|| {
        let message = format!(
            "{} of {} nodes of the cluster are not ready at once; nothing is replaced until they are fewer",
            fleet.unready, fleet.total
        );
        blocked_outcome(Reason::ClusterUnhealthy, message)
    })
}

fn join_issues(issues: &[Issue]) -> String {
    issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// EKS's words with a remedy, and what the role lacks where that explains them.
pub fn issue_summary(input: &PlanInput, issues: &[Issue]) -> String {
    let Some(first) = issues.first() else {
        return "EKS gives no reason; look at the node group in its console".into();
    };
    let mut text = join_issues(issues);
    let remedy = issue_remedy(&first.code).trim_end_matches("; ");
    if !remedy.is_empty() {
        text += &format!("; {remedy}");
    }
    let about_the_role = ["NodeCreationFailure", "AccessDenied", "IamNodeRoleNotFound"].contains(&first.code.as_str());
    if about_the_role && !input.observed.missing_policies.is_empty() {
        text += &format!(
            "; spec.eks-managed.configuration.nodeRole lacks {}: attach it, or grant the same otherwise",
            input.observed.missing_policies.join(" and ")
        );
    }
    text
}

/// The reason that a person sees: data types Issue and ErrorDetail of the EKS API Reference.
pub fn issue_reason(code: &str) -> Option<Reason> {
    Some(match code {
        "AccessDenied" | "OperationNotPermitted" => Reason::MissingPermission,
        "AsgInstanceLaunchFailures" => Reason::LaunchFailed,
        "InsufficientFreeAddresses" | "IpNotAvailable" | "EniLimitReached" => Reason::InsufficientCapacity,
        "InstanceLimitExceeded" | "IamLimitExceeded" | "LimitExceeded" => Reason::QuotaExceeded,
        "NodeCreationFailure" => Reason::NodesNotReady,
        "PodEvictionFailure" => Reason::DrainBlocked,
        "IamNodeRoleNotFound"
        | "IamInstanceProfileNotFound"
        | "Ec2SubnetNotFound"
        | "SubnetNotFound"
        | "SecurityGroupNotFound"
        | "Ec2SecurityGroupNotFound"
        | "AmiIdNotFound" => Reason::NotFound,
        "Ec2SubnetInvalidConfiguration" | "Ec2InstanceTypeDoesNotExist" | "KubernetesLabelInvalid" => {
            Reason::RefusedByAws
        }
        _ => return None,
    })
}

/// What a person can do, with its field; ends where the next clause begins.
fn issue_remedy(code: &str) -> &'static str {
    match code {
        "AccessDenied" => {
            "let the role join (kube-system/aws-auth, or an access entry), and give it AmazonEKSWorkerNodePolicy; "
        }
        "AsgInstanceLaunchFailures" => {
            "change spec.eks-managed.configuration.instanceTypes, subnets or capacityType to what AWS can launch; "
        }
        "InsufficientFreeAddresses" | "IpNotAvailable" => {
            "free addresses in spec.eks-managed.configuration.subnets, or name more of them; "
        }
        "InstanceLimitExceeded" | "LimitExceeded" | "IamLimitExceeded" => "ask AWS for a higher quota; ",
        "NodeCreationFailure" => {
            "check the policies of spec.eks-managed.configuration.nodeRole and the subnets' way to the cluster and to the image registry; "
        }
        "PodEvictionFailure" => "let the pods' disruption budgets allow an eviction; ",
        "IamNodeRoleNotFound" => "make the role that spec.eks-managed.configuration.nodeRole names again; ",
        "Ec2SubnetNotFound" | "SubnetNotFound" => "correct spec.eks-managed.configuration.subnets; ",
        "Ec2SubnetInvalidConfiguration" => {
            "let the subnets of spec.eks-managed.configuration.subnets give public addresses, or use private ones with a way out; "
        }
        "Ec2InstanceTypeDoesNotExist" => "correct spec.eks-managed.configuration.instanceTypes; ",
        "KubernetesLabelInvalid" => "correct spec.eks-managed.configuration.nodeLabels; ",
        "Ec2SecurityGroupDeletionFailure" => {
            "remove what else refers to the security group that EKS made for logging in; "
        }
        _ => "",
    }
}
