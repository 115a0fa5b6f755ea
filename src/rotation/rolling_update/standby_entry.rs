//! Whether an instance entered standby, which AWS may show late.

use jiff::SignedDuration;

use super::types::RollingUpdateInput;
use crate::aws::InstanceState;
use crate::rotation::members::NodeInstance;

/// How long EnterStandby may stay invisible: its response may be lost, and DescribeAutoScalingGroups may lag behind it.
pub(crate) const STANDBY_DELAY: SignedDuration = SignedDuration::from_mins(2);

/// Whether the instance of a surge record is still in service, so long after it that EnterStandby was not called.
pub(super) fn never_entered_standby(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    let record = member.node.as_ref().and_then(|node| node.surge.as_ref()).filter(|r| r.group == input.group_uid);
    member.instance.state == InstanceState::InService
        && record.is_some_and(|record| input.now.duration_since(record.since) >= STANDBY_DELAY)
}

/// Whether the instance may be in standby, although AWS shows it in service. It would then not count in the desired
/// capacity: a termination that lowers this would let AWS remove another instance, which is not drained.
pub(super) fn may_be_in_standby(input: &RollingUpdateInput, member: &NodeInstance) -> bool {
    member.instance.state == InstanceState::InService
        && member.has_surge_record(input.group_uid)
        && !never_entered_standby(input, member)
}
