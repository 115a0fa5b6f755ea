//! Why AWS launched no instance, by the words of Auto Scaling's activities and of EKS's issues. Neither has a code.

use crate::plan::StalledReason;

/// Words about capacity, also about that of subnets.
const CAPACITY: [&str; 7] = [
    "InsufficientInstanceCapacity",
    "InsufficientCapacity",
    "do not have sufficient",
    "UnfulfillableCapacity",
    "Insufficient capacity",
    "InsufficientFreeAddresses",
    "not enough free addresses",
];
/// Words about quotas of the account.
const QUOTAS: [&str; 6] = [
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "vCPU limit",
    "LimitExceeded",
    "reached your quota",
];

/// The reason of the condition for such a message.
pub(crate) fn reason(message: &str) -> StalledReason {
    let contains = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match () {
        () if contains(&CAPACITY) => StalledReason::InsufficientCapacity,
        () if contains(&QUOTAS) => StalledReason::QuotaExceeded,
        () => StalledReason::LaunchFailed,
    }
}

/// Whether a message says that subnets have no free addresses.
fn is_about_addresses(message: &str) -> bool {
    ["InsufficientFreeAddresses", "not enough free addresses"].iter().any(|word| message.contains(word))
}

/// What to do about a failed launch, as a clause after AWS's own words; empty if there is nothing to add.
pub(crate) fn remedy(message: &str) -> &'static str {
    match reason(message) {
        _ if is_about_addresses(message) => "; free addresses in the subnets, or add subnets",
        _ if is_about_metadata_tags(message) => METADATA_TAGS,
        StalledReason::InsufficientCapacity => {
            "; wait, add subnets in other zones, or allow other instance types (mixedInstancesPolicy)"
        }
        StalledReason::QuotaExceeded => "; request a quota increase from AWS, or shrink other groups",
        _ => "",
    }
}

/// EC2 shows the tags of an instance in its metadata only if no key contains a slash. The account's default counts for a
/// launch template version without a setting of its own (Amazon EC2 User Guide, "Configure the Instance Metadata Service
/// options", Order of precedence).
const METADATA_TAGS: &str = "; the account's default enables instance tags in instance metadata, which does not allow the \
    tags of nodes; remove that default with `aws ec2 modify-instance-metadata-defaults --instance-metadata-tags \
    no-preference`, or set or change metadataOptions: every new launch template version disables such tags";

/// Whether a message says that the keys of tags are not allowed in instance metadata.
fn is_about_metadata_tags(message: &str) -> bool {
    message.contains("is not a valid tag key")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key that EC2 names is Kubernetes' own; no user would guess that a default of the account forbids it.
    #[test]
    fn launches_refused_for_their_tag_keys_name_the_default_of_the_account() {
        let message = r"'kubernetes.io/cluster/demo' is not a valid tag key. Tag keys must match pattern \
            ([0-9a-zA-Z\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index'). \
            Launching EC2 instance failed.";
        assert_eq!(reason(message), StalledReason::LaunchFailed);
        assert!(remedy(message).contains("modify-instance-metadata-defaults"));
        assert_eq!(remedy("Invalid IamInstanceProfile: web. Launching EC2 instance failed."), "");
    }

    /// Missing capacity is not a failure of a revision, so a rollout must not halt for it.
    #[test]
    fn messages_of_auto_scaling_and_eks_are_distinguished() {
        for (message, expected) in [
            (
                "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-west-2a). Launching EC2 instance failed.",
                StalledReason::InsufficientCapacity,
            ),
            (
                "There are not enough free addresses in subnet 'subnet-1' to satisfy the requested number of instances. Launching EC2 instance failed.",
                StalledReason::InsufficientCapacity,
            ),
            (
                "Amazon AutoScaling was unable to launch instances because there are not enough free addresses in the subnet associated with your AutoScaling group(s).",
                StalledReason::InsufficientCapacity,
            ),
            (
                "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available that matches your request. Launching EC2 instance failed.",
                StalledReason::InsufficientCapacity,
            ),
            (
                "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 32 allows.",
                StalledReason::QuotaExceeded,
            ),
            (
                "You've reached your quota for maximum Fleet Requests for this account. Launching EC2 instance failed.",
                StalledReason::QuotaExceeded,
            ),
            ("Invalid IamInstanceProfile: web. Launching EC2 instance failed.", StalledReason::LaunchFailed),
        ] {
            assert_eq!(reason(message), expected, "{message}");
        }
    }
}
