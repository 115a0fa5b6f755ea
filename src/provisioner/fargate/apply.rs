//! Executes plan steps on Fargate profiles.

use crate::apply::{Apply, ApplyRun, StepError, StepOutcome, StepResult, allow_tag_denied, ignore_not_found};
use crate::aws::AwsErrorKind;
use crate::aws::fargate::NewFargateProfile;
use crate::ownership::OWNERSHIP_TAG_KEYS;
use crate::plan::FargateStep;

impl Apply for FargateStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let inventory = run.ctx.inventory;
        let eks = &inventory.aws().fargate;
        match self {
            FargateStep::CreateFargateProfile(input) => create(run, input).await,
            FargateStep::DeleteFargateProfile { cluster, profile, .. } => {
                let result = eks.delete_fargate_profile(cluster, profile).await;
                inventory.invalidate_fargate_profile(cluster, profile);
                ignore_not_found(result)
            }
            FargateStep::TagFargateProfile { cluster, profile, arn, tags } => {
                let result = eks.tag_fargate_profile(arn, tags).await;
                inventory.invalidate_fargate_profile(cluster, profile);
                allow_tag_denied(result)
            }
            FargateStep::UntagFargateProfile { cluster, profile, arn, keys } => {
                let result = eks.untag_fargate_profile(arn, keys).await;
                inventory.invalidate_fargate_profile(cluster, profile);
                allow_tag_denied(result)
            }
        }
    }
}

/// Creates a profile. A profile that already exists counts as created when it carries this group's tags: the response of
/// an earlier call was lost.
async fn create(run: &ApplyRun<'_>, input: &NewFargateProfile) -> StepResult {
    let inventory = run.ctx.inventory;
    let eks = &inventory.aws().fargate;
    match eks.create_fargate_profile(input).await {
        Ok(profile) => {
            run.ctx.process_state.track_role_rejection(&run.id.key(), false, run.ctx.now);
            inventory.upsert_fargate_profile(&input.cluster, profile);
        }
        Err(error) => {
            inventory.invalidate_fargate_profile(&input.cluster, &input.name);
            if error.kind != AwsErrorKind::AlreadyExists {
                return Err(run.classify_role_error(error, input.own_role, "spec.eks-fargate.podExecutionRoleArn"));
            }
            let found = eks.describe_fargate_profile(&input.cluster, &input.name).await.map_err(StepError::Aws)?;
            let ownership: Vec<_> =
                input.tags.iter().filter(|t| OWNERSHIP_TAG_KEYS.contains(&t.key.as_str())).cloned().collect();
            run.adopt_if_owned(&input.name, error, found.map(|p| p.tags), &ownership)?;
        }
    }
    Ok(StepOutcome::Applied)
}
