//! AWS resources that the deletion of a group leaves behind. Pure.

use super::role_region::OtherRegion;
use super::role_users::KeptEntry;
use crate::api::names::condition;
use crate::api::{Condition, InstanceGroupStatus};
use crate::plan::{ConditionUpdate, Outcome, Phase, PlanBuilder, Recheck};

/// Why a resource stays: the reason of the condition.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionReason {
    /// Another region may use a role.
    UsedInOtherRegion,
    /// Nothing proves the owner of a resource.
    OwnershipUnproven,
    /// Another group, instance or user uses a role.
    RoleInUse,
    /// A scaling group of others launches from the group's launch template.
    TemplateInUse,
    /// A node group may run the nodes of other groups.
    NodegroupInUse,
    /// A person changed a join entry.
    EntryModified,
}

impl RetentionReason {
    /// The reason as in a status.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RetentionReason::UsedInOtherRegion => "UsedInOtherRegion",
            RetentionReason::OwnershipUnproven => "OwnershipUnproven",
            RetentionReason::RoleInUse => "RoleInUse",
            RetentionReason::TemplateInUse => "TemplateInUse",
            RetentionReason::NodegroupInUse => "NodegroupInUse",
            RetentionReason::EntryModified => "EntryModified",
        }
    }
}

/// A resource that stays.
pub(crate) struct Retained {
    reason: RetentionReason,
    message: String,
}

impl Retained {
    /// A role that another region may use; `what` names it.
    pub(crate) fn role(what: String, other: &OtherRegion) -> Self {
        let message = format!("keeping {what}: {other}; delete it manually once no region uses it");
        Retained { reason: RetentionReason::UsedInOtherRegion, message }
    }

    /// A role with which others run nodes; `what` names it.
    pub(crate) fn role_in_use(what: &str, user: &str) -> Self {
        let message = format!("keeping {what}: {user} uses the role; delete it manually once nothing uses it");
        Retained { reason: RetentionReason::RoleInUse, message }
    }

    /// A launch template from which a scaling group of others launches. EC2 would delete it, and that scaling group would
    /// launch nothing any more.
    pub(crate) fn template_in_use(template: &str, scaling_group: &str) -> Self {
        let message = format!(
            "keeping the launch template {template}: the scaling group {scaling_group}, which is not this group's, launches from it; delete it manually once nothing launches from it"
        );
        Retained { reason: RetentionReason::TemplateInUse, message }
    }

    /// A managed node group that no tags assign to a group, and that may serve other groups, too. EKS would terminate
    /// their nodes with it.
    pub(crate) fn nodegroup_in_use(nodegroup: &str, groups: &str) -> Self {
        let message = format!(
            "keeping the node group {nodegroup}: it may also run the nodes of {groups}, because the Keiko controller shares it between groups of one name; delete it manually once no group needs it"
        );
        Retained { reason: RetentionReason::NodegroupInUse, message }
    }

    /// An entry in aws-auth that is not as the controller writes it.
    pub(crate) fn modified_entry(role_arn: &str) -> Self {
        let message = format!(
            "keeping the entry of {role_arn} in the ConfigMap kube-system/aws-auth: it is not as the controller writes it; remove it manually once nothing needs it"
        );
        Retained { reason: RetentionReason::EntryModified, message }
    }

    /// Resources whose ownership tags were removed; `what` names them.
    pub(crate) fn unproven(what: &str) -> Self {
        let message = format!(
            "keeping {what}: without this group's tags, nothing proves that the group owns them; delete them manually"
        );
        Retained { reason: RetentionReason::OwnershipUnproven, message }
    }
}

impl From<&KeptEntry> for Retained {
    fn from(kept: &KeptEntry) -> Self {
        Retained { reason: RetentionReason::RoleInUse, message: kept.message() }
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
        reason: first.reason.as_str().into(),
        message: message.clone(),
    });
    let recheck = Recheck::Immediately;
    builder.set_outcome_once(Outcome::Progressing { phase: Phase::Deleting, message, recheck });
}
