//! Steps of this provisioner: Fargate profiles.

use serde::Serialize;

use crate::api::names::event;
use crate::aws::Tag;
use crate::aws::fargate::NewFargateProfile;
use crate::plan::{Event, StepInfo};

/// One write to a Fargate profile.
#[derive(Clone, Debug, PartialEq, Serialize, strum::IntoStaticStr)]
#[serde(tag = "step", rename_all_fields = "camelCase")]
pub enum FargateStep {
    /// CreateFargateProfile; one that is there with our tags is ours.
    CreateFargateProfile(NewFargateProfile),
    /// DeleteFargateProfile; EKS deletes the pods that run by it.
    DeleteFargateProfile {
        cluster: String,
        profile: String,
        /// Pods may run by it.
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

    fn event(&self, why: &str) -> Option<Event> {
        let (reason, did) = match self {
            FargateStep::CreateFargateProfile(_) if self.creates_nodes() => {
                (event::CREATED, "EKS makes the Fargate profile")
            }
            FargateStep::CreateFargateProfile(_) => ("FargateProfileCreated", "EKS makes the Fargate profile"),
            FargateStep::DeleteFargateProfile { .. } => ("FargateProfileDeleted", "EKS deletes the Fargate profile"),
            FargateStep::TagFargateProfile { .. } | FargateStep::UntagFargateProfile { .. } => {
                ("FargateProfileUpdated", "changed the tags of the Fargate profile")
            }
        };
        Some(Event::with_reasons(reason, format!("{did} {}", self.subject()), why))
    }

    fn is_disruptive(&self) -> bool {
        matches!(self, FargateStep::DeleteFargateProfile { may_run_pods: true, .. })
    }

    fn creates_nodes(&self) -> bool {
        matches!(self, FargateStep::CreateFargateProfile(profile) if profile.replaces.is_none())
    }
}
