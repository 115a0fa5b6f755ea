//! Fargate profiles.

use crate::apply::{Apply, Done, Run, Stepped, Stopped, gone, tagged};
use crate::aws::AwsErrorKind;
use crate::aws::fargate::NewFargateProfile;
use crate::ownership::KEYS;
use crate::plan::FargateStep;

impl Apply for FargateStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        let inventory = run.a.inventory;
        let eks = &inventory.aws().fargate;
        match self {
            FargateStep::CreateFargateProfile(input) => create(run, input).await,
            FargateStep::DeleteFargateProfile { cluster, profile, .. } => {
                let result = eks.delete_fargate_profile(cluster, profile).await;
                inventory.wrote_fargate_profile(cluster, profile);
                gone(result)
            }
            FargateStep::TagFargateProfile { cluster, profile, arn, tags } => {
                let result = eks.tag_fargate_profile(arn, tags).await;
                inventory.wrote_fargate_profile(cluster, profile);
                tagged(result)
            }
            FargateStep::UntagFargateProfile { cluster, profile, arn, keys } => {
                let result = eks.untag_fargate_profile(arn, keys).await;
                inventory.wrote_fargate_profile(cluster, profile);
                tagged(result)
            }
        }
    }
}

/// A profile that is there already is ours when it carries our tags: a create whose answer was lost.
async fn create(run: &Run<'_>, input: &NewFargateProfile) -> Stepped {
    let inventory = run.a.inventory;
    let eks = &inventory.aws().fargate;
    match eks.create_fargate_profile(input).await {
        Ok(profile) => {
            run.a.memory.role_refused(&run.id.key(), false, run.a.now);
            inventory.made_fargate_profile(&input.cluster, profile);
        }
        Err(error) => {
            inventory.wrote_fargate_profile(&input.cluster, &input.name);
            if error.kind != AwsErrorKind::AlreadyExists {
                return Err(run.refused_role(error, input.own_role, "spec.eks-fargate.podExecutionRoleArn"));
            }
            let found = eks.describe_fargate_profile(&input.cluster, &input.name).await.map_err(Stopped::Aws)?;
            let ownership: Vec<_> = input.tags.iter().filter(|t| KEYS.contains(&t.key.as_str())).cloned().collect();
            run.ours(&input.name, error, found.map(|p| p.tags), &ownership)?;
        }
    }
    Ok(Done::Yes)
}
