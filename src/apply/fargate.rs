//! Fargate profiles.

use super::{Done, Run, Step_, Stopped, gone, tagged};
use crate::aws::fargate::NewFargateProfile;
use crate::aws::{AwsError, AwsErrorKind};
use crate::plan::Step;
use crate::provisioner::ownership::KEYS;

impl Run<'_> {
    pub(super) async fn fargate(&mut self, step: &Step) -> Step_ {
        let inventory = self.a.inventory;
        let eks = &inventory.aws().fargate;
        match step {
            Step::CreateFargateProfile(input) => self.create_fargate_profile(input).await,
            Step::DeleteFargateProfile { cluster, profile, .. } => {
                let result = eks.delete_fargate_profile(cluster, profile).await;
                inventory.wrote_fargate_profile(cluster, profile);
                gone(result)
            }
            Step::TagFargateProfile { cluster, profile, arn, tags } => {
                let result = eks.tag_fargate_profile(arn, tags).await;
                inventory.wrote_fargate_profile(cluster, profile);
                tagged(result)
            }
            Step::UntagFargateProfile { cluster, profile, arn, keys } => {
                let result = eks.untag_fargate_profile(arn, keys).await;
                inventory.wrote_fargate_profile(cluster, profile);
                tagged(result)
            }
            other => unreachable!("{} is no step of Fargate", other.name()),
        }
    }

    /// A profile that is there already is ours when it carries our tags: a create whose answer was lost.
    async fn create_fargate_profile(&self, input: &NewFargateProfile) -> Step_ {
        let inventory = self.a.inventory;
        let eks = &inventory.aws().fargate;
        match eks.create_fargate_profile(input).await {
            Ok(profile) => inventory.made_fargate_profile(&input.cluster, profile),
            Err(error) => {
                inventory.wrote_fargate_profile(&input.cluster, &input.name);
                match error.kind {
                    AwsErrorKind::AlreadyExists => {}
                    AwsErrorKind::InvalidProfile if !input.own_role => {
                        return Err(Stopped::Aws(AwsError { kind: AwsErrorKind::Invalid, ..error }));
                    }
                    _ => return Err(Stopped::Aws(error)),
                }
                let found = eks.describe_fargate_profile(&input.cluster, &input.name).await.map_err(Stopped::Aws)?;
                let ownership: Vec<_> = input.tags.iter().filter(|t| KEYS.contains(&t.key.as_str())).cloned().collect();
                self.ours(&input.name, error, found.map(|p| p.tags), &ownership)?;
            }
        }
        Ok(Done::Yes)
    }
}
