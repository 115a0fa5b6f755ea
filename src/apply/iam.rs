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
            // Also when it is attached no more: the cache would show it, and the next pass would detach it again.
            IamStep::DetachPolicy { role, policy } => ignore_not_found(iam.detach_policy(role, policy).await)
                .inspect(|_| inventory.remove_attached_policy(role, policy)),
            IamStep::CreateProfile { profile, tags } => run.create_profile(profile, tags).await,
            IamStep::AddRoleToProfile { profile, role } => run.add_role_to_profile(profile, role).await,
            IamStep::RemoveRoleFromProfile { profile, role } => {
                ignore_not_found(iam.remove_role_from_profile(profile, role).await)
                    .inspect(|_| inventory.remove_profile_role(profile))
            }
            IamStep::TagRole { role, tags } => allow_tag_denied(iam.tag_role(role, tags).await),
            IamStep::TagProfile { profile, tags } => allow_tag_denied(iam.tag_profile(profile, tags).await),
            IamStep::DeleteProfile { profile } => {
                ignore_not_found(iam.delete_profile(profile).await).inspect(|_| inventory.remove_profile(profile))
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

    /// Puts a role into an instance profile. A profile holds one role, so a call that is repeated after a lost answer exceeds
    /// that quota, and what the profile holds decides.
    async fn add_role_to_profile(&self, profile: &str, role: &str) -> StepResult {
        let inventory = self.ctx.inventory;
        let iam = &inventory.aws().iam;
        match iam.add_role_to_profile(profile, role).await {
            Ok(()) => match self.roles.get(role) {
                Some(role) => inventory.upsert_profile_role(profile, role),
                None => inventory.invalidate_profile(profile),
            },
            Err(error) => {
                inventory.invalidate_profile(profile);
                if error.kind != AwsErrorKind::Quota {
                    return Err(StepError::Aws(error));
                }
                let found = iam.get_profile(profile).await.map_err(StepError::Aws)?;
                if found.and_then(|profile| profile.role).is_none_or(|found| found.name != role) {
                    return Err(StepError::Aws(error));
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::api::{InstanceGroup, InstanceGroupSpec, group_id};
    use crate::apply::{Applied, Applier, AwsAuthWriter, apply};
    use crate::aws::Role;
    use crate::aws::inventory::fake_aws::FakeAws;
    use crate::aws::inventory::{CacheConfig, Inventory};
    use crate::index::process_state::ProcessState;
    use crate::k8s::{KubeClient, fake};
    use crate::plan::{Plan, PlannedStep, StalledReason, blocked_plan};

    async fn apply_step(inventory: &Inventory, step: IamStep) -> Applied {
        let metadata =
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "web"}});
        let kube = KubeClient::new(fake::client(move |_| (200, metadata.clone())), "test");
        let (process_state, aws_auth) = (ProcessState::default(), AwsAuthWriter::default());
        let applier = Applier::for_tests(inventory, &kube, &process_state, &aws_auth);
        let id = group_id(&InstanceGroup::new("web", InstanceGroupSpec::default()));
        let steps = vec![PlannedStep::new(step, Vec::new())];
        let plan = Plan { steps, ..blocked_plan(&id, StalledReason::InvalidSpec, String::new()) };
        apply(&applier, &id, "1", &[], plan).await
    }

    /// The SDK repeats a call whose answer was lost. The group would be stalled by a quota that cannot be raised.
    #[tokio::test]
    async fn role_that_the_profile_holds_already_is_not_an_exceeded_quota() {
        for (held, expected) in [("web", None), ("of-a-person", Some("LimitExceeded"))] {
            let aws = Arc::new(FakeAws::default());
            let role = Role { name: held.into(), ..Role::default() };
            let (id, name, arn) = ("AIPA-1".to_owned(), "web".to_owned(), "arn".to_owned());
            let profile = InstanceProfile { id, name, arn, created: None, role: Some(role), tags: vec![] };
            aws.update(|state| _ = state.profiles.insert("web".into(), profile));
            let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
            let step = IamStep::AddRoleToProfile { profile: "web".into(), role: "web".into() };
            let error = apply_step(&inventory, step).await.error.map(|error| error.to_string());
            assert_eq!(error.is_some(), expected.is_some(), "{error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()));
        }
    }

    /// A user detached the policy. The next passes would detach it again, as long as the cached answer counts.
    #[tokio::test]
    async fn policy_that_is_not_attached_any_more_is_detached_once() {
        let aws = Arc::new(FakeAws::default());
        aws.update(|state| _ = state.policies.insert("arn:p".into(), vec!["web".into()]));
        let inventory = Inventory::with_config(aws.aws(), CacheConfig::default());
        let policies = ["arn:p".to_owned()];
        let attached = async || {
            inventory.attached_policies("web", &policies, Duration::from_secs(60)).await.expect("an answer").len()
        };
        assert_eq!(attached().await, 1);
        aws.update(|state| state.policies.clear());
        let step = IamStep::DetachPolicy { role: "web".into(), policy: "arn:p".into() };
        assert!(apply_step(&inventory, step).await.error.is_none());
        assert_eq!(attached().await, 0);
    }
}
