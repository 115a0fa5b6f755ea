//! How a node group stands, in EKS's words, with what a person can do.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::input::Input;
use super::observed::Group;
use crate::aws::InstanceState;
use crate::aws::nodegroup::{Issue, NodegroupStatus, NodegroupUpdate, UpdateStatus};
use crate::plan::{Draft, Outcome, Phase, Reason, waiting};
use crate::rotation::Member;

/// An update that failed is begun again so long after it began: EKS itself tries a node for a quarter of an hour.
const AGAIN: SignedDuration = SignedDuration::from_hours(1);

impl Input<'_> {
    /// When an update that failed, and was to reach the same, is begun again.
    pub fn again(&self, of: &str) -> Option<Timestamp> {
        let update = self.state.update.as_ref().filter(|u| failed(u))?;
        let at = update.created? + AGAIN;
        (self.status.update_of.as_deref() == Some(of) && at > self.now).then_some(at)
    }
}

fn stalled(reason: Reason, message: String) -> Outcome {
    Outcome::Blocked { reason, message, deleting: false }
}

/// How many nodes are Ready, in words.
pub fn readiness(group: &Group) -> String {
    format!("{} of {} nodes are ready", group.ready(), group.desired())
}

/// Nodes by state: of the group that serves, and of those that leave.
pub fn counts(input: &Input, serving: &Group, others: &[&Group]) -> Value {
    let leaving = others.iter().filter(|group| group.name() != serving.name());
    let live = |m: &&Member| matches!(m.instance.state, InstanceState::InService | InstanceState::Pending);
    let rest: usize = leaving.clone().map(|group| group.members.iter().filter(live).count()).sum();
    let old = serving.members.iter().filter(live).filter(|m| !m.outdated.is_empty() || behind(serving, m)).count();
    let uid = &input.resolved.wanted.id.uid;
    let all = || input.state.groups.iter().flat_map(|group| &group.members);
    json!({
        "desired": serving.desired(),
        "ready": all().filter(|m| m.ready()).count(),
        "updated": serving.members.iter().filter(live).count() - old,
        "outdated": old + rest,
        "draining": all().filter(|m| m.mark(uid).is_some()).count(),
    })
}

/// Whether an instance was launched before EKS gave its scaling group another version of the template.
fn behind(group: &Group, member: &Member) -> bool {
    let pinned = group.scaling.iter().find_map(|scaling| scaling.template.as_ref());
    matches!((pinned, &member.instance.template), (Some(pinned), Some(own)) if pinned.number().is_some() && pinned != own)
}

/// Whether an update ended without its end reached.
pub fn failed(update: &NodegroupUpdate) -> bool {
    matches!(update.status, UpdateStatus::Failed | UpdateStatus::Cancelled)
}

/// The update that the status names has not ended.
pub fn under_way(input: &Input) -> bool {
    input.state.update.as_ref().is_some_and(|update| update.status == UpdateStatus::InProgress)
}

/// What is waited for while EKS works on a node group. An update that somebody else began is waited for as well.
pub fn updating(input: &Input, group: &Group) -> Outcome {
    let name = &group.name().nodegroup;
    let Some(update) = input.state.update.as_ref().filter(|_| under_way(input)) else {
        return waiting(Phase::Modifying, format!("EKS works on the node group {name}; {}", readiness(group)));
    };
    let phase = if update.kind == "VersionUpdate" { Phase::Rotating } else { Phase::Modifying };
    let old = group.members.iter().filter(|member| behind(group, member)).count();
    let total = group.members.len();
    let progress = match phase {
        Phase::Rotating => format!("{} of {total} nodes run the new version", total - old),
        Phase::Creating | Phase::Modifying | Phase::Deleting => readiness(group),
    };
    waiting(phase, format!("EKS works on the node group {name} (update {}): {progress}", update.id))
}

/// The update that the status names has failed, and the same is not begun again yet.
pub fn update_failed(input: &Input) -> Outcome {
    let update = input.state.update.as_ref();
    let errors = update.map(|u| u.errors.as_slice()).unwrap_or_default();
    let id = update.map(|u| u.id.clone()).unwrap_or_default();
    let why = match (errors, update.map(|u| u.status)) {
        (_, Some(UpdateStatus::Cancelled)) => "it was cancelled".to_owned(),
        ([], _) => "EKS gives no reason".to_owned(),
        (errors, _) => sentence(errors),
    };
    let reason =
        errors.first().map_or(Reason::UpdateFailed, |error| reason(&error.code).unwrap_or(Reason::UpdateFailed));
    let remedy = errors.first().map_or("", |error| remedy(&error.code));
    let again = "it is begun again an hour after it began, and at once when something else is wanted";
    stalled(reason, format!("the update {id} failed: {why}; {remedy}{again}"))
}

/// A node group that could not be made or deleted.
pub fn blocked(input: &Input, group: &Group) -> Outcome {
    let name = &group.name().nodegroup;
    let issues = &group.nodegroup.issues;
    let (what, then) = match group.nodegroup.status {
        NodegroupStatus::DeleteFailed => ("could not be deleted", "mend it, and the deletion is tried again"),
        _ => ("could not be made", "mend it, then delete the node group, and it is made again"),
    };
    let reason = issues.first().and_then(|issue| reason(&issue.code)).unwrap_or(Reason::Degraded);
    stalled(reason, format!("the node group {name} {what}: {}; {then}", told(input, issues)))
}

/// When nothing is to be done: whether every node is there, and if not, why.
pub fn standing(input: &Input, group: &Group, draft: &mut Draft) {
    let all = group.ready() >= group.desired();
    draft.facts.nodes_ready = Some(all);
    if input.status.update_of.is_some() && !input.state.update.as_ref().is_some_and(failed) {
        draft.facts.status.insert("updateOf".into(), Value::Null);
    }
    let issues = &group.nodegroup.issues;
    if group.nodegroup.status == NodegroupStatus::Degraded || (!issues.is_empty() && !all) {
        let reason = issues.first().and_then(|issue| reason(&issue.code)).unwrap_or(Reason::Degraded);
        let message = format!("the node group {} is degraded: {}", group.name().nodegroup, told(input, issues));
        return draft.decide(stalled(reason, message));
    }
    if all {
        return;
    }
    if let Some(message) = silent(input, group) {
        return draft.decide(stalled(Reason::NodesNotReady, message));
    }
    let rotating = input.status.current_state.as_deref() == Some(crate::api::CurrentState::InitUpgrade.as_str());
    let creating = input.status.current_state.as_deref() == Some(crate::api::CurrentState::InitCreate.as_str());
    let phase = match (rotating, creating) {
        (true, _) => Phase::Rotating,
        (_, true) => Phase::Creating,
        (false, false) => Phase::Modifying,
    };
    draft.decide(waiting(phase, readiness(group)));
}

/// Instances that have had their time to join and are not Ready.
fn silent(input: &Input, group: &Group) -> Option<String> {
    let timeout = input.resolved.wanted.strategy.join_timeout;
    let late = |m: &&Member| {
        let since = m.instance.in_service_since.unwrap_or(input.now);
        m.instance.state == InstanceState::InService && !m.ready() && input.now.duration_since(since) >= timeout
    };
    let named = |m: &Member| match &m.node {
        Some(node) => format!("{} ({} is not ready)", m.instance.id, node.name),
        None => format!("{} (never joined)", m.instance.id),
    };
    let names: Vec<_> = group.members.iter().filter(late).map(named).collect();
    let timeout = crate::util::duration::text(timeout);
    (!names.is_empty()).then(|| {
        format!(
            "{} did not become Ready within {timeout}; check the node role and the subnets' way to the cluster",
            names.join(", ")
        )
    })
}

/// Too many nodes are not ready at once: no node is given up then.
pub fn unhealthy(input: &Input) -> Option<Outcome> {
    let fleet = input.state.fleet;
    fleet.unhealthy().then(|| {
        let message = format!(
            "{} of {} nodes of the cluster are not ready at once; nothing is replaced until they are fewer",
            fleet.not_ready, fleet.known
        );
        stalled(Reason::ClusterUnhealthy, message)
    })
}

fn sentence(issues: &[Issue]) -> String {
    issues.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// EKS's words with a remedy, and what the role lacks where that explains them.
pub fn told(input: &Input, issues: &[Issue]) -> String {
    let Some(first) = issues.first() else {
        return "EKS gives no reason; look at the node group in its console".into();
    };
    let mut text = sentence(issues);
    let remedy = remedy(&first.code).trim_end_matches("; ");
    if !remedy.is_empty() {
        text += &format!("; {remedy}");
    }
    let about_the_role = ["NodeCreationFailure", "AccessDenied", "IamNodeRoleNotFound"].contains(&first.code.as_str());
    if about_the_role && !input.state.lacking.is_empty() {
        text += &format!(
            "; spec.eks-managed.configuration.nodeRole lacks {}: attach it, or grant the same otherwise",
            input.state.lacking.join(" and ")
        );
    }
    text
}

/// The reason that a person sees: data types Issue and ErrorDetail of the EKS API Reference.
pub fn reason(code: &str) -> Option<Reason> {
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
fn remedy(code: &str) -> &'static str {
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
