//! Roles, their policies and their instance profiles.

use super::{Apply, Done, Run, Stepped, Stopped, gone, ok, tagged};
use crate::aws::{AwsErrorKind, InstanceProfile, NewRole, Tag};
use crate::plan::IamStep;

impl Apply for IamStep {
    async fn apply(&self, run: &mut Run<'_>) -> Stepped {
        let inventory = run.a.inventory;
        let iam = &inventory.aws().iam;
        match self {
            IamStep::CreateRole(input) => run.create_role(input).await,
            IamStep::AttachPolicy { role, policy } => {
                ok(iam.attach_policy(role, policy).await.inspect(|()| inventory.attached_policy(role, policy)))
            }
            IamStep::DetachPolicy { role, policy } => {
                gone(iam.detach_policy(role, policy).await.inspect(|()| inventory.detached_policy(role, policy)))
            }
            IamStep::CreateProfile { profile, tags } => run.create_profile(profile, tags).await,
            IamStep::AddRoleToProfile { profile, role } => {
                iam.add_role_to_profile(profile, role).await.map_err(Stopped::Aws)?;
                match run.roles.get(role) {
                    Some(role) => inventory.role_added(profile, role),
                    None => inventory.wrote_profile(profile),
                }
                Ok(Done::Yes)
            }
            IamStep::RemoveRoleFromProfile { profile, role } => {
                gone(iam.remove_role_from_profile(profile, role).await.inspect(|()| inventory.role_removed(profile)))
            }
            IamStep::TagRole { role, tags } => tagged(iam.tag_role(role, tags).await),
            IamStep::TagProfile { profile, tags } => tagged(iam.tag_profile(profile, tags).await),
            IamStep::DeleteProfile { profile } => {
                gone(iam.delete_profile(profile).await.inspect(|()| inventory.gone_profile(profile)))
            }
            IamStep::DeleteRole { role } => gone(iam.delete_role(role).await),
        }
    }
}

impl Run<'_> {
    /// A role that is there already is adopted when its tags are ours: a create whose answer was lost.
    async fn create_role(&mut self, input: &NewRole) -> Stepped {
        let iam = self.a.inventory.aws().iam.clone();
        let role = match iam.create_role(input).await {
            Ok(role) => role,
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found = iam.get_role(&input.name).await.map_err(Stopped::Aws)?;
                self.ours(&input.name, error.clone(), found.as_ref().map(|r| r.tags.clone()), &input.tags)?;
                found.ok_or(Stopped::Aws(error))?
            }
            Err(error) => return Err(Stopped::Aws(error)),
        };
        self.roles.insert(role.name.clone(), role);
        Ok(Done::Yes)
    }

    async fn create_profile(&self, name: &str, tags: &[Tag]) -> Stepped {
        let inventory = self.a.inventory;
        match inventory.aws().iam.create_profile(name, tags).await {
            Ok(profile) => inventory.made_profile(profile),
            Err(error) if error.kind == AwsErrorKind::AlreadyExists => {
                let found: Option<InstanceProfile> =
                    inventory.aws().iam.get_profile(name).await.map_err(Stopped::Aws)?;
                self.ours(name, error, found.as_ref().map(|p| p.tags.clone()), tags)?;
                found.into_iter().for_each(|p| inventory.made_profile(p));
            }
            Err(error) => return Err(Stopped::Aws(error)),
        }
        Ok(Done::Yes)
    }
}
