//! Applies IAM steps: roles, their policies and their instance profiles.

use super::error::StepError;
use super::run::{Apply, ApplyRun, StepOutcome, StepResult, allow_tag_denied, done, ignore_not_found};
use crate::aws::{AwsErrorKind, InstanceProfile, NewRole, Tag};
use crate::plan::IamStep;

impl Apply for IamStep {
    async fn apply(&self, run: &mut ApplyRun<'_>) -> StepResult {
        let inventory = run.ctx.inventory;
        let iam = &inventory.aws().iam;
        match self {
            IamStep::CreateRole(input) => run.create_role(input).await,
            IamStep::UpdateTrustPolicy { role, policy } => done(iam.update_trust_policy(role, policy).await),
            IamStep::AttachPolicy { role, policy } => {
                done(iam.attach_policy(role, policy).await.inspect(|()| inventory.upsert_attached_policy(role, policy)))
            }
            IamStep::DetachPolicy { role, policy } => ignore_not_found(
                iam.detach_policy(role, policy).await.inspect(|()| inventory.remove_attached_policy(role, policy)),
            ),
            IamStep::CreateProfile { profile, tags } => run.create_profile(profile, tags).await,
            IamStep::AddRoleToProfile { profile, role } => {
                iam.add_role_to_profile(profile, role).await.map_err(StepError::Aws)?;
                match run.roles.get(role) {
                    Some(role) => inventory.upsert_profile_role(profile, role),
                    None => inventory.invalidate_profile(profile),
                }
                Ok(StepOutcome::Applied)
            }
            IamStep::RemoveRoleFromProfile { profile, role } => ignore_not_found(
                iam.remove_role_from_profile(profile, role).await.inspect(|()| inventory.remove_profile_role(profile)),
            ),
            IamStep::TagRole { role, tags } => allow_tag_denied(iam.tag_role(role, tags).await),
            IamStep::TagProfile { profile, tags } => allow_tag_denied(iam.tag_profile(profile, tags).await),
            IamStep::DeleteProfile { profile } => {
                ignore_not_found(iam.delete_profile(profile).await.inspect(|()| inventory.remove_profile(profile)))
            }
            IamStep::DeleteRole { role } => ignore_not_found(iam.delete_role(role).await),
        }
    }
}

impl ApplyRun<'_> {
    /// Creates a role. An existing role with the group's tags is adopted: its create succeeded and the response was lost.
    async fn create_role(&mut self, input: &NewRole) -> StepResult {
        let iam = self.ctx.inventory.aws().iam.clone();
        let role = match iam.create_role(input).await {
            Ok(role) => role,
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = iam.get_role(&input.name).await.map_err(StepError::Aws)?;
                self.adopt_if_owned(&input.name, error.clone(), found.as_ref().map(|r| r.tags.clone()), &input.tags)?;
                found.ok_or(StepError::Aws(error))?
            }
            Err(error) => return Err(StepError::Aws(error)),
        };
        self.roles.insert(role.name.clone(), role);
        Ok(StepOutcome::Applied)
    }

    async fn create_profile(&self, name: &str, tags: &[Tag]) -> StepResult {
        let inventory = self.ctx.inventory;
        match inventory.aws().iam.create_profile(name, tags).await {
            Ok(profile) => inventory.upsert_profile(profile),
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found: Option<InstanceProfile> =
                    inventory.aws().iam.get_profile(name).await.map_err(StepError::Aws)?;
                self.adopt_if_owned(name, error, found.as_ref().map(|p| p.tags.clone()), tags)?;
                found.into_iter().for_each(|p| inventory.upsert_profile(p));
            }
            Err(error) => return Err(StepError::Aws(error)),
        }
        Ok(StepOutcome::Applied)
    }
}
