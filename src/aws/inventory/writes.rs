//! Updates the inventory after the controller's own writes. `upsert_*` and `remove_*` store what the response shows;
//! `invalidate_*` forces the next read to call AWS.

use super::{Inventory, PROFILES, readers};
use crate::aws::{InstanceProfile, LaunchTemplate, NewTemplate, Role, TemplateVersion};
use std::sync::{Arc, PoisonError};

impl Inventory {
    /// A scaling group was created, updated, tagged, or an instance of it terminated.
    pub fn invalidate_group(&self, name: &str) {
        self.groups.invalidate(name);
    }

    /// A group's warm pool was put or deleted, or an instance in it was marked unhealthy.
    pub fn invalidate_warm_pool(&self, group: &str) {
        self.warm_pools.invalidate(group);
    }

    /// Hooks of a group were put or deleted.
    pub fn invalidate_hooks(&self, group: &str) {
        self.hooks.invalidate(group);
    }

    /// Drops all cached data of a deleted scaling group.
    pub fn forget_group(&self, name: &str) {
        self.groups.remove_where(|key| key == name);
        self.hooks.remove_where(|key| key == name);
        self.warm_pools.remove_where(|key| key == name);
        self.refreshes.remove_where(|key| key == name);
        self.activities.remove_where(|key| key == name);
        let gone = self.instances.lock().unwrap_or_else(PoisonError::into_inner).remove_group(name);
        self.launch_times.remove_where(|id| gone.iter().any(|g| g == id));
    }

    /// DeleteLaunchConfiguration answered.
    pub fn remove_launch_configuration(&self, name: &str) {
        self.launch_configurations.remove_where(|key| key == name);
    }

    /// A launch template was written with an unknown outcome, or tagged.
    pub fn invalidate_template(&self, name: &str) {
        self.templates.invalidate(name);
    }

    /// The same, by the template's id.
    pub fn invalidate_template_by_id(&self, id: &str) {
        if let Some(name) = self.templates.key_where(|t| t.id == id) {
            self.templates.invalidate(&name);
        }
    }

    /// CreateLaunchTemplate answered.
    pub fn upsert_template(&self, template: LaunchTemplate) {
        let name = template.name.clone();
        self.templates.insert(&name, Some(template));
    }

    /// CreateLaunchTemplate answered with this first version.
    pub fn upsert_template_with_version(&self, input: &NewTemplate, version: &TemplateVersion) {
        self.upsert_template(LaunchTemplate {
            id: version.template_id.clone(),
            name: input.name.clone(),
            default_version: version.number,
            latest_version: version.number,
            tags: input.tags.clone(),
        });
        self.upsert_version(version.clone());
    }

    /// CreateLaunchTemplateVersion answered.
    pub fn upsert_version(&self, version: TemplateVersion) {
        let (id, number) = (version.template_id.clone(), version.number);
        self.versions.insert(&readers::version_key(&id, number), Some(Arc::new(version)));
        self.templates.update_where(|t| t.id == id, |t| t.latest_version = t.latest_version.max(number));
    }

    /// ModifyLaunchTemplate answered.
    pub fn update_default_version(&self, template_id: &str, number: i64) {
        self.templates.update_where(|t| t.id == template_id, |t| t.default_version = number);
    }

    /// DeleteLaunchTemplateVersions answered.
    pub fn remove_versions(&self, template_id: &str, numbers: &[i64]) {
        self.versions.remove_where(|key| numbers.iter().any(|n| key == readers::version_key(template_id, *n)));
    }

    /// DeleteLaunchTemplate answered, by the template's id.
    pub fn remove_template(&self, template_id: &str) {
        let prefix = format!("{template_id}/");
        self.versions.remove_where(|key| key.starts_with(&prefix));
        if let Some(name) = self.templates.key_where(|t| t.id == template_id) {
            self.templates.insert(&name, None);
        }
    }

    /// An instance profile was written with an unknown outcome.
    pub fn invalidate_profile(&self, name: &str) {
        self.profiles.invalidate(PROFILES, name);
    }

    /// CreateInstanceProfile or GetInstanceProfile answered.
    pub fn upsert_profile(&self, profile: InstanceProfile) {
        let name = profile.name.clone();
        self.profiles.insert(PROFILES, &name, Some(profile));
    }

    /// AddRoleToInstanceProfile answered.
    pub fn upsert_profile_role(&self, profile: &str, role: &Role) {
        self.set_profile_role(profile, Some(role.clone()));
    }

    /// RemoveRoleFromInstanceProfile answered.
    pub fn remove_profile_role(&self, profile: &str) {
        self.set_profile_role(profile, None);
    }

    /// DeleteInstanceProfile answered.
    pub fn remove_profile(&self, name: &str) {
        self.profiles.insert(PROFILES, name, None);
    }

    /// AttachRolePolicy answered.
    pub fn upsert_attached_policy(&self, role: &str, policy_arn: &str) {
        self.policies.insert(policy_arn, role, Some(()));
    }

    /// DetachRolePolicy answered.
    pub fn remove_attached_policy(&self, role: &str, policy_arn: &str) {
        self.policies.insert(policy_arn, role, None);
    }

    /// A policy was attached or detached with an unknown outcome.
    pub fn invalidate_policy(&self, role: &str, policy_arn: &str) {
        self.policies.invalidate(policy_arn, role);
    }

    fn set_profile_role(&self, name: &str, role: Option<Role>) {
        match self.profiles.peek(PROFILES, name) {
            Some(profile) => self.profiles.insert(PROFILES, name, Some(InstanceProfile { role, ..profile })),
            None => self.profiles.invalidate(PROFILES, name),
        }
    }
}
