//! AWS resources that the deletion of a group leaves behind. Pure.

use super::role_region::OtherRegion;
use super::role_users::KeptEntry;
use crate::api::names::condition;
use crate::api::{Condition, InstanceGroupStatus};
use crate::plan::{ConditionUpdate, Outcome, Phase, PlanBuilder, Recheck};

/// Reason of the condition while another region may use a role.
pub(crate) const USED_IN_OTHER_REGION: &str = "UsedInOtherRegion";
/// Reason of the condition while nothing proves the owner of a resource.
pub(crate) const OWNERSHIP_UNPROVEN: &str = "OwnershipUnproven";

/// Reason of the condition while another group, instance or user uses a role.
pub(crate) const ROLE_IN_USE: &str = "RoleInUse";

/// Reason of the condition while a scaling group of others launches from the group's launch template.
pub(crate) const TEMPLATE_IN_USE: &str = "TemplateInUse";

/// Reason of the condition while a node group may run the nodes of other groups.
pub(crate) const NODEGROUP_IN_USE: &str = "NodegroupInUse";

/// A resource that stays.
pub(crate) struct Retained {
    reason: &'static str,
    message: String,
}

impl Retained {
    /// A role that another region may use; `what` names it.
    pub(crate) fn role(what: String, other: &OtherRegion) -> Self {
        let message = format!("keeping {what}: {other}; delete it manually once no region uses it");
        Retained { reason: USED_IN_OTHER_REGION, message }
    }

    /// A role with which others run nodes; `what` names it.
    pub(crate) fn role_in_use(what: &str, user: &str) -> Self {
        let message = format!("keeping {what}: {user} uses the role; delete it manually once nothing uses it");
        Retained { reason: ROLE_IN_USE, message }
    }

    /// A launch template from which a scaling group of others launches. EC2 would delete it, and that scaling group would
    /// launch nothing any more.
    pub(crate) fn template_in_use(template: &str, scaling_group: &str) -> Self {
        let message = format!(
            "keeping the launch template {template}: the scaling group {scaling_group}, which is not this group's, launches from it; delete it manually once nothing launches from it"
        );
        Retained { reason: TEMPLATE_IN_USE, message }
    }

    /// A managed node group that no tags assign to a group, and that may serve other groups, too. EKS would terminate
    /// their nodes with it.
    pub(crate) fn nodegroup_in_use(nodegroup: &str, groups: &str) -> Self {
        let message = format!(
            "keeping the node group {nodegroup}: it may also run the nodes of {groups}, because the Keiko controller shares it between groups of one name; delete it manually once no group needs it"
        );
        Retained { reason: NODEGROUP_IN_USE, message }
    }

    /// Resources whose ownership tags were removed; `what` names them.
    pub(crate) fn unproven(what: &str) -> Self {
        let message = format!(
            "keeping {what}: without this group's tags, nothing proves that the group owns them; delete them manually"
        );
        Retained { reason: OWNERSHIP_UNPROVEN, message }
    }
}

impl From<&KeptEntry> for Retained {
    fn from(kept: &KeptEntry) -> Self {
        Retained { reason: ROLE_IN_USE, message: kept.message() }
    }
}

/// Reports the resources that stay. The group is gone in the next pass, so that its last status shows it.
pub(crate) fn report_retained(status: &InstanceGroupStatus, kept: &[Retained], builder: &mut PlanBuilder) {
    let is_reported = |c: &Condition| c.r#type == condition::RESOURCES_RETAINED && c.is_true();
    let Some(first) = kept.first().filter(|_| !status.conditions.iter().any(is_reported)) else { return };
    let message = kept.iter().map(|retained| retained.message.as_str()).collect::<Vec<_>>().join("; ");
    builder.condition_updates.push(ConditionUpdate {
        condition_type: condition::RESOURCES_RETAINED,
        status: true,
        reason: first.reason.into(),
        message: message.clone(),
    });
    let recheck = Recheck::Immediately;
    builder.set_outcome_once(Outcome::Progressing { phase: Phase::Deleting, message, recheck });
}
