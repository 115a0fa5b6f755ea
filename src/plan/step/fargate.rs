//! Steps of this provisioner: Fargate profiles.

use serde::Serialize;

use crate::api::names::event;
use crate::aws::Tag;
use crate::aws::fargate::NewFargateProfile;
use crate::plan::{Act, Told};

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
        serves: bool,
    },
    /// TagResource of a Fargate profile.
    TagFargateProfile { cluster: String, profile: String, arn: String, tags: Vec<Tag> },
    /// UntagResource of a Fargate profile.
    UntagFargateProfile { cluster: String, profile: String, arn: String, keys: Vec<String> },
}

impl Act for FargateStep {
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

    fn event(&self, why: &str) -> Option<Told> {
        let (reason, did) = match self {
            FargateStep::CreateFargateProfile(_) if self.makes() => (event::CREATED, "EKS makes the Fargate profile"),
            FargateStep::CreateFargateProfile(_) => ("FargateProfileCreated", "EKS makes the Fargate profile"),
            FargateStep::DeleteFargateProfile { .. } => ("FargateProfileDeleted", "EKS deletes the Fargate profile"),
            FargateStep::TagFargateProfile { .. } | FargateStep::UntagFargateProfile { .. } => {
                ("FargateProfileUpdated", "changed the tags of the Fargate profile")
            }
        };
        Some(Told::because(reason, format!("{did} {}", self.subject()), why))
    }

    fn disrupts(&self) -> bool {
        matches!(self, FargateStep::DeleteFargateProfile { serves: true, .. })
    }

    fn makes(&self) -> bool {
        matches!(self, FargateStep::CreateFargateProfile(profile) if profile.replaces.is_none())
    }
}
