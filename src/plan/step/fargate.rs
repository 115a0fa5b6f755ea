//! Steps of the provisioner `eks-fargate`: Fargate profiles.

use serde::Serialize;

use super::info::StepInfo;
use crate::aws::Tag;
use crate::aws::fargate::NewFargateProfile;
use crate::plan::EventReason;
use crate::plan::event::Event;

/// One write to a Fargate profile.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum FargateStep {
    /// CreateFargateProfile; an existing profile with the group's tags is adopted.
    CreateFargateProfile(NewFargateProfile),
    /// DeleteFargateProfile; EKS deletes the pods that run on it.
    DeleteFargateProfile {
        cluster: String,
        profile: String,
        /// Whether pods may run on it.
        may_run_pods: bool,
    },
    /// TagResource of a Fargate profile.
    TagFargateProfile { cluster: String, profile: String, arn: String, tags: Vec<Tag> },
    /// UntagResource of a Fargate profile.
    UntagFargateProfile { cluster: String, profile: String, arn: String, keys: Vec<String> },
}

impl StepInfo for FargateStep {
    fn name(&self) -> &'static str {
        self.into()
    }

    fn subject(&self) -> String {
        match self {
            FargateStep::CreateFargateProfile(profile) => profile.name.clone(),
            FargateStep::DeleteFargateProfile { profile, .. }
            | FargateStep::TagFargateProfile { profile, .. }
            | FargateStep::UntagFargateProfile { profile, .. } => profile.clone(),
        }
    }

    fn event(&self, reasons: &str) -> Option<Event> {
        let (reason, action) = match self {
            FargateStep::CreateFargateProfile(_) if self.creates_nodes() => {
                (EventReason::InstanceGroupCreated, "EKS is creating the Fargate profile")
            }
            FargateStep::CreateFargateProfile(_) => {
                (EventReason::FargateProfileCreated, "EKS is creating the Fargate profile")
            }
            FargateStep::DeleteFargateProfile { .. } => {
                (EventReason::FargateProfileDeleted, "EKS is deleting the Fargate profile")
            }
            FargateStep::TagFargateProfile { .. } | FargateStep::UntagFargateProfile { .. } => {
                (EventReason::FargateProfileUpdated, "changed the tags of the Fargate profile")
            }
        };
        Some(Event::with_reasons(reason, format!("{action} {}", self.subject()), reasons))
    }

    fn is_disruptive(&self) -> bool {
        matches!(self, FargateStep::DeleteFargateProfile { may_run_pods: true, .. })
    }

    fn creates_nodes(&self) -> bool {
        matches!(self, FargateStep::CreateFargateProfile(profile) if profile.replaces.is_none())
    }
}
