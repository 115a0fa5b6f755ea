//! Why AWS launched no instance, by the words of Auto Scaling's activities and of EKS's issues. Neither has a code.

use crate::plan::Reason;

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
pub(crate) fn reason(message: &str) -> Reason {
    let contains = |words: &[&str]| words.iter().any(|word| message.contains(word));
    match () {
        () if contains(&CAPACITY) => Reason::InsufficientCapacity,
        () if contains(&QUOTAS) => Reason::QuotaExceeded,
        () => Reason::LaunchFailed,
    }
}

/// Whether a message says that subnets have no free addresses.
pub(crate) fn is_about_addresses(message: &str) -> bool {
    ["InsufficientFreeAddresses", "not enough free addresses"].iter().any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Missing capacity is not a failure of a revision, so a rollout must not halt for it.
    #[test]
    fn messages_of_auto_scaling_and_eks_are_distinguished() {
        for (message, expected) in [
            (
                "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (us-west-2a). Launching EC2 instance failed.",
                Reason::InsufficientCapacity,
            ),
            (
                "There are not enough free addresses in subnet 'subnet-1' to satisfy the requested number of instances. Launching EC2 instance failed.",
                Reason::InsufficientCapacity,
            ),
            (
                "Amazon AutoScaling was unable to launch instances because there are not enough free addresses in the subnet associated with your AutoScaling group(s).",
                Reason::InsufficientCapacity,
            ),
            (
                "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available that matches your request. Launching EC2 instance failed.",
                Reason::InsufficientCapacity,
            ),
            (
                "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than your current vCPU limit of 32 allows.",
                Reason::QuotaExceeded,
            ),
            (
                "You've reached your quota for maximum Fleet Requests for this account. Launching EC2 instance failed.",
                Reason::QuotaExceeded,
            ),
            ("Invalid IamInstanceProfile: web. Launching EC2 instance failed.", Reason::LaunchFailed),
        ] {
            assert_eq!(reason(message), expected, "{message}");
        }
    }
}
