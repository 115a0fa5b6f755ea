//! What the error codes of EKS mean: the reason of the condition, and the remedy.

use crate::aws::nodegroup::NodegroupIssue;
use crate::plan::StalledReason;
use crate::provisioner::launch_failures;

/// The error code of an update that ended because EKS could not drain a node.
pub(crate) const POD_EVICTION_FAILURE: &str = "PodEvictionFailure";
/// The issue code of a node group whose scaling group was deleted.
pub(crate) const SCALING_GROUP_NOT_FOUND: &str = "AutoScalingGroupNotFound";

/// The condition reason for an error of EKS (EKS API reference, Issue and ErrorDetail). A launch that failed has Auto
/// Scaling's own words. What AWS or the control plane fails at by itself says nothing about the spec.
pub(crate) fn issue_reason(issue: &NodegroupIssue) -> Option<StalledReason> {
    Some(match issue.code.as_str() {
        "AccessDenied" | "OperationNotPermitted" => StalledReason::MissingPermission,
        "AsgInstanceLaunchFailures" => launch_failures::reason(&issue.message),
        "InsufficientFreeAddresses" | "IpNotAvailable" | "EniLimitReached" => StalledReason::InsufficientCapacity,
        "InstanceLimitExceeded" | "IamLimitExceeded" | "LimitExceeded" => StalledReason::QuotaExceeded,
        "NodeCreationFailure" => StalledReason::NodesNotReady,
        POD_EVICTION_FAILURE => StalledReason::DrainBlocked,
        "ClusterUnreachable" => StalledReason::ClusterUnhealthy,
        "AutoScalingGroupInstanceRefreshActive" => StalledReason::ProcessSuspended,
        "InternalFailure" | "Unknown" | "IamThrottling" | "AutoScalingGroupRateLimitExceeded" => {
            StalledReason::AwsFailed
        }
        "IamNodeRoleNotFound"
        | "IamInstanceProfileNotFound"
        | "Ec2SubnetNotFound"
        | "SubnetNotFound"
        | "SecurityGroupNotFound"
        | "Ec2SecurityGroupNotFound"
        | "AmiIdNotFound" => StalledReason::NotFound,
        "Ec2SubnetInvalidConfiguration" | "Ec2InstanceTypeDoesNotExist" | "KubernetesLabelInvalid" => {
            StalledReason::RefusedByAws
        }
        _ => return None,
    })
}

/// How to fix an error, with the spec field. Not empty values end with `; `, so that a clause can follow.
pub(crate) fn issue_remedy(code: &str) -> &'static str {
    match code {
        "AccessDenied" => {
            "authorize the role to join (kube-system/aws-auth, or an access entry), and attach AmazonEKSWorkerNodePolicy; "
        }
        "AsgInstanceLaunchFailures" => {
            "change spec.eks-managed.configuration.instanceTypes, subnets or capacityType so that AWS can launch instances; "
        }
        "InsufficientFreeAddresses" | "IpNotAvailable" => {
            "free IP addresses in spec.eks-managed.configuration.subnets, or add subnets; "
        }
        "InstanceLimitExceeded" | "LimitExceeded" | "IamLimitExceeded" => "request a higher quota from AWS; ",
        "NodeCreationFailure" => {
            "check the policies of spec.eks-managed.configuration.nodeRole, and the routes from the subnets to the API server and the image registry; "
        }
        POD_EVICTION_FAILURE => "change the PodDisruptionBudgets so that they allow an eviction; ",
        "ClusterUnreachable" => "check the API server, and the subnets and security groups of the cluster; ",
        "AutoScalingGroupInstanceRefreshActive" => "wait for the instance refresh of the scaling group, or cancel it; ",
        "InternalFailure" | "Unknown" => {
            "nothing in the spec is known to cause it: see AWS's health dashboard, and ask AWS Support if it lasts; "
        }
        "IamThrottling" | "AutoScalingGroupRateLimitExceeded" => {
            "find what else uses up the API rate of the account (CloudTrail, service quotas); "
        }
        "IamNodeRoleNotFound" => "recreate the role in spec.eks-managed.configuration.nodeRole; ",
        "Ec2SubnetNotFound" | "SubnetNotFound" => "correct spec.eks-managed.configuration.subnets; ",
        "Ec2SubnetInvalidConfiguration" => {
            "enable public IP addresses on spec.eks-managed.configuration.subnets, or use private subnets with a NAT gateway; "
        }
        "Ec2InstanceTypeDoesNotExist" => "correct spec.eks-managed.configuration.instanceTypes; ",
        SCALING_GROUP_NOT_FOUND => {
            "another client deleted it, and CloudTrail names the caller; once no node of the node group is left, the controller deletes it and creates it again; "
        }
        "Ec2LaunchTemplateNotFound" => {
            "another client deleted it, and CloudTrail names the caller: move the pods, delete the node group in EKS, and the controller creates it again; "
        }
        "Ec2LaunchTemplateVersionMismatch" => {
            "another client changed the launch template of the scaling group, and CloudTrail names the caller: set the version that EKS created again; "
        }
        "AmiIdNotFound" => "correct spec.eks-managed.configuration.amiType or releaseVersion; ",
        "KubernetesLabelInvalid" => "correct spec.eks-managed.configuration.nodeLabels; ",
        "Ec2SecurityGroupDeletionFailure" => {
            "remove other references to the security group that EKS created for remote access; "
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of the type NodegroupIssueCode of the EKS API, and whether a rollout's revision can be the cause.
    const CODES: [(&str, bool); 36] = [
        ("AutoScalingGroupNotFound", true),
        ("AutoScalingGroupInvalidConfiguration", true),
        ("Ec2SecurityGroupNotFound", true),
        ("Ec2SecurityGroupDeletionFailure", true),
        ("Ec2LaunchTemplateNotFound", true),
        ("Ec2LaunchTemplateVersionMismatch", true),
        ("Ec2SubnetNotFound", true),
        ("Ec2SubnetInvalidConfiguration", true),
        ("IamInstanceProfileNotFound", true),
        ("Ec2SubnetMissingIpv6Assignment", true),
        ("IamLimitExceeded", false),
        ("IamNodeRoleNotFound", true),
        ("NodeCreationFailure", true),
        ("AsgInstanceLaunchFailures", true),
        ("InstanceLimitExceeded", false),
        ("InsufficientFreeAddresses", false),
        ("AccessDenied", true),
        ("InternalFailure", false),
        ("ClusterUnreachable", false),
        ("AmiIdNotFound", true),
        ("AutoScalingGroupOptInRequired", true),
        ("AutoScalingGroupRateLimitExceeded", false),
        ("Ec2LaunchTemplateDeletionFailure", true),
        ("Ec2LaunchTemplateInvalidConfiguration", true),
        ("Ec2LaunchTemplateMaxLimitExceeded", true),
        ("Ec2SubnetListTooLong", true),
        ("IamThrottling", false),
        ("NodeTerminationFailure", true),
        ("PodEvictionFailure", false),
        ("SourceEc2LaunchTemplateNotFound", true),
        ("LimitExceeded", false),
        ("Unknown", false),
        ("AutoScalingGroupInstanceRefreshActive", false),
        ("KubernetesLabelInvalid", true),
        ("Ec2LaunchTemplateVersionMaxLimitExceeded", true),
        ("Ec2InstanceTypeDoesNotExist", true),
    ];

    /// An API server that EKS does not reach for a minute must not halt the rollout of an image.
    #[test]
    fn only_issues_that_a_revision_can_cause_are_its_failures() {
        for (code, is_failure) in CODES {
            let issue = NodegroupIssue { code: code.into(), message: "EKS's words".into(), resources: vec![] };
            // What EKS reports of the node group, and of its update.
            for other in [StalledReason::Degraded, StalledReason::UpdateFailed] {
                let reason = issue_reason(&issue).unwrap_or(other);
                assert_eq!(reason.is_failure_of_revision(), is_failure, "{code}: {reason}");
            }
            assert!(is_failure || !issue_remedy(code).is_empty(), "{code} has no remedy");
        }
    }
}
