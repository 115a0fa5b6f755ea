//! Steps of IAM: roles, their policies and their instance profiles.

use serde::Serialize;

use super::info::StepInfo;
use crate::aws::{NewRole, Tag};
use crate::plan::EventReason;
use crate::plan::event::Event;

/// One write to IAM.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum IamStep {
    /// CreateRole; an existing role with the group's tags is adopted.
    CreateRole(NewRole),
    /// UpdateAssumeRolePolicy of the controller's own Fargate role.
    UpdateTrustPolicy { role: String, policy: String },
    /// AttachRolePolicy.
    AttachPolicy { role: String, policy: String },
    /// DetachRolePolicy.
    DetachPolicy { role: String, policy: String },
    /// CreateInstanceProfile.
    CreateProfile { profile: String, tags: Vec<Tag> },
    /// AddRoleToInstanceProfile.
    AddRoleToProfile { profile: String, role: String },
    /// RemoveRoleFromInstanceProfile.
    RemoveRoleFromProfile { profile: String, role: String },
    /// DeleteInstanceProfile.
    DeleteProfile { profile: String },
    /// DeleteRole.
    DeleteRole { role: String },
    /// TagRole on an adopted role.
    TagRole { role: String, tags: Vec<Tag> },
    /// TagInstanceProfile on an adopted instance profile.
    TagProfile { profile: String, tags: Vec<Tag> },
}

impl StepInfo for IamStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            IamStep::CreateRole(role) => role.name.clone(),
            IamStep::AttachPolicy { role, .. }
            | IamStep::DetachPolicy { role, .. }
            | IamStep::UpdateTrustPolicy { role, .. }
            | IamStep::TagRole { role, .. }
            | IamStep::DeleteRole { role } => role.clone(),
            IamStep::CreateProfile { profile, .. }
            | IamStep::AddRoleToProfile { profile, .. }
            | IamStep::RemoveRoleFromProfile { profile, .. }
            | IamStep::TagProfile { profile, .. }
            | IamStep::DeleteProfile { profile } => profile.clone(),
        }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        match self {
            // Its only reason is that the role did not exist.
            IamStep::CreateRole(_) => Some(Event::normal(EventReason::RoleCreated, self.log_text())),
            IamStep::AttachPolicy { role, .. } | IamStep::DetachPolicy { role, .. } if !reasons.is_empty() => {
                Some(Event::with_reasons(EventReason::RoleUpdated, format!("changed the policies of {role}"), reasons))
            }
            IamStep::UpdateTrustPolicy { .. } => {
                Some(Event::with_reasons(EventReason::RoleUpdated, self.log_text(), reasons))
            }
            IamStep::AttachPolicy { .. }
            | IamStep::DetachPolicy { .. }
            | IamStep::CreateProfile { .. }
            | IamStep::AddRoleToProfile { .. }
            | IamStep::RemoveRoleFromProfile { .. }
            | IamStep::DeleteProfile { .. }
            | IamStep::DeleteRole { .. }
            | IamStep::TagRole { .. }
            | IamStep::TagProfile { .. } => None,
        }
    }

    fn log_text(&self) -> String {
        match self {
            IamStep::CreateRole(role) => format!("created the IAM role {}", role.name),
            IamStep::UpdateTrustPolicy { role, .. } => format!("changed the trust policy of {role}"),
            IamStep::AttachPolicy { role, policy } => format!("attached {policy} to the role {role}"),
            IamStep::DetachPolicy { role, policy } => format!("detached {policy} from the role {role}"),
            IamStep::CreateProfile { profile, .. } => format!("created the instance profile {profile}"),
            IamStep::AddRoleToProfile { profile, role } => {
                format!("added the role {role} to the instance profile {profile}")
            }
            IamStep::RemoveRoleFromProfile { profile, role } => {
                format!("removed the role {role} from the instance profile {profile}")
            }
            IamStep::DeleteProfile { profile } => format!("deleted the instance profile {profile}"),
            IamStep::DeleteRole { role } => format!("deleted the IAM role {role}"),
            IamStep::TagRole { role, .. } => format!("tagged the IAM role {role}"),
            IamStep::TagProfile { profile, .. } => format!("tagged the instance profile {profile}"),
        }
    }
}
